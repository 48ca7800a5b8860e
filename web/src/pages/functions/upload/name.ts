/** What an app may be called: a label of a host name. */

/** Why a name cannot be used; `null` if it can. */
export function nameProblem(name: string): string | null {
  if (name === "") return "A function needs a name.";
  if (name.length > 63) return "At most 63 characters.";
  if (/[^a-z0-9-]/.test(name)) return "Only lower-case letters, digits and hyphens.";
  if (name.startsWith("-") || name.endsWith("-")) return "A hyphen can be neither first nor last.";
  return null;
}

/** A name made of a file's name: `My_Function v2.wasm` becomes `my-function-v2`. */
export function nameOf(file: string): string {
  return file
    .replace(/\.(wasm|tar|tar\.gz|tgz)$/i, "")
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-+|-+$/g, "")
    .slice(0, 63)
    .replace(/-+$/, "");
}
