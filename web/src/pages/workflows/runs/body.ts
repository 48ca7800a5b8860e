/** What a call brings along and what comes back, as texts of the API. */

/** Octets as base64. */
export function toBase64(octets: Uint8Array): string {
  let text = "";
  for (let from = 0; from < octets.length; from += 0x8000) text += String.fromCharCode(...octets.subarray(from, from + 0x8000));
  return btoa(text);
}

export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const bytes = atob(text);
  const octets = new Uint8Array(bytes.length);
  for (let index = 0; index < bytes.length; index += 1) octets[index] = bytes.charCodeAt(index);
  return octets;
}

/** Lines `name: value` as pairs; `null` when one is none. */
export function parseHeaders(text: string): [string, string][] | null {
  const pairs: [string, string][] = [];
  for (const line of text.split("\n")) {
    if (line.trim() === "") continue;
    const [, name, value] = /^\s*([!#$%&'*+.^_`|~\w-]+)\s*:\s*(.*?)\s*$/.exec(line) ?? [];
    if (name === undefined || value === undefined) return null;
    pairs.push([name.toLowerCase(), value]);
  }
  return pairs;
}
