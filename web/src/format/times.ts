/** Points in time, in the zone that the person chose, absolute and relative. */

export type Zone = "local" | "utc";

function parts(at: number, zone: Zone): { date: string; time: string; millis: string } {
  const moment = new Date(at);
  const two = (value: number) => String(value).padStart(2, "0");
  const [year, month, day, hour, minute, second] =
    zone === "utc"
      ? [moment.getUTCFullYear(), moment.getUTCMonth(), moment.getUTCDate(), moment.getUTCHours(), moment.getUTCMinutes(), moment.getUTCSeconds()]
      : [moment.getFullYear(), moment.getMonth(), moment.getDate(), moment.getHours(), moment.getMinutes(), moment.getSeconds()];
  return {
    date: `${year}-${two(month + 1)}-${two(day)}`,
    time: `${two(hour)}:${two(minute)}:${two(second)}`,
    millis: String(moment.getUTCMilliseconds()).padStart(3, "0"),
  };
}

/** The zone in words: `UTC`, or `+02:00` at that moment. */
export function offset(at: number, zone: Zone): string {
  if (zone === "utc") return "UTC";
  const minutes = -new Date(at).getTimezoneOffset();
  const size = Math.abs(minutes);
  const two = (value: number) => String(value).padStart(2, "0");
  return `${minutes < 0 ? "-" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

/** `2026-11-22 06:12:11 UTC`. */
export function absolute(at: number, zone: Zone): string {
  const { date, time } = parts(at, zone);
  return `${date} ${time} ${offset(at, zone)}`;
}

/** `2026-11-22`. */
export function dateOf(at: number, zone: Zone): string {
  return parts(at, zone).date;
}

/** `06:12:11`, or with thousandths `06:12:11.042`. */
export function clock(at: number, zone: Zone, thousandths = false): string {
  const { time, millis } = parts(at, zone);
  return thousandths ? `${time}.${millis}` : time;
}

const STEPS: readonly [number, number, string][] = [
  [45_000, 1000, "s"],
  [45 * 60_000, 60_000, "min"],
  [22 * 3_600_000, 3_600_000, "h"],
  [26 * 86_400_000, 86_400_000, "d"],
  [320 * 86_400_000, 30.44 * 86_400_000, "mo"],
  [Number.POSITIVE_INFINITY, 365.25 * 86_400_000, "y"],
];

/** `now`, `12 s ago`, `in 3 h`. */
export function relative(at: number, now: number): string {
  const distance = at - now;
  const size = Math.abs(distance);
  if (size < 5000) return "now";
  for (const [below, unit, name] of STEPS) {
    if (size < below) {
      const amount = Math.max(1, Math.round(size / unit));
      return distance < 0 ? `${amount} ${name} ago` : `in ${amount} ${name}`;
    }
  }
  return "now";
}
