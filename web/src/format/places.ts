/** Places and distances as people read them. Pure. */
import type { Schemas } from "@/api/client";
import { duration } from "./numbers";

/** `48.9° N, 2.4° E` */
export function place(point: Schemas["GeoPoint"] | null | undefined): string {
  if (point === null || point === undefined) return "–";
  const degrees = (value: number, above: string, below: string) => `${Math.abs(value).toFixed(1)}° ${value < 0 ? below : above}`;
  return `${degrees(point.lat, "N", "S")}, ${degrees(point.lon, "E", "W")}`;
}

/** A group of clients, which is told by its distances one way (`ap-south=54,eu-west=7,us-east=inf`), nearest first: `eu-west 7 ms, ap-south 54 ms`. */
export function group(text: string): string {
  const parts = text.split(",").map((part) => part.split("="));
  if (!parts.every((part) => part.length === 2 && (part[1] === "inf" || Number.isFinite(Number(part[1]))))) return text;
  const far = (value: string | undefined) => (value === "inf" ? Number.POSITIVE_INFINITY : Number(value));
  const near = parts.filter((part) => part[1] !== "inf").sort((a, b) => far(a[1]) - far(b[1]));
  return near.map(([cluster, distance]) => `${cluster ?? ""} ${duration(far(distance))}`).join(", ");
}

/** A sentence of the controller's, in which groups of clients are told by their distances, for reading. */
export function withGroups(text: string): string {
  return text.replace(/\bgroup ((?:[\w.-]+=[\w.]+)(?:,[\w.-]+=[\w.]+)*)/g, (_, parts: string) => `clients at ${group(parts)}`);
}
