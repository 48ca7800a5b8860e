/** What is measured, and its quantities in units that people read. Quantities come as texts: they pass what a number holds exactly. */
import type { Schemas } from "@/api/client";
import { bytes, compact, duration, significant } from "@/format";

export type Meter = Schemas["Meter"];
export type Money = Schemas["Money"];

interface About {
  readonly name: string;
  /** What prices are for. */
  readonly unit: string;
  readonly one: string;
  /** Smallest units in one unit that prices are for. */
  readonly size: bigint;
}

const HOUR_MS = 3_600_000n;
const GIB = 1024n ** 3n;

export const METERS: Readonly<Record<Meter, About>> = {
  invocations: { name: "Calls", unit: "call", one: "a call", size: 1n },
  gib_seconds: { name: "Memory", unit: "GiB·s", one: "a GiB for a second", size: 1024n * 1_000_000n },
  vcpu_seconds: { name: "CPU time", unit: "s", one: "a second", size: 1_000_000n },
  gpu_gib_seconds: { name: "GPU memory", unit: "GiB·s", one: "a GiB for a second", size: 1024n * 1_000_000n },
  egress_gib: { name: "Data sent", unit: "GiB", one: "a GiB", size: GIB },
  storage_gib_hours: { name: "Artifacts kept", unit: "GiB·h", one: "a GiB for an hour", size: GIB * HOUR_MS },
};

export const METER_NAMES = Object.keys(METERS) as Meter[];

/** Smallest units as a number of the units that prices are for. Good to fifteen digits, which is for reading only. */
export function inUnits(meter: Meter, quantity: string): number {
  const value = BigInt(quantity);
  const { size } = METERS[meter];
  const whole = value / size;
  return Number(whole) + Number(value % size) / Number(size);
}

/** A quantity for reading: `1.2 M calls`, `3.4 GiB·s`, `12 ms`, `5 MiB`. */
export function quantityText(meter: Meter, quantity: string): string {
  if (meter === "egress_gib") return bytes(Number(BigInt(quantity)));
  if (meter === "vcpu_seconds") return duration(Number(BigInt(quantity)) / 1000);
  const value = inUnits(meter, quantity);
  if (meter === "invocations") return `${compact(value)} ${value === 1 ? "call" : "calls"}`;
  // What is small is told in a smaller unit of memory, not with zeros behind the point.
  const [, per = ""] = METERS[meter].unit.split("·");
  if (Math.abs(value) < 0.1) return `${bytes(value * Number(GIB))}·${per}`;
  return `${Math.abs(value) >= 1000 ? compact(value) : significant(value)} ${METERS[meter].unit}`;
}

/** Micro-units of decimal text such as `99.50`; `null` when it is none or has more than six decimals. */
export function parseMoney(text: string): number | null {
  const [, whole, fraction = ""] = /^(\d{1,9})(?:\.(\d{1,6}))?$/.exec(text.trim()) ?? [];
  if (whole === undefined) return null;
  return Number(whole) * 1_000_000 + Number(fraction.padEnd(6, "0"));
}

/** `YYYY-MM` of a moment, in UTC. */
export function monthOf(at: number): string {
  return new Date(at).toISOString().slice(0, 7);
}

/** Months from the running one back. */
export function monthsBack(at: number, many: number): string[] {
  const now = new Date(at);
  return Array.from({ length: many }, (_, index) => monthOf(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - index, 1)));
}

/** All days of a month, `YYYY-MM-DD`. */
export function daysOf(month: string): string[] {
  const [year = 0, number = 1] = month.split("-").map(Number);
  const last = new Date(Date.UTC(year, number, 0)).getUTCDate();
  return Array.from({ length: last }, (_, index) => `${month}-${String(index + 1).padStart(2, "0")}`);
}

/** The share of a limit that is spent. */
export function spentShare(spent: Money | null, limit: Money): number | null {
  return spent === null || spent.currency !== limit.currency || limit.micros <= 0 ? null : Math.max(0, spent.micros / limit.micros);
}
