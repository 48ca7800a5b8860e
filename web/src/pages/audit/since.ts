/** The beginning of a span of time that ends now, to the minute, so that the same question is asked for a minute. */
export function sinceOf(span: string, now: number): number | undefined {
  const hours = { "1h": 1, "24h": 24, "7d": 168, "30d": 720 }[span];
  return hours === undefined ? undefined : Math.floor(now / 60_000) * 60_000 - hours * 3_600_000;
}
