/** Points in time on the page. */
import { absolute, clock, relative } from "@/format";
import { useNow, useZone } from "@/app/zone";

/** A moment in this machine's zone and in UTC, which stands behind every time. */
function both(at: number): string {
  return `${absolute(at, "local")}, ${absolute(at, "utc")}`;
}

/** How long ago something was, with the exact time in the title. */
export function Ago({ at, none = "never" }: { at: number | null | undefined; none?: string }) {
  const now = useNow();
  if (at === null || at === undefined) return <span className="faint">{none}</span>;
  return <time dateTime={new Date(at).toISOString()} title={both(at)} className="nowrap">{relative(at, now)}</time>;
}

/** The exact time, in the zone that the person chose. */
export function At({ at, none = "–" }: { at: number | null | undefined; none?: string }) {
  const { zone } = useZone();
  const now = useNow();
  if (at === null || at === undefined) return <span className="faint">{none}</span>;
  return <time dateTime={new Date(at).toISOString()} title={`${relative(at, now)}; ${both(at)}`} className="nowrap">{absolute(at, zone)}</time>;
}

/** The time of day with thousandths, for logs. */
export function Clock({ at }: { at: number }) {
  const { zone } = useZone();
  return <time dateTime={new Date(at).toISOString()} title={both(at)} className="nowrap mono">{clock(at, zone, true)}</time>;
}
