/** Splits of traffic between versions. Pure. */
import type { Schemas } from "@/api/client";

type Traffic = Schemas["Traffic"];
type Split = NonNullable<Traffic["split"]>;

/** The percentage of calls of each version of a split; empty without one. */
export function sharesOf(traffic: Traffic | undefined): ReadonlyMap<number, number> {
  const split = traffic?.split ?? [];
  const all = split.reduce((sum, share) => sum + share.weight, 0);
  if (all === 0) return new Map();
  return new Map(split.map((share) => [share.version, Math.round((share.weight / all) * 1000) / 10]));
}

/** A split between two versions: `percent` of the calls to `second`. All to the first is a split too: it keeps the second one ready. */
export function between(first: number, second: number, percent: number): Split {
  const share = Math.min(100, Math.max(0, Math.round(percent)));
  return [{ version: first, weight: 100 - share }, { version: second, weight: share }];
}

/** The split that the form asks for. As long as no share is chosen it is the one that is there, which may be finer than the form's whole percents. */
export function wanted(present: Split, first: number, second: number, percent: number | null): Split {
  return percent === null && present.length > 0 ? present : between(first, second, percent ?? 0);
}
