/** Scales of charts: round steps on both axes. Pure. */

/** Values at round steps from 0 to at least `most`, about `wanted` of them; whole ones, if parts of one make no sense. */
export function ticks(most: number, wanted = 4, whole = false): number[] {
  if (!(most > 0) || !Number.isFinite(most)) return [0, 1];
  const raw = most / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const round = ([1, 2, 2.5, 5, 10].find((factor) => factor * power >= raw * 0.999 && (!whole || Number.isInteger(factor * power))) ?? 10) * power;
  const step = whole ? Math.max(1, round) : round;
  const steps = Math.ceil(most / step - 1e-9);
  return Array.from({ length: steps + 1 }, (_, index) => Number((index * step).toPrecision(12)));
}

const STEPS = [1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400].map((seconds) => seconds * 1000);

/** Round times between two points in time, at most `most` of them. `shift` is the zone's distance from UTC in milliseconds. */
export function timeTicks(from: number, to: number, most: number, shift = 0): number[] {
  const step = STEPS.find((each) => (to - from) / each <= most) ?? 86_400_000;
  const first = Math.ceil((from + shift) / step) * step - shift;
  const found: number[] = [];
  for (let at = first; at <= to; at += step) found.push(at);
  return found;
}

export interface Point {
  at: number;
  value: number | null;
}

/**
 * The points of a series at every step from `from` to `to`: what has no point has `missing` (nothing happened: 0; nothing is known: null).
 */
export function filled(points: readonly Point[], from: number, to: number, step: number, missing: number | null): Point[] {
  if (!(step > 0)) return [...points];
  const known = new Map(points.map((point) => [Math.floor(point.at / step), point.value]));
  const all: Point[] = [];
  for (let slot = Math.ceil(from / step); slot * step < to; slot += 1) {
    const value = known.get(slot);
    all.push({ at: slot * step, value: value === undefined ? missing : value });
  }
  return all;
}

/** An SVG path through points, broken where a value is missing. A point between two gaps is a dot. */
export function path(points: readonly Point[], x: (at: number) => number, y: (value: number) => number): string {
  let out = "";
  let drawing = false;
  points.forEach((point, index) => {
    if (point.value === null) {
      drawing = false;
      return;
    }
    const place = `${x(point.at).toFixed(1)} ${y(point.value).toFixed(1)}`;
    const alone = !drawing && (points[index + 1]?.value ?? null) === null;
    out += `${drawing ? "L" : "M"}${place}${alone ? "h0.01" : ""}`;
    drawing = true;
  });
  return out;
}

/** Points with nothing known on either side, which a line cannot show. */
export function lone(points: readonly Point[]): { at: number; value: number }[] {
  return points.flatMap(({ at, value }, index) => (value !== null && (points[index - 1]?.value ?? null) === null && (points[index + 1]?.value ?? null) === null ? [{ at, value }] : []));
}

/** The index of the point that is nearest to a time. */
export function nearest(points: readonly Point[], at: number): number {
  let low = 0;
  let high = points.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((points[middle]?.at ?? 0) < at) low = middle + 1;
    else high = middle;
  }
  const before = points[low - 1];
  const here = points[low];
  if (before !== undefined && here !== undefined && at - before.at < here.at - at) return low - 1;
  return low;
}
