/** What the map and the list of regions show of clusters. Pure. */
import type { Schemas } from "@/api/client";

type Cluster = Schemas["TrafficCluster"];
type Point = readonly [number, number];

export const HEALTH = {
  up: { words: "healthy", tone: "good" },
  degraded: { words: "degraded", tone: "warn" },
  down: { words: "down", tone: "bad" },
} as const;

/** The part of a cluster's slots that is taken, from 0 to 1. */
export function loadOf(cluster: Pick<Cluster, "busy" | "slots">): number {
  return cluster.slots === 0 ? 0 : Math.min(1, cluster.busy / cluster.slots);
}

/** Moves markers that would lie on each other apart, downwards, to at least `apart`; which of two moves does not depend on their order. */
export function spread(markers: readonly { id: string; at: readonly [number, number] }[], apart: number): Map<string, [number, number]> {
  const placed = new Map<string, [number, number]>();
  const order = [...markers].sort((a, b) => a.at[1] - b.at[1] || (a.id < b.id ? -1 : 1));
  for (const marker of order) {
    const [x] = marker.at;
    let y = marker.at[1];
    for (let moved = true; moved; ) {
      moved = false;
      for (const [otherX, otherY] of placed.values()) {
        if (Math.hypot(otherX - x, otherY - y) < apart - 1e-6) {
          // Straight below the other one, as far away as is asked for.
          y = otherY + Math.sqrt(Math.max(0, apart ** 2 - (otherX - x) ** 2));
          moved = true;
        }
      }
    }
    placed.set(marker.id, [x, y]);
  }
  return placed;
}

/** A bow between two points as an SVG path, from the first to the second, bent upwards by a part of their distance, so that also short ways are seen. */
export function bow(from: Point, to: Point): string {
  const [x, y] = bend(from, to);
  const number = (value: number) => value.toFixed(1);
  return `M${number(from[0])} ${number(from[1])}Q${number(x)} ${number(y)} ${number(to[0])} ${number(to[1])}`;
}

/** Where a bow is drawn to between its ends. */
function bend([x1, y1]: Point, [x2, y2]: Point): Point {
  const lift = Math.min(90, 14 + Math.hypot(x2 - x1, y2 - y1) * 0.24);
  return [(x1 + x2) / 2, Math.max(4, (y1 + y2) / 2 - lift)];
}

/** Points of a bow behind its middle, where a name beside its end could cover it. */
export function along(from: Point, to: Point): Point[] {
  const by = bend(from, to);
  const on = (part: number, axis: 0 | 1) => (1 - part) ** 2 * from[axis] + 2 * part * (1 - part) * by[axis] + part ** 2 * to[axis];
  return [0.5, 0.8].map((part): Point => [on(part, 0), on(part, 1)]);
}

/** The part of all demand that comes from clients whose place is not known. */
export function unplaced(flows: readonly Schemas["TrafficFlow"][]): number {
  return flows.reduce((sum, flow) => sum + (flow.location == null ? flow.share : 0), 0);
}

/** A point, or, if it is nearer to another one than that, the point at that distance in the same direction (to the upper right, if there is none). */
export function aside(point: Point, from: Point, least: number): Point {
  const [x, y] = [point[0] - from[0], point[1] - from[1]];
  const far = Math.hypot(x, y);
  if (far >= least) return point;
  const [toX, toY] = far < 1 ? [Math.SQRT1_2, -Math.SQRT1_2] : [x / far, y / far];
  return [from[0] + toX * least, from[1] + toY * least];
}

/** Which markers have their names on the left: those that would cover more of other markers and of clients, or leave the map, on the right. */
export function sides(markers: readonly { id: string; at: Point }[], clients: readonly Point[], unit: number, width: number): Set<string> {
  const left = new Set<string>();
  for (const marker of markers) {
    const [x, y] = marker.at;
    const long = (24 + marker.id.length * 8) * unit;
    const covered = (side: 1 | -1): number => {
      const within = ([otherX, otherY]: Point, margin: number) => (otherX - x) * side > 0 && (otherX - x) * side < long + margin && Math.abs(otherY - y) < 16 * unit + margin;
      const outside = side === 1 ? x + long > width : x - long < 0;
      return (outside ? 1000 : 0) + markers.filter((other) => other !== marker && within(other.at, 12 * unit)).length * 4 + clients.filter((client) => within(client, 3 * unit)).length;
    };
    if (covered(-1) < covered(1)) left.add(marker.id);
  }
  return left;
}
