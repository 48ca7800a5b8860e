/** Numbers with their units. All of these are pure, and written for reading: a few significant digits, never a bare number. */
import type { Schemas } from "@/api/client";

const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** A count: `1,234`. */
export function count(value: number): string {
  return plain.format(value);
}

/** A count in little room: `1.2 k`, `3.4 M`. */
export function compact(value: number): string {
  const size = Math.abs(value);
  if (size < 1000) return Number.isInteger(value) ? String(value) : significant(value);
  for (const [unit, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]] as const) {
    if (size >= unit * 0.9995) return `${significant(value / unit)} ${name}`;
  }
  return plain.format(value);
}

/** Three significant digits, without trailing zeros behind the point. */
export function significant(value: number, digits = 3): string {
  if (value === 0) return "0";
  const whole = Math.floor(Math.log10(Math.abs(value))) + 1;
  const behind = Math.min(6, Math.max(0, digits - whole));
  return value.toFixed(behind).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
}

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] as const;

/** Bytes with a binary unit: `1.5 MiB`. */
export function bytes(value: number): string {
  let [rest, unit] = [value, 0];
  while (Math.abs(rest) >= 1023.5 && unit < BINARY.length - 1) {
    rest /= 1024;
    unit += 1;
  }
  return `${significant(rest)} ${BINARY[unit] ?? "B"}`;
}

/** Mebibytes with a fitting unit. */
export function mebibytes(value: number): string {
  return bytes(value * 1024 * 1024);
}

/** Thousandths of a processor: `1.5 CPU`. */
export function milliCpu(value: number): string {
  return `${significant(value / 1000)} CPU`;
}

/** A share between 0 and 1 as a percentage. What is not nothing is never shown as nothing. */
export function percent(share: number): string {
  const value = share * 100;
  if (value > 0 && value < 0.01) return "< 0.01 %";
  if (value > 99.99 && value < 100) return "> 99.99 %";
  return `${value < 1 ? significant(Number(value.toFixed(2))) : significant(value)} %`;
}

/** Something that happens so many times a second. Below one, two digits say all that a few calls in a minute tell. */
export function perSecond(rate: number): string {
  if (rate > 0 && rate < 0.01) return "< 0.01 /s";
  if (rate < 1) return `${significant(rate, rate < 0.1 ? 1 : 2)} /s`;
  return `${compact(rate < 1000 ? Number(significant(rate)) : rate)} /s`;
}

/** A span of time in milliseconds: `820 µs`, `12.5 ms`, `3.2 s`, `4 min 10 s`, `2 h 5 min`, `3 d 4 h`. */
export function duration(milliseconds: number | null | undefined): string {
  if (milliseconds === null || milliseconds === undefined) return "–";
  const ms = Math.abs(milliseconds);
  const sign = milliseconds < 0 ? "-" : "";
  if (ms === 0) return "0 ms";
  if (ms < 1) return `${sign}${significant(ms * 1000)} µs`;
  if (ms < 1000) return `${sign}${significant(ms)} ms`;
  if (ms < 60_000) return `${sign}${significant(ms / 1000)} s`;
  const seconds = Math.round(ms / 1000);
  const parts: [number, string][] = [
    [Math.floor(seconds / 86_400), "d"],
    [Math.floor((seconds % 86_400) / 3600), "h"],
    [Math.floor((seconds % 3600) / 60), "min"],
    [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([amount]) => amount > 0);
  const shown = parts.slice(first, first + 2).filter(([amount]) => amount > 0);
  return sign + shown.map(([amount, unit]) => `${amount} ${unit}`).join(" ");
}

/** A span between two moments that are known to the millisecond: what is shorter is not nothing. */
export function elapsed(milliseconds: number): string {
  return milliseconds >= 0 && milliseconds < 1 ? "< 1 ms" : duration(milliseconds);
}

export type Money = Schemas["Money"];

/**
 * An amount in whole micro-units, exactly: two digits behind the point, or as many as it takes (up to six) when cents would hide something.
 * `exact` always shows all that are not zero.
 */
export function money(amount: Money, exact = false): string {
  const micros = BigInt(Math.trunc(amount.micros));
  const size = micros < 0n ? -micros : micros;
  const sign = micros < 0n ? "-" : "";
  const whole = size / 1_000_000n;
  const fraction = (size % 1_000_000n).toString().padStart(6, "0");
  const needed = fraction.replace(/0+$/, "");
  let shown = fraction.slice(0, 2);
  if (needed.length > 2 && (exact || size < 1_000_000n)) shown = needed;
  else if (needed.length > 2) {
    const cents = (size + 5_000n) / 10_000n;
    return `${sign}${grouped(cents / 100n)}.${(cents % 100n).toString().padStart(2, "0")} ${amount.currency}`;
  }
  return `${sign}${grouped(whole)}.${shown} ${amount.currency}`;
}

function grouped(value: bigint): string {
  return value.toString().replace(/\B(?=(\d{3})+$)/g, ",");
}

/** The sum of amounts; none, when they are in several currencies or there are none. */
export function sum(amounts: readonly Money[]): Money | null {
  const [first, ...rest] = amounts;
  if (first === undefined) return null;
  let micros = first.micros;
  for (const amount of rest) {
    if (amount.currency !== first.currency) return null;
    micros += amount.micros;
  }
  return { micros, currency: first.currency };
}

/** The first characters of a digest, enough to tell it from others by eye. */
export function shortDigest(digest: string): string {
  const [kind, hex] = digest.includes(":") ? digest.split(":", 2) : ["", digest];
  return kind === "sha256" || kind === "" ? (hex ?? digest).slice(0, 12) : digest.slice(0, 19);
}

/** `1 node`, `3 nodes`. */
export function plural(amount: number, one: string, many = `${one}s`): string {
  return `${count(amount)} ${amount === 1 ? one : many}`;
}

/** Sizes and times as manifests write them, with spaces: `16MiB` is `16 MiB`, `1m30s` is `1 min 30 s`. */
export function withUnits(text: string): string {
  return /^(?:[\d.]+[A-Za-zµ]+)+$/.test(text) ? text.replace(/([\d.]+)([A-Za-zµ]+)/g, (_whole, amount: string, unit: string) => `${amount} ${unit === "m" ? "min" : unit} `).trim() : text;
}
