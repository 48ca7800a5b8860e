import { expect, it } from "vitest";
import { closesCycle, cycleOf, judge } from "./judge";
import { DIAMOND, drawn, stage } from "./fixture";

const KNOWN = new Map([["f", { current: 2, workflow: false }], ["w", { current: 1, workflow: true }]]);
const texts = (...args: Parameters<typeof judge>) => judge(...args).map((mistake) => mistake.text);

it("finds nothing wrong with a diamond", () => {
  expect(judge(DIAMOND, KNOWN)).toEqual([]);
  expect(judge({ ...DIAMOND, entry: "in", timeout: "1h" }, KNOWN)).toEqual([]);
});

it("asks for a stage", () => {
  expect(texts(drawn())).toEqual(["The workflow has no stage; give it at least one."]);
});

it("names each stage of a cycle, and none that only follows it", () => {
  const draft = drawn(stage("in"), stage("a", ["in", "c"]), stage("b", ["a"]), stage("c", ["b"]), stage("after", ["c"]));
  expect(cycleOf(draft)).toEqual(["a", "b", "c"]);
  expect(judge(draft, KNOWN).map((mistake) => mistake.stage)).toEqual(["a", "b", "c"]);
  expect(cycleOf(drawn(stage("self", ["self"])))).toEqual(["self"]);
});

it("tells each of several entries, and what the entry does not reach", () => {
  expect(judge(drawn(stage("a"), stage("b"), stage("c", ["a"])), KNOWN).map((mistake) => mistake.stage)).toEqual(["a", "b"]);
  const draft = { ...drawn(stage("a"), stage("b"), stage("c", ["b"])), entry: "a" };
  expect(texts(draft, KNOWN)).toEqual(["Stage b cannot be reached from the entry a: it needs nothing.", "Stage c cannot be reached from the entry a."]);
  expect(texts({ ...DIAMOND, entry: "join" }, KNOWN)).toContain("Stage join is the entry and cannot need others.");
  expect(texts({ ...DIAMOND, entry: "no" }, KNOWN)).toContain("There is no stage no, which is named as the entry.");
});

it("knows functions, workflows and versions", () => {
  expect(texts(drawn(stage("a", [], { function: "gone" })), KNOWN)).toEqual(["Stage a: there is no function gone."]);
  expect(texts(drawn(stage("a", [], { function: "w" })), KNOWN)).toEqual(["Stage a: w is a workflow, and a stage runs a function."]);
  expect(texts(drawn(stage("a", [], { version: "3" })), KNOWN)).toEqual(["Stage a: function f has no version 3."]);
  expect(judge(drawn(stage("a", [], { function: "gone" })))).toEqual([]);
});

it("checks rules of stages", () => {
  const wrong = (more: Parameters<typeof stage>[2]) => texts(drawn(stage("in"), stage("a", ["in"], more)), KNOWN);
  expect(wrong({ timeout: "2h" })).toEqual(["Stage a: timeout is 2h; from 1ms to 1h is possible."]);
  expect(wrong({ timeout: "soon" })[0]).toContain('timeout is "soon"');
  expect(wrong({ retries: { count: 11 } })).toEqual(["Stage a: retries are 11; 0 to 10 are possible."]);
  expect(wrong({ retries: { count: 1, backoff: "2m" } })).toEqual(["Stage a: pause between retries is 2m; from 0ms to 1m is possible."]);
  expect(wrong({ path: "x y" })[0]).toContain("path must begin with /");
  expect(wrong({ path: "/a#b" })[0]).toContain("path must begin with /");
  expect(wrong({ path: "/?w=160&a=~" })).toEqual([]);
  expect(wrong({ needs: [{ stage: "in" }, { stage: "in" }] })).toEqual(["Stage a: it needs in twice."]);
  expect(wrong({ needs: [{ stage: "in", size: "2GiB" }] })).toEqual(["Stage a: the output of in is said to be 2GiB; 1GiB at most."]);
  expect(wrong({ needs: [{ stage: "in" }, { stage: "nobody" }] })).toEqual(["Stage a: it needs stage nobody, which does not exist."]);
  expect(texts(drawn(stage("in", [], { when: "always" })), KNOWN)[0]).toContain("it runs always");
  expect(texts(drawn(stage("In"), ), KNOWN)[0]).toContain("lower-case");
});

it("knows which edge closes a cycle", () => {
  expect(closesCycle(DIAMOND, "join", "in")).toBe(true);
  expect(closesCycle(DIAMOND, "in", "join")).toBe(false);
  expect(closesCycle(DIAMOND, "in", "in")).toBe(true);
});
