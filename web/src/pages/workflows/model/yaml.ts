/** The draft as YAML and back. A change on the canvas changes only the lines it is about: comments and order stay. */
import { Document, isMap, isSeq, LineCounter, parseDocument, type YAMLMap, type YAMLSeq } from "yaml";
import { declaration, same, type Condition, type Draft, type Need, type StageDraft } from "./draft";

export interface Fault {
  /** From 1 up; absent if it is not known. */
  readonly line?: number;
  readonly text: string;
}

export type Read = { readonly draft: Draft } | { readonly faults: readonly Fault[] };

const PRINT = { lineWidth: 0, flowCollectionPadding: true } as const;

/** A draft as a new file. */
export function write(draft: Draft): string {
  const document = new Document(declaration(draft));
  tidy(document);
  return document.toString(PRINT);
}

/** Short things on one line, as people write them. */
function tidy(document: Document): void {
  const stages = document.get("stages");
  if (!isSeq(stages)) return;
  // A list that began empty was written as `[]`.
  stages.flow = false;
  for (const stage of stages.items) {
    if (!isMap(stage)) continue;
    stage.flow = false;
    for (const key of ["needs", "retries"]) {
      const value = stage.get(key);
      if ((isSeq(value) || isMap(value)) && value.commentBefore == null) value.flow = true;
    }
  }
}

/** The file with the draft's content: what did not change is as it was. */
export function merge(text: string, draft: Draft): string {
  const before = read(text);
  if (!("draft" in before)) return write(draft);
  if (same(before.draft, draft)) return text;
  const document = parseDocument(text);
  const stages = document.get("stages");
  if (!isMap(document.contents) || !isSeq(stages)) return write(draft);
  const next = declaration(draft);
  for (const key of ["timeout", "entry"]) setKey(document, document.contents, key, next[key]);
  mergeStages(document, stages, next["stages"] as Record<string, unknown>[]);
  tidy(document);
  return document.toString(PRINT);
}

function setKey(document: Document, map: YAMLMap, key: string, value: unknown): void {
  if (value === undefined) map.delete(key);
  else if (JSON.stringify(plain(map.get(key))) !== JSON.stringify(value)) {
    // A scalar is set into the node that is there, which keeps what is said beside it.
    map.set(key, typeof value === "object" ? document.createNode(value) : value);
  }
}

function plain(value: unknown): unknown {
  return isMap(value) || isSeq(value) ? value.toJSON() : value;
}

function mergeStages(document: Document, sequence: YAMLSeq, stages: readonly Record<string, unknown>[]): void {
  const left = sequence.items.filter((item) => isMap(item));
  const names = new Set(stages.map((stage) => stage["name"]));
  const renamed = left.filter((item) => !names.has(item.get("name")));
  const sameLength = left.length === stages.length;
  sequence.items = stages.map((stage) => {
    // A stage is known again by its name; one that was renamed is the only one that is missing.
    const found = left.find((item) => item.get("name") === stage["name"]) ?? (sameLength && renamed.length === 1 ? renamed[0] : undefined);
    if (found === undefined) return document.createNode(stage);
    for (const key of ["name", "function", "version", "needs", "path", "timeout", "retries", "when"]) setKey(document, found, key, stage[key]);
    return found;
  });
}

const STAGE_KEYS = ["name", "function", "version", "needs", "path", "timeout", "retries", "when"];

/** Reads a file. What is said of its form comes with the line; whether it can run is judged elsewhere. */
export function read(text: string): Read {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false });
  if (document.errors.length > 0) {
    return { faults: document.errors.map((error) => ({ line: lines.linePos(error.pos[0]).line, text: error.message })) };
  }
  const faults: Fault[] = [];
  const reader: Reader = { faults, lineOf: (node) => lineOf(node, lines) };
  const draft = readWhole(document, reader);
  return faults.length > 0 || draft === null ? { faults } : { draft };
}

interface Reader {
  faults: Fault[];
  lineOf: (node: unknown) => number | undefined;
}

function lineOf(node: unknown, lines: LineCounter): number | undefined {
  const range: unknown = typeof node === "object" && node !== null && "range" in node ? node.range : undefined;
  const start: unknown = Array.isArray(range) ? range[0] : undefined;
  return typeof start === "number" ? lines.linePos(start).line : undefined;
}

function complain(reader: Reader, node: unknown, text: string): void {
  const line = reader.lineOf(node);
  reader.faults.push(line === undefined ? { text } : { line, text });
}

