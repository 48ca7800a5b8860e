import { expect, it } from "vitest";
import { changes } from "./diff";
import { between, sharesOf } from "./traffic";

it("tells what changed between manifests", () => {
  const before = { memory: "16MiB", env: { A: "1", B: "2" }, secrets: ["KEY"], gpu: null };
  const after = { memory: "32MiB", env: { B: "2", C: "3" }, secrets: [], idempotent: true };
  expect(changes(before, after)).toEqual([
    { field: "env.A", before: "1", after: null },
    { field: "env.C", before: null, after: "3" },
    { field: "idempotent", before: null, after: "true" },
    { field: "memory", before: "16MiB", after: "32MiB" },
    { field: "secrets", before: "KEY", after: null },
  ]);
  expect(changes(before, before)).toEqual([]);
});

it("splits between two versions", () => {
  expect(between(1, 2, 30)).toEqual([{ version: 1, weight: 70 }, { version: 2, weight: 30 }]);
  expect(between(1, 2, 140)).toEqual([{ version: 1, weight: 0 }, { version: 2, weight: 100 }]);
});

it("shows weights as shares", () => {
  expect([...sharesOf({ split: [{ version: 1, weight: 2 }, { version: 2, weight: 1 }] })]).toEqual([[1, 66.7], [2, 33.3]]);
  expect(sharesOf({}).size).toBe(0);
  expect(sharesOf(undefined).size).toBe(0);
});
