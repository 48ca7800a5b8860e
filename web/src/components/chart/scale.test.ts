import { expect, it } from "vitest";
import { filled, lone, nearest, path, ticks, timeTicks } from "./scale";

it("steps are round and reach the greatest value", () => {
  expect(ticks(9)).toEqual([0, 2.5, 5, 7.5, 10]);
  expect(ticks(100)).toEqual([0, 25, 50, 75, 100]);
  expect(ticks(0.03)).toEqual([0, 0.01, 0.02, 0.03]);
  expect(ticks(0)).toEqual([0, 1]);
  expect([ticks(7, 3, true), ticks(1, 3, true), ticks(70, 3, true)]).toEqual([[0, 5, 10], [0, 1], [0, 25, 50, 75]]);
  expect(ticks(Number.NaN)).toEqual([0, 1]);
});

it("times are round in the zone", () => {
  const minute = 60_000;
  expect(timeTicks(30_000, 5.5 * minute, 6)).toEqual([1, 2, 3, 4, 5].map((at) => at * minute));
  const half = 30 * minute;
  expect(timeTicks(0, 3 * 3_600_000, 4, half)).toEqual([half, half + 3_600_000, half + 7_200_000]);
});

it("steps without a point are filled", () => {
  const points = [{ at: 10, value: 1 }, { at: 30, value: 3 }];
  expect(filled(points, 0, 40, 10, 0).map((point) => point.value)).toEqual([0, 1, 0, 3]);
  expect(filled(points, 10, 40, 10, null).map((point) => point.value)).toEqual([1, null, 3]);
});

it("lines break where nothing is known", () => {
  const same = (value: number) => value;
  const points = [{ at: 0, value: 1 }, { at: 1, value: 2 }, { at: 2, value: null }, { at: 3, value: 4 }];
  expect(path(points, same, same)).toBe("M0.0 1.0L1.0 2.0M3.0 4.0h0.01");
});

it("finds the nearest point", () => {
  const points = [0, 10, 20].map((at) => ({ at, value: 0 }));
  expect([-5, 4, 6, 14, 99].map((at) => nearest(points, at))).toEqual([0, 0, 1, 1, 2]);
});

it("finds points that no line shows", () => {
  const points = [1, null, 2, 3, null, null, 4].map((value, at) => ({ at, value }));
  expect(lone(points)).toEqual([{ at: 0, value: 1 }, { at: 6, value: 4 }]);
});
