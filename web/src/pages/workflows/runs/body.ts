/** What a call brings along and what comes back, as texts of the API. */

/** Bytes as base64. */
export function toBase64(bytes: Uint8Array): string {
  let text = "";
  for (let from = 0; from < bytes.length; from += 0x8000) text += String.fromCharCode(...bytes.subarray(from, from + 0x8000));
  return btoa(text);
}

export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index += 1) bytes[index] = binary.charCodeAt(index);
  return bytes;
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
