import { expect, it } from "vitest";
import { compare, matches } from "./sort";

it("orders texts with numbers in them as people do, and what is missing last", () => {
  expect(["node-10", null, "node-2", undefined, "Node-1"].sort(compare)).toEqual(["Node-1", "node-2", "node-10", null, undefined]);
  expect([3, 1, 2].sort(compare)).toEqual([1, 2, 3]);
});

it("finds rows that have every word", () => {
  expect(matches("hello eu", "hello", "eu-west")).toBe(true);
  expect(matches("hello us", "hello", "eu-west")).toBe(false);
  expect(matches("", "anything")).toBe(true);
});
