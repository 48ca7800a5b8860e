import { expect, it } from "vitest";
import { paint } from "./paint";

it("loses no character", () => {
  const text = "# a\nstages: # b\n  - name: in\n    path: /?w=1#no\n    needs: [ { stage: a, size: 64KiB } ]\n    x: \"q: 1\"\n";
  expect(paint(text).map((part) => part.text).join("")).toBe(text);
});

it("knows keys, comments and values", () => {
  const kinds = paint("timeout: 30s # all\n").map((part) => [part.kind, part.text]);
  expect(kinds).toContainEqual(["key", "timeout"]);
  expect(kinds).toContainEqual(["value", "30s"]);
  expect(kinds).toContainEqual(["comment", "# all"]);
});

it("takes a digit in a name for a part of the name", () => {
  expect(paint("name: hello-2\n").filter((part) => part.kind === "value")).toEqual([]);
});
