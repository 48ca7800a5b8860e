import { expect, it } from "vitest";
import { sinceOf } from "./since";

it("begins a span of time at a full minute", () => {
  expect(sinceOf("1h", 7_230_000)).toBe(3_600_000);
  expect(sinceOf("", 7_230_000)).toBeUndefined();
  expect(sinceOf("a while", 7_230_000)).toBeUndefined();
});
