/** The link of an invitation. The invitation stands in it as the fragment, which a browser sends to nobody. */
export interface Invitation {
  /** What is shown to accept it. */
  readonly token: string;
  /** Whose password it lets choose. */
  readonly user: string;
}

const TOKEN = /^fdn-invite\.((?:[0-9a-f]{2})+)\.[0-9a-f]{64}$/;

/** The link that is handed over. */
export function linkOf(origin: string, token: string): string {
  return `${origin}/invitation#${token}`;
}

/** The invitation in the fragment of an address; `null` if there is none, or not to its last character. */
export function invitationIn(fragment: string): Invitation | null {
  const token = fragment.replace(/^#/, "");
  const name = TOKEN.exec(token)?.[1];
  if (name === undefined) return null;
  const bytes = (name.match(/../g) ?? []).map((digits) => Number.parseInt(digits, 16));
  return { token, user: new TextDecoder().decode(Uint8Array.from(bytes)) };
}
