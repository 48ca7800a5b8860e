import { expect, it } from "vitest";
import type { Version } from "../queries";
import { changes, comparable } from "./diff";
import { between, sharesOf, wanted } from "./traffic";

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

it("tells which form of a function changed", () => {
  const version = (digest: string): Version => ({
    version: 1, digest: "sha256:a", size: 1, created_at: 0, labels: {}, manifest: { memory: "16MiB" },
    forms: [{ manifest: { name: "gpu", runtime: "docker" }, digest, size: 2 }],
  });
  expect(changes(comparable(version("sha256:b")), comparable(version("sha256:c")))).toEqual([
    { field: "forms.gpu.digest", before: "sha256:b", after: "sha256:c" },
  ]);
  const single = { ...version("sha256:b"), forms: [] };
  expect(changes(comparable(single), comparable(version("sha256:b"))).map((change) => change.field)).toEqual(["forms.gpu.digest", "forms.gpu.name", "forms.gpu.runtime"]);
});

it("splits between two versions", () => {
  expect(between(1, 2, 30)).toEqual([{ version: 1, weight: 70 }, { version: 2, weight: 30 }]);
  expect(between(1, 2, 140)).toEqual([{ version: 1, weight: 0 }, { version: 2, weight: 100 }]);
});

it("leaves weights as they are until a share is chosen", () => {
  const canary = [{ version: 2, weight: 999 }, { version: 1, weight: 1 }];
  expect(wanted(canary, 2, 1, null)).toEqual(canary);
  expect(wanted(canary, 2, 1, 0)).toEqual([{ version: 2, weight: 100 }, { version: 1, weight: 0 }]);
  expect(wanted([], 2, 1, null)).toEqual([{ version: 2, weight: 100 }, { version: 1, weight: 0 }]);
});

it("shows weights as shares", () => {
  expect([...sharesOf({ split: [{ version: 1, weight: 2 }, { version: 2, weight: 1 }] })]).toEqual([[1, 66.7], [2, 33.3]]);
  expect(sharesOf({}).size).toBe(0);
  expect(sharesOf(undefined).size).toBe(0);
});
