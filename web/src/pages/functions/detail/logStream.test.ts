import { expect, it } from "vitest";
import { LineReader, LogBuffer, shown, type LogLine } from "./logStream";

const line = (at: number, text: string, more: Partial<LogLine> = {}): LogLine => ({
  at, text, app: "hello", function: "hello", version: 1, node: "eu-west-1", instance: "ins_1", request: "r1", stream: "stdout", ...more,
});

it("puts lines together that arrive in pieces", () => {
  const reader = new LineReader();
  const text = `${JSON.stringify(line(1, "a"))}\nno json\n${JSON.stringify(line(2, "ü"))}\n`;
  const got = [text.slice(0, 20), text.slice(20, 150), text.slice(150)].flatMap((piece) => reader.push(piece));
  expect(got.map((each) => each.text)).toEqual(["a", "ü"]);
});

it("keeps the newest lines and counts the others", () => {
  const buffer = new LogBuffer(3);
  buffer.add([1, 2, 3, 4].map((at) => line(at, String(at))));
  expect(buffer.all.map((each) => each.text)).toEqual(["2", "3", "4"]);
  expect(buffer.dropped).toBe(1);
});

it("does not repeat what a stream begun anew sends again", () => {
  const buffer = new LogBuffer(10);
  buffer.add([line(1, "a"), line(2, "b")]);
  buffer.add([line(2, "b"), line(2, "c")], true);
  expect(buffer.all.map((each) => each.text)).toEqual(["a", "b", "c"]);
  buffer.add([line(2, "c")]);
  expect(buffer.all).toHaveLength(4);
});

it("finds lines by text, request, stream and node", () => {
  const filter = { text: "", stream: "", node: "" };
  const one = line(1, "Answered /", { stream: "stderr" });
  expect(shown(one, { ...filter, text: "answered" })).toBe(true);
  expect(shown(one, { ...filter, text: "r1" })).toBe(true);
  expect(shown(one, { ...filter, text: "other" })).toBe(false);
  expect(shown(one, { ...filter, stream: "stdout" })).toBe(false);
  expect(shown(one, { ...filter, node: "eu-west-1", stream: "stderr" })).toBe(true);
});
