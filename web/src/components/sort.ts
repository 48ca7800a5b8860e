/** The order of values in tables. */

export type Sortable = string | number | boolean | null | undefined;

const texts = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

/** Ascending; what is missing comes last. */
export function compare(a: Sortable, b: Sortable): number {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  if (typeof a === "string" && typeof b === "string") return texts.compare(a, b);
  return Number(a) - Number(b);
}

/** Whether one of the texts holds all words of the filter. */
export function matches(filter: string, ...parts: (string | null | undefined)[]): boolean {
  const all = parts.join("\n").toLowerCase();
  return filter.toLowerCase().split(/\s+/).every((word) => all.includes(word));
}
