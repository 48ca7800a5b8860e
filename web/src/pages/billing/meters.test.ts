import { expect, it } from "vitest";
import { daysOf, inUnits, monthOf, monthsBack, parseMoney, quantityText, spentShare } from "./meters";

it("turns smallest units into those that prices are for", () => {
  expect(inUnits("invocations", "3000000")).toBe(3_000_000);
  expect(inUnits("gib_seconds", String(1024n * 1_000_000n * 375n))).toBe(375);
  expect(inUnits("vcpu_seconds", "1500000")).toBe(1.5);
  expect(inUnits("egress_gib", String(2n ** 29n))).toBe(0.5);
  expect(inUnits("storage_gib_hours", "3985122740667")).toBeCloseTo(0.001031, 5);
  expect(inUnits("storage_gib_hours", String(2n ** 30n * 3_600_000n * 9_000_000_000n))).toBe(9_000_000_000);
});

it("writes quantities with their units", () => {
  expect(quantityText("invocations", "1")).toBe("1 call");
  expect(quantityText("invocations", "-1200000")).toBe("-1.2 M calls");
  expect(quantityText("vcpu_seconds", "7349")).toBe("7.35 ms");
  expect(quantityText("egress_gib", "287")).toBe("287 B");
  expect(quantityText("gib_seconds", "100608")).toBe("103 KiB·s");
  expect(quantityText("gib_seconds", String(1024n * 1_000_000n * 375n))).toBe("375 GiB·s");
  expect(quantityText("storage_gib_hours", "0")).toBe("0 B·h");
});

it("reads amounts exactly", () => {
  expect(parseMoney("99.50")).toBe(99_500_000);
  expect(parseMoney("0.000001")).toBe(1);
  expect(parseMoney("100")).toBe(100_000_000);
  for (const bad of ["", "1.", "-1", "1,5", "0.0000001", "1e3"]) expect(parseMoney(bad)).toBeNull();
});

it("counts months and days in UTC", () => {
  const at = Date.UTC(2026, 0, 31, 23, 59);
  expect(monthOf(at)).toBe("2026-01");
  expect(monthsBack(at, 3)).toEqual(["2026-01", "2025-12", "2025-11"]);
  expect(daysOf("2026-02")).toHaveLength(28);
  expect(daysOf("2024-02").at(-1)).toBe("2024-02-29");
});

it("compares only what is in one currency", () => {
  expect(spentShare({ micros: 50, currency: "EUR" }, { micros: 200, currency: "EUR" })).toBe(0.25);
  expect(spentShare({ micros: 50, currency: "USD" }, { micros: 200, currency: "EUR" })).toBeNull();
  expect(spentShare({ micros: 50, currency: "EUR" }, { micros: 0, currency: "EUR" })).toBeNull();
});
