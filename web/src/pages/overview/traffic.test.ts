import { expect, it } from "vitest";
import { along, aside, bow, loadOf, sides, spread, unplaced } from "./traffic";

it("knows how busy a cluster is", () => {
  expect(loadOf({ busy: 1, slots: 4 })).toBe(0.25);
  expect(loadOf({ busy: 9, slots: 4 })).toBe(1);
  expect(loadOf({ busy: 0, slots: 0 })).toBe(0);
});

it("lays no marker on another one", () => {
  const markers = [["a", 10, 10], ["b", 10, 10], ["c", 14, 12], ["d", 300, 10]].map(([id, x, y]) => ({ id: String(id), at: [Number(x), Number(y)] as const }));
  const places = spread(markers, 20);
  expect(places.get("d")).toEqual([300, 10]);
  expect(places.get("a")).toEqual([10, 10]);
  const all = [...places.values()];
  all.forEach(([x, y], index) => all.slice(index + 1).forEach(([x2, y2]) => expect(Math.hypot(x - x2, y - y2)).toBeGreaterThan(19.99)));
  expect(spread([...markers].reverse(), 20)).toEqual(places);
});

it("bends ways upwards, also short ones, and never above the map", () => {
  expect(bow([100, 100], [200, 100])).toBe("M100.0 100.0Q150.0 62.0 200.0 100.0");
  expect(bow([100, 10], [900, 10])).toContain("Q500.0 4.0");
  expect(along([100, 100], [200, 100])[0]).toEqual([150, 81]);
});

it("moves clients out from below the sign of their cluster", () => {
  expect(aside([100, 100], [150, 100], 30)).toEqual([100, 100]);
  expect(aside([160, 100], [150, 100], 30)).toEqual([180, 100]);
  const [x, y] = aside([150, 100], [150, 100], 30);
  expect(Math.hypot(x - 150, y - 100)).toBeCloseTo(30);
});

it("puts names where they cover least", () => {
  const markers = [{ id: "us-east", at: [220, 120] as const }, { id: "eu-west", at: [300, 120] as const }, { id: "far-east", at: [930, 200] as const }];
  expect([...sides(markers, [], 1, 960)]).toEqual(["us-east", "far-east"]);
  expect([...sides([{ id: "a", at: [100, 100] }], [[120, 104]], 1, 960)]).toEqual(["a"]);
});

it("counts the demand of clients without a place", () => {
  const flow = { cluster: "a", prefixes: 1, example: "192.0.2.0/24", calls_per_second: 1 };
  expect(unplaced([{ ...flow, share: 0.25 }, { ...flow, share: 0.75, location: { lat: 1, lon: 2 } }])).toBe(0.25);
});
