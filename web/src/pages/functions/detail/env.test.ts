import { expect, it } from "vitest";
import { envChange, envProblem, rowsOf } from "./env";

it("tells what has to be set and taken away", () => {
  const before = { A: "1", B: "2", C: "3" };
  const rows = [{ name: "A", value: "1" }, { name: "B", value: "x" }, { name: "D", value: "4" }];
  expect(envChange(before, rows)).toEqual({ set: { B: "x", D: "4" }, unset: ["C"] });
  expect(envChange(before, rowsOf(before))).toEqual({ set: {}, unset: [] });
  expect(envChange(undefined, [])).toEqual({ set: {}, unset: [] });
});

it("refuses names that cannot be", () => {
  expect(envProblem([{ name: "LEVEL_2", value: "" }])).toBeNull();
  expect(envProblem([{ name: "2A", value: "" }])).toContain("2A");
  expect(envProblem([{ name: "", value: "" }])).not.toBeNull();
  expect(envProblem([{ name: "A", value: "" }, { name: "A", value: "" }])).toContain("twice");
});