function readWhole(document: Document.Parsed, reader: Reader): Draft | null {
  const root: unknown = document.contents;
  if (root === null) return { stages: [] };
  if (!isMap(root)) {
    complain(reader, root, "A workflow is a map with the key stages.");
    return null;
  }
  unknownKeys(root, ["timeout", "entry", "stages"], "A workflow", reader);
  const timeout = textOf(root, "timeout", reader);
  const entry = textOf(root, "entry", reader);
  const stages = root.get("stages");
  if (stages !== undefined && stages !== null && !isSeq(stages)) complain(reader, stages, "stages is a list.");
  return {
    ...(timeout === undefined ? {} : { timeout }),
    ...(entry === undefined ? {} : { entry }),
    stages: isSeq(stages) ? stages.items.map((item) => readStage(item, reader)).filter((stage) => stage !== null) : [],
  };
}

function unknownKeys(map: YAMLMap, known: readonly string[], what: string, reader: Reader): void {
  for (const pair of map.items) {
    const key = String(pair.key);
    if (!known.includes(key)) complain(reader, pair.key, `${what} has no key ${key}; there are ${known.join(", ")}.`);
  }
}

function textOf(map: YAMLMap, key: string, reader: Reader): string | undefined {
  const value = map.get(key);
  if (value === undefined || value === null) return undefined;
  if (typeof value === "string" || typeof value === "number") return String(value);
  complain(reader, map.get(key, true) ?? map, `${key} is a text.`);
  return undefined;
}

function readStage(item: unknown, reader: Reader): StageDraft | null {
  if (!isMap(item)) {
    complain(reader, item, "A stage is a map with name and function.");
    return null;
  }
  unknownKeys(item, STAGE_KEYS, "A stage", reader);
  const [name, fn] = [textOf(item, "name", reader), textOf(item, "function", reader)];
  if (name === undefined) complain(reader, item, "A stage needs a name.");
  const [version, path, timeout] = [textOf(item, "version", reader), textOf(item, "path", reader), textOf(item, "timeout", reader)];
  const retries = readRetries(item, reader);
  return {
    name: name ?? "",
    function: fn ?? "",
    version: version ?? "current",
    needs: readNeeds(item, reader),
    when: readWhen(item, reader),
    ...(path === undefined ? {} : { path }),
    ...(timeout === undefined ? {} : { timeout }),
    ...(retries === undefined ? {} : { retries }),
  };
}

function readNeeds(stage: YAMLMap, reader: Reader): Need[] {
  const needs = stage.get("needs");
  if (needs === undefined || needs === null) return [];
  if (!isSeq(needs)) {
    complain(reader, needs, "needs is a list of stages.");
    return [];
  }
  return needs.items.flatMap((item): Need[] => {
    if (isMap(item)) {
      unknownKeys(item, ["stage", "size"], "A need", reader);
      const [name, size] = [textOf(item, "stage", reader), textOf(item, "size", reader)];
      if (name !== undefined) return [size === undefined ? { stage: name } : { stage: name, size }];
    } else {
      const value: unknown = typeof item === "object" && item !== null && "value" in item ? item.value : item;
      if (typeof value === "string" || typeof value === "number") return [{ stage: String(value) }];
    }
    complain(reader, item, "A need is the name of a stage, or { stage: NAME, size: 64KiB }.");
    return [];
  });
}

function readRetries(stage: YAMLMap, reader: Reader): StageDraft["retries"] | undefined {
  const retries = stage.get("retries");
  if (retries === undefined || retries === null) return undefined;
  const count = isMap(retries) ? retries.get("count") : undefined;
  if (!isMap(retries) || typeof count !== "number") {
    complain(reader, isMap(retries) ? retries : stage.get("retries", true), "retries is { count: 2, backoff: 200ms }.");
    return undefined;
  }
  unknownKeys(retries, ["count", "backoff"], "retries", reader);
  const backoff = textOf(retries, "backoff", reader);
  return backoff === undefined ? { count } : { count, backoff };
}

const CONDITIONS: readonly Condition[] = ["success", "failure", "always"];

function readWhen(stage: YAMLMap, reader: Reader): Condition {
  const value = stage.get("when");
  if (value === undefined || value === null) return "success";
  const found = CONDITIONS.find((condition) => condition === value);
  if (found === undefined) complain(reader, stage.get("when", true), "when is success, failure or always.");
  return found ?? "success";
}
