import { expect, it } from "vitest";
import { readings, recentRate, type Figures } from "./figures";

const point = (at: number, calls: number, errors = 0) => ({ at, calls, errors, cold_starts: 0, p50_ms: 1, p99_ms: 2 });
const figures = (to: number): Figures => ({
  window: "15m", step_ms: 10_000, from: 0, to, more: false,
  series: [{ key: "total", sum: point(0, 150, 1), points: [point(0, 100), point(20_000, 50, 1)] }],
});

it("counts the newest step by the part of it that is over", () => {
  const now = figures(25_000);
  expect(readings(now, now.series[0], "rate").map((each) => each.value)).toEqual([10, 0, 10]);
  const early = figures(21_000);
  expect(readings(early, early.series[0], "rate").map((each) => each.value)).toEqual([10, 0]);
});

it("knows no times where there were no calls", () => {
  const now = figures(30_000);
  expect(readings(now, now.series[0], "p99").map((each) => each.value)).toEqual([2, null, 2]);
  expect(readings(now, now.series[0], "errors").map((each) => each.value)).toEqual([0, 0, 0.02]);
  expect(readings(now, undefined, "rate").map((each) => each.value)).toEqual([0, 0, 0]);
});

it("takes the present rate over some steps", () => {
  const now = figures(30_000);
  expect(recentRate(now, now.series[0])).toBe(5);
  expect(recentRate(now, undefined)).toBe(0);
});
