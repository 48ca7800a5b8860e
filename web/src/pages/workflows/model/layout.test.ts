import { expect, it } from "vitest";
import { layers, layout } from "./layout";
import { DIAMOND, drawn, stage } from "./fixture";

it("puts each stage behind the last of its parents", () => {
  const draft = drawn(stage("in"), stage("short", ["in"]), stage("long", ["in"]), stage("longer", ["long"]), stage("out", ["short", "longer"]));
  expect([...layers(draft).values()].sort()).toEqual([0, 1, 1, 2, 3]);
  expect(layers(draft).get("out")).toBe(3);
});

it("gives stages of a cycle a place too", () => {
  const places = layout(drawn(stage("in"), stage("a", ["b", "in"]), stage("b", ["a"])));
  expect(places.size).toBe(3);
  expect(new Set([...places.values()].map((place) => `${place.x}/${place.y}`)).size).toBe(3);
});

it("crosses no edges where it need not", () => {
  const draft = drawn(stage("in"), stage("a", ["in"]), stage("b", ["in"]), stage("of-b", ["b"]), stage("of-a", ["a"]));
  const y = (name: string) => layout(draft).get(name)?.y ?? 0;
  expect(Math.sign(y("a") - y("b"))).toBe(Math.sign(y("of-a") - y("of-b")));
});

it("turns for narrow canvases", () => {
  const places = layout(DIAMOND, true);
  expect(places.get("left")?.y).toBe(places.get("right")?.y);
  expect(places.get("join")?.y ?? 0).toBeGreaterThan(places.get("left")?.y ?? 0);
});

it("lets no two stages overlap", () => {
  const places = [...layout(DIAMOND).values()];
  expect(new Set(places.map((place) => `${place.x}/${place.y}`)).size).toBe(4);
});
