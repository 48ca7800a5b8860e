import { expect, it } from "vitest";
import { fromBase64, parseHeaders, toBase64 } from "./body";

it("keeps all bytes", () => {
  const bytes = Uint8Array.from({ length: 70_000 }, (_, index) => index % 256);
  expect(fromBase64(toBase64(bytes))).toEqual(bytes);
});

it("reads headers", () => {
  expect(parseHeaders("Content-Type: text/plain\n\nx-a:b: c ")).toEqual([["content-type", "text/plain"], ["x-a", "b: c"]]);
  expect(parseHeaders("no colon")).toBeNull();
  expect(parseHeaders("")).toEqual([]);
});
