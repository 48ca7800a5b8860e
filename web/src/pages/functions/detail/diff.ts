/** What changed between two manifests, field by field. Pure. */

import type { Version } from "../queries";

export interface Change {
  /** The field, with dots: `env.GREETING`. */
  field: string;
  before: string | null;
  after: string | null;
}

/** What of a version may differ from another's: its manifest, and what its other forms have of their own. */
export function comparable(version: Version | undefined): unknown {
  const forms = (version?.forms ?? []).map((form) => [form.manifest.name, { ...form.manifest, digest: form.digest }] as const);
  return { ...version?.manifest, forms: Object.fromEntries(forms) };
}

/** All fields that differ, in the order of their names. */
export function changes(before: unknown, after: unknown): Change[] {
  const [old, now] = [flatten(before), flatten(after)];
  const fields = [...new Set([...old.keys(), ...now.keys()])].sort();
  return fields
    .map((field) => ({ field, before: old.get(field) ?? null, after: now.get(field) ?? null }))
    .filter((change) => change.before !== change.after);
}

function flatten(value: unknown, prefix = "", into = new Map<string, string>()): Map<string, string> {
  if (value === null || value === undefined) return into;
  if (Array.isArray(value)) {
    if (value.length > 0) into.set(prefix, value.map((each) => (typeof each === "string" ? each : JSON.stringify(each))).join(", "));
  } else if (typeof value === "object") {
    for (const [key, each] of Object.entries(value)) flatten(each, prefix === "" ? key : `${prefix}.${key}`, into);
  } else {
    into.set(prefix, typeof value === "string" ? value : JSON.stringify(value));
  }
  return into;
}
