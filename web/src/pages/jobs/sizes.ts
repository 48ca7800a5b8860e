/** Sizes as the API writes them. */

const UNITS: Readonly<Record<string, number>> = { "": 1, B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3, kB: 1000, MB: 1e6, GB: 1e9 };

/** Bytes of a size such as `64KiB`; 0 if it is none. */
export function parseSize(text: string): number {
  const [, amount, unit] = /^(\d+)\s*([A-Za-z]*)$/.exec(text) ?? [];
  return Number(amount ?? 0) * (UNITS[unit ?? ""] ?? 0);
}
