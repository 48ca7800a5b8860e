/** What "Try it" sends and shows. Pure. */

import type { Schemas } from "@/api/client";

/** The answer as the client types it: pairs are lists of texts there. */
export type TryAnswer = Omit<Schemas["TryAnswer"], "headers"> & { headers: readonly (readonly string[])[] };

/** Headers as people write them, one a line. Lines without a colon are told. */
export function parseHeaders(text: string): { headers: [string, string][]; wrong: string | null } {
  const headers: [string, string][] = [];
  for (const line of text.split("\n")) {
    if (line.trim() === "") continue;
    const at = line.indexOf(":");
    const name = line.slice(0, at).trim();
    if (at < 1 || !/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name)) return { headers, wrong: `“${line.trim()}” is no header; write NAME: VALUE` };
    headers.push([name, line.slice(at + 1).trim()]);
  }
  return { headers, wrong: null };
}

/** Bytes as base64. */
export function toBase64(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
}

export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}

/** A value of a header of an answer, by its name. */
export function headerOf(headers: readonly (readonly string[])[], name: string): string | null {
  const found = headers.find((header) => header[0]?.toLowerCase() === name);
  return found?.[1] ?? null;
}

/** JSON with indentation, if it is JSON; else the text as it is. */
export function pretty(text: string, type: string | null): string {
  if (type?.includes("json") !== true) return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** The first bytes as people read them: offset, hexadecimal, text. */
export function hexdump(bytes: Uint8Array, most = 512): string {
  const lines: string[] = [];
  for (let at = 0; at < Math.min(most, bytes.length); at += 16) {
    const part = [...bytes.subarray(at, at + 16)];
    const hex = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const text = part.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex}  ${text}`);
  }
  if (bytes.length > most) lines.push("…");
  return lines.join("\n");
}

/** The same call for a terminal. */
export function asCommand(app: string, method: string, path: string, headers: readonly [string, string][], body: string): string {
  const quote = (text: string) => (/^[\w./:=?&%+-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);
  const parts = ["fdn invoke", quote(app)];
  if (path !== "/") parts.push(quote(path));
  if (method !== (body === "" ? "GET" : "POST")) parts.push("-X", method);
  for (const [name, value] of headers) parts.push("-H", quote(`${name}: ${value}`));
  if (body !== "") parts.push("-d", quote(body));
  return parts.join(" ");
}
