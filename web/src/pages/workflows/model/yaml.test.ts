import { expect, it } from "vitest";
import { apply, declaration } from "./draft";
import { DIAMOND, drawn, stage } from "./fixture";
import { merge, read, write } from "./yaml";

const FILE = `# A picture in.
timeout: 60s
stages:
  - name: in   # the entry
    function: image
  # Small.
  - name: resize
    function: image
    needs: [ { stage: in, size: 400KiB } ]
    retries: { count: 2, backoff: 100ms }
`;

function draftOf(text: string) {
  const result = read(text);
  if (!("draft" in result)) throw new Error(result.faults.map((fault) => fault.text).join());
  return result.draft;
}

it("writes what it reads", () => {
  expect(draftOf(write(DIAMOND))).toEqual(DIAMOND);
  const rich = drawn(stage("in"), stage("a", ["in"], { version: "3", path: "/?w=1", timeout: "2s", retries: { count: 2 }, when: "failure", needs: [{ stage: "in", size: "1MiB" }] }));
  expect(declaration(draftOf(write(rich)))).toEqual(declaration(rich));
});

it("changes only the lines that a change is about", () => {
  const resize = stage("resize", [], { function: "image", path: "/?w=160", needs: [{ stage: "in", size: "400KiB" }], retries: { count: 2, backoff: "100ms" } });
  const next = apply(draftOf(FILE), { kind: "set", name: "resize", stage: resize });
  const text = merge(FILE, next);
  expect(text).toContain("# A picture in.");
  expect(text).toContain("# Small.");
  expect(text).toContain("name: in # the entry");
  expect(text).toContain("path: /?w=160");
  expect(draftOf(text)).toEqual(next);
});

it("keeps comments through a rename, a removal and an addition", () => {
  const renamed = apply(draftOf(FILE), { kind: "set", name: "in", stage: stage("start", [], { function: "image" }) });
  const text = merge(FILE, renamed);
  expect(text).toContain("name: start");
  expect(text).toContain("# the entry");
  expect(draftOf(text)).toEqual(renamed);
  const added = apply(renamed, { kind: "add", stage: stage("join", ["resize"]) });
  expect(draftOf(merge(text, added))).toEqual(added);
  const removed = apply(added, { kind: "remove", names: ["resize"] });
  expect(draftOf(merge(text, removed))).toEqual(removed);
});

it("begins a list of stages on lines of their own", () => {
  const text = merge(write(drawn()), drawn(stage("in"), stage("out", ["in"])));
  expect(text).toBe("stages:\n  - name: in\n    function: f\n  - name: out\n    function: f\n    needs: [ in ]\n");
});

it("leaves a file as it is when nothing changed", () => {
  expect(merge(FILE, draftOf(FILE))).toBe(FILE);
});

it("tells the line of what it cannot read", () => {
  const faults = (text: string) => {
    const result = read(text);
    return "faults" in result ? result.faults : [];
  };
  expect(faults("stages:\n  - name: a\n    functio: f\n")).toEqual([{ line: 3, text: "A stage has no key functio; there are name, function, version, needs, path, timeout, retries, when." }]);
  expect(faults("stages:\n  - name: a\n    function: f\n    when: never\n")).toEqual([{ line: 4, text: "when is success, failure or always." }]);
  expect(faults("stages: [\n")[0]?.line).toBeGreaterThan(0);
  expect(faults("- a\n")[0]?.text).toContain("A workflow is a map");
});

it("reads JSON, and an empty file as a draft without stages", () => {
  expect(draftOf('{"stages":[{"name":"a","function":"f"}]}').stages[0]?.name).toBe("a");
  expect(draftOf("").stages).toEqual([]);
});
