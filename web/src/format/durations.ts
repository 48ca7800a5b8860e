/** Spans of time as the API writes and reads them (`15m`, `1h30m`, `500ms`). */

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Milliseconds of such a text; `null` when it is none. */
export function parseDuration(text: string): number | null {
  const trimmed = text.trim();
  if (!/^(\d+(\.\d+)?\s*(ms|s|m|h|d)\s*)+$/.test(trimmed)) return null;
  let total = 0;
  for (const [, amount, , unit] of trimmed.matchAll(/(\d+(\.\d+)?)\s*(ms|s|m|h|d)/g)) {
    total += Number(amount) * (UNITS[unit ?? ""] ?? 0);
  }
  return total;
}

/** What is wrong with a span that may be left out, in words; `undefined` if nothing is. */
export function spanFault(text: string): string | undefined {
  return text === "" || parseDuration(text) !== null ? undefined : "Such as 10m or 1h.";
}
