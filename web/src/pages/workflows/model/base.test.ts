import { expect, it } from "vitest";
import { standing, type Deployed } from "./base";
import type { Draft } from "./draft";

const drawing = (name: string, version = "current"): Draft => ({ stages: [{ name, function: "hello", version, needs: [], when: "success" }] });
const of = (version: number, draft: Draft): Deployed => ({ version, tag: `"${version}"`, draft });

it("keeps what was drawn while the deploy was under way", () => {
  // Sent was `a`, drawn since then `b`; the answer has looked the versions up.
  const answer = of(2, drawing("a", "7"));
  expect(standing({ ...answer, draft: drawing("a") }, answer, drawing("b"), false)).toEqual({ drawn: true, behind: false, load: false, tag: '"2"' });
  expect(standing({ ...answer, draft: drawing("a") }, answer, drawing("a"), false)).toMatchObject({ drawn: false, load: true });
  expect(standing(answer, answer, answer.draft, false).load).toBe(false);
});

it("does not go back to what it has just deployed over", () => {
  const before = of(1, drawing("z"));
  const base = { ...of(2, drawing("a")), over: before.tag };
  expect(standing(base, before, drawing("a"), false)).toEqual({ drawn: false, behind: false, load: false, tag: '"2"' });
  expect(standing(base, before, drawing("b"), false)).toMatchObject({ drawn: true, behind: false, tag: '"2"' });
  expect(standing(base, of(2, drawing("a", "7")), drawing("a"), false)).toMatchObject({ behind: false, load: true });
  expect(standing(base, of(3, drawing("c")), drawing("b"), false)).toMatchObject({ behind: true, tag: '"2"' });
});

it("deploys over nothing that it was not drawn for", () => {
  const base = of(2, drawing("a"));
  const theirs = of(3, drawing("c"));
  expect(standing(base, theirs, drawing("b"), false)).toEqual({ drawn: true, behind: true, load: false, tag: '"2"' });
  expect(standing(base, theirs, base.draft, false).load).toBe(true);
  // What was typed and cannot be read yet is no drawing, and would be lost all the same.
  expect(standing(base, theirs, base.draft, true).load).toBe(false);
  // Rolled back and forth again: the same version under another tag.
  expect(standing(base, { ...base, tag: '"2b"' }, drawing("b"), false)).toMatchObject({ behind: false, tag: '"2b"' });
});

it("takes a new workflow for what it is", () => {
  const nothing: Deployed = { version: undefined, tag: null, draft: { stages: [] } };
  expect(standing(nothing, nothing, drawing("a"), false)).toEqual({ drawn: true, behind: false, load: false, tag: null });
  expect(standing(of(1, drawing("a")), nothing, drawing("a"), false)).toMatchObject({ drawn: false, load: false });
});
