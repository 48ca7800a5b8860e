import { expect, it } from "vitest";
import { apply, begin, declaration, freeName, ofDefinition, step } from "./draft";
import { DIAMOND, drawn, stage } from "./fixture";

it("renames a stage wherever it is needed", () => {
  const next = apply({ ...DIAMOND, entry: "in" }, { kind: "set", name: "in", stage: stage("start") });
  expect(next.entry).toBe("start");
  expect(next.stages.map((each) => each.needs.map((need) => need.stage))).toEqual([[], ["start"], ["start"], ["left", "right"]]);
});

it("takes what was deployed in the place of what was drawn, with all steps back", () => {
  const sent = step(begin(DIAMOND), { kind: "remove", names: ["left"] });
  const settled = step(sent, { kind: "settle", draft: { ...sent.now, timeout: "30s" } });
  expect(settled.now.timeout).toBe("30s");
  expect(step(settled, { kind: "undo" }).now).toEqual(DIAMOND);
  expect(step(sent, { kind: "load", draft: DIAMOND }).past).toEqual([]);
});

it("removes a stage with its edges, and is undone", () => {
  const removed = step(begin(DIAMOND), { kind: "remove", names: ["left"] });
  expect(removed.now.stages.map((each) => each.name)).toEqual(["in", "right", "join"]);
  expect(removed.now.stages[2]?.needs).toEqual([{ stage: "right" }]);
  const undone = step(removed, { kind: "undo" });
  expect(undone.now).toEqual(DIAMOND);
  expect(step(undone, { kind: "redo" }).now).toEqual(removed.now);
});

it("remembers no step that changes nothing", () => {
  const first = begin(DIAMOND);
  expect(step(first, { kind: "connect", from: "in", to: "left" })).toBe(first);
  expect(step(first, { kind: "undo" })).toBe(first);
});

it("finds a name that is free", () => {
  expect(freeName(drawn(stage("image"), stage("image-2")), "image")).toBe("image-3");
  expect(freeName(DIAMOND, "")).toBe("stage");
});

it("reads a deployed workflow and leaves defaults out of its file", () => {
  const draft = ofDefinition({
    timeout: "1m",
    workflow: { stages: [{ name: "in", function: "image", version: 3 }, { name: "out", function: "sheet", version: 1 }], edges: [{ from: "in", to: "out", size: "64KiB" }] },
    rules: { out: { retries: 2, backoff: "200ms", when: "always", path: "/x" } },
  });
  expect(declaration(draft)).toEqual({
    timeout: "1m",
    stages: [
      { name: "in", function: "image", version: 3 },
      { name: "out", function: "sheet", version: 1, needs: [{ stage: "in", size: "64KiB" }], path: "/x", retries: { count: 2, backoff: "200ms" }, when: "always" },
    ],
  });
});
