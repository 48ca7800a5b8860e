import { expect, it } from "vitest";
import { envChange, envProblem, rebased, rowsOf, standing, type Shown } from "./env";

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

const of = (version: number, env: Record<string, string>): Shown => ({ version, tag: `"${version}"`, env });

it("keeps what was typed when another version comes", () => {
  const base = of(1, { A: "1", B: "2" });
  const theirs = of(2, { A: "1", B: "3" });
  const typed = [{ name: "A", value: "mine" }, { name: "B", value: "2" }];
  // The change is still the one that was made, and the controller refuses it by the tag.
  expect(standing(base, theirs, typed)).toEqual({ change: { set: { A: "mine" }, unset: [] }, size: 1, behind: true, load: false, tag: '"1"' });
  // An empty row, and a name that is there twice, were typed too.
  expect(standing(base, theirs, [...rowsOf(base.env), { name: "", value: "" }])).toMatchObject({ behind: true, load: false });
  expect(standing(base, theirs, [...rowsOf(base.env), { name: "B", value: "2" }])).toMatchObject({ size: 0, behind: true, load: false });
});

it("follows the current version while nothing is typed", () => {
  const base = of(1, { A: "1" });
  expect(standing(base, base, rowsOf(base.env))).toMatchObject({ size: 0, behind: false, load: false, tag: '"1"' });
  const theirs = of(2, { A: "2" });
  expect(standing(base, theirs, rowsOf(base.env))).toMatchObject({ behind: false, load: true });
  // Loaded, what was typed before is no change any more.
  expect(standing(theirs, theirs, rowsOf(theirs.env))).toMatchObject({ size: 0, behind: false, load: false, tag: '"2"' });
  // Rolled back and forth again: the same version under another tag.
  expect(standing(base, { ...base, tag: '"1b"' }, [{ name: "A", value: "mine" }])).toMatchObject({ size: 1, behind: false, tag: '"1b"' });
});

it("does not go back to what it has just changed", () => {
  const before = of(1, { A: "1" });
  const base = { ...of(2, { A: "mine" }), over: before.tag };
  expect(standing(base, before, rowsOf(base.env))).toMatchObject({ size: 0, behind: false, load: false, tag: '"2"' });
  // What was typed while it was on its way is a change of the new version.
  expect(standing(base, before, [{ name: "A", value: "more" }])).toMatchObject({ size: 1, behind: false, tag: '"2"' });
  expect(standing(base, of(2, { A: "mine" }), rowsOf(base.env))).toMatchObject({ behind: false, load: false, tag: '"2"' });
  expect(standing(base, of(3, { A: "theirs" }), [{ name: "A", value: "more" }])).toMatchObject({ behind: true, tag: '"2"' });
});

it("keeps changes on top of another version, and takes none of its own away", () => {
  const before = { A: "1", B: "2", C: "3", D: "4" };
  const after = { A: "1", B: "x", D: "y", E: "5", F: "theirs" };
  // A edited, D removed, F and an empty row added; B, C and E are somebody else's.
  const rows = [{ name: "A", value: "mine" }, { name: "B", value: "2" }, { name: "C", value: "3" }, { name: "F", value: "mine" }, { name: "", value: "" }];
  const kept = [{ name: "A", value: "mine" }, { name: "B", value: "x" }, { name: "F", value: "mine" }, { name: "", value: "" }, { name: "E", value: "5" }];
  expect(rebased(rows, before, after)).toEqual(kept);
  expect(envChange(after, kept.filter(({ name }) => name !== ""))).toEqual({ set: { A: "mine", F: "mine" }, unset: ["D"] });
  expect(rebased([], undefined, { A: "1" })).toEqual([{ name: "A", value: "1" }]);
});
