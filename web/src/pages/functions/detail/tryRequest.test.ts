import { expect, it } from "vitest";
import { asCommand, fromBase64, hexdump, parseHeaders, pretty, toBase64 } from "./tryRequest";

it("reads headers as people write them", () => {
  expect(parseHeaders("content-type: text/plain\n\n x-a :b:c ")).toEqual({ headers: [["content-type", "text/plain"], ["x-a", "b:c"]], wrong: null });
  expect(parseHeaders("nothing").wrong).toContain("nothing");
  expect(parseHeaders(": empty").wrong).not.toBeNull();
  expect(parseHeaders("a b: c").wrong).not.toBeNull();
});

it("carries any bytes", () => {
  const bytes = Uint8Array.from({ length: 70_000 }, (_, index) => index % 256);
  expect(fromBase64(toBase64(bytes))).toEqual(bytes);
});

it("indents JSON and nothing else", () => {
  expect(pretty('{"a":1}', "application/json; charset=utf-8")).toBe('{\n  "a": 1\n}');
  expect(pretty('{"a":1', "application/json")).toBe('{"a":1');
  expect(pretty('{"a":1}', "text/plain")).toBe('{"a":1}');
});

it("shows bytes that are no text", () => {
  expect(hexdump(Uint8Array.from([0x89, 0x50, 0x4e, 0x47]))).toBe(`000000  89 50 4e 47${" ".repeat(36)}  .PNG`);
});

it("writes the call for a terminal", () => {
  expect(asCommand("hello", "GET", "/", [], "")).toBe("fdn invoke hello");
  expect(asCommand("hello", "PUT", "/a b", [["x-a", "it's"]], "hi there")).toBe(`fdn invoke hello '/a b' -X PUT -H 'x-a: it'\\''s' -d 'hi there'`);
});
