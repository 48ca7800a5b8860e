import { expect, it } from "vitest";
import { logOpen } from "./queries";

it("asks for the log of a job until one answer was asked for after its end", () => {
  expect(logOpen(true, 0, { data: { asked: 9000 }, error: new Error("no answer") })).toBe(true);
  // The page has seen the end at 9000; the last lines may be on their way to the log for a second.
  expect(logOpen(false, 9000, { data: undefined, error: null })).toBe(true);
  expect(logOpen(false, 9000, { data: { asked: 8000 }, error: null })).toBe(true);
  expect(logOpen(false, 9000, { data: { asked: 9500 }, error: null })).toBe(true);
  expect(logOpen(false, 9000, { data: { asked: 10_000 }, error: null })).toBe(false);
  expect(logOpen(false, 9000, { data: { asked: 8000 }, error: new Error("it is kept no more") })).toBe(false);
});
