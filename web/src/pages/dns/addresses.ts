/** Addresses and names as people type them. */

/** Whether a text can be an address or a prefix of one. What it means is for the controller to say; this catches slips of the hand. */
export function isClient(text: string): boolean {
  const [address = "", length, ...rest] = text.split("/");
  if (rest.length > 0) return false;
  const four = isFour(address);
  if (!four && !isSix(address)) return false;
  return length === undefined || (/^\d{1,3}$/.test(length) && Number(length) <= (four ? 32 : 128));
}

function isFour(text: string): boolean {
  const parts = text.split(".");
  return parts.length === 4 && parts.every((part) => /^\d{1,3}$/.test(part) && Number(part) <= 255);
}

function isSix(text: string): boolean {
  const halves = text.split("::");
  if (halves.length > 2 || !text.includes(":")) return false;
  const groups = halves.flatMap((half) => (half === "" ? [] : half.split(":")));
  const last = groups.at(-1) ?? "";
  const four = last.includes(".");
  if (four && !isFour(last)) return false;
  const hex = four ? groups.slice(0, -1) : groups;
  const size = hex.length + (four ? 2 : 0);
  return hex.every((group) => /^[0-9a-f]{1,4}$/i.test(group)) && (halves.length === 2 ? size < 8 : size === 8);
}

/** A host name of an app: what was typed, with the zone behind it if it has none. */
export function hostOf(text: string, zone: string): string {
  const name = text.trim().toLowerCase().replace(/\.$/, "");
  return name === "" || name.includes(".") ? name : `${name}.${zone}`;
}

/** The name of a record: what was typed, with the zone behind it unless it is the zone or ends with it. */
export function recordName(text: string, zone: string): string {
  const name = text.trim().toLowerCase().replace(/\.$/, "");
  return name === "" || zone === "" || name === zone || name.endsWith(`.${zone}`) ? name : `${name}.${zone}`;
}

/** Values of text records, one a line, each once. Spaces count within a value and not around it. */
export function textsOf(text: string): string[] {
  return [...new Set(text.split("\n").map((line) => line.trim()).filter((line) => line !== ""))];
}
