/** Spans and sizes exactly as workflow files write them: a whole number with one unit. */

const SPANS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };
const SIZES: Readonly<Record<string, number>> = {
  "": 1, B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3, kB: 1000, MB: 1e6, GB: 1e9,
};

function parse(text: string, units: Readonly<Record<string, number>>): number | null {
  const [, amount, unit] = /^(\d+)\s*([A-Za-z]*)$/.exec(text.trim()) ?? [];
  const factor = unit === undefined ? undefined : units[unit];
  return amount === undefined || factor === undefined ? null : Number(amount) * factor;
}

/** Milliseconds; `null` when the text is none. */
export function parseSpan(text: string): number | null {
  return parse(text, SPANS);
}

/** Bytes; `null` when the text is none. */
export function parseBytes(text: string): number | null {
  return parse(text, SIZES);
}
