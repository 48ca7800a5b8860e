/**
 * What is wrong with a draft, told as it is drawn: the rules of docs/workflows.md, each mistake with its stage.
 *
 * The network judges again when the workflow is deployed, and its word is the last; what can be known here is known at once.
 */
import { parseBytes, parseSpan } from "./units";
import type { Draft, StageDraft } from "./draft";

export interface Mistake {
  /** The stage it is in; absent if it is about the whole. */
  readonly stage?: string;
  readonly text: string;
}

/** A function as far as judging needs it. */
export interface Known {
  readonly current: number;
  readonly workflow: boolean;
}

export const STAGES_MAX = 256;
export const EDGES_MAX = 1024;
const HOUR = 3_600_000;
const MINUTE = 60_000;
const GIB = 1024 ** 3;
export const RETRIES_MAX = 10;
const LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;

/** All mistakes, in the order of the stages. Without `functions` nothing is said of functions. */
export function judge(draft: Draft, functions?: ReadonlyMap<string, Known>): Mistake[] {
  if (draft.stages.length === 0) return [{ text: "The workflow has no stage; give it at least one." }];
  const found: Mistake[] = [...judgeWhole(draft)];
  const names = new Set<string>();
  for (const stage of draft.stages) {
    if (names.has(stage.name)) found.push({ stage: stage.name, text: `Stage ${stage.name} stands twice; give each stage its own name.` });
    names.add(stage.name);
  }
  for (const stage of draft.stages) {
    for (const text of judgeStage(stage, names)) found.push({ stage: stage.name, text: `Stage ${stage.name}: ${text}` });
    const missing = functions === undefined ? null : judgeFunction(stage, functions);
    if (missing !== null) found.push({ stage: stage.name, text: `Stage ${stage.name}: ${missing}` });
  }
  return [...found, ...judgeGraph(draft)];
}

function judgeWhole(draft: Draft): Mistake[] {
  const found: Mistake[] = [];
  const edges = draft.stages.reduce((sum, stage) => sum + stage.needs.length, 0);
  if (draft.stages.length > STAGES_MAX) found.push({ text: `The workflow has ${draft.stages.length} stages, ${STAGES_MAX} are allowed; split it.` });
  if (edges > EDGES_MAX) found.push({ text: `The workflow has ${edges} edges, ${EDGES_MAX} are allowed; split it.` });
  const timeout = draft.timeout === undefined ? null : spanFault("timeout", draft.timeout, HOUR);
  if (timeout !== null) found.push({ text: `The workflow's ${timeout}` });
  return found;
}

function spanFault(what: string, text: string, most: number, zero = false): string | null {
  const span = parseSpan(text);
  const limit = most === HOUR ? "1h" : "1m";
  if (span === null) return `${what} is "${text}"; write a whole number with ms, s, m or h, such as 250ms or 10s.`;
  if (span > most || (span === 0 && !zero)) return `${what} is ${text}; from ${zero ? "0ms" : "1ms"} to ${limit} is possible.`;
  return null;
}

function* judgeStage(stage: StageDraft, names: ReadonlySet<string>): Generator<string> {
  if (!LABEL.test(stage.name)) yield "a name has lower-case letters, digits and hyphens, 63 at most, and begins and ends with a letter or digit.";
  if (stage.function === "") yield "choose the function that it runs.";
  if (stage.version !== "current" && !/^[1-9]\d*$/.test(stage.version)) yield `version is "${stage.version}"; it is a number, or current.`;
  if (stage.timeout !== undefined) {
    const fault = spanFault("timeout", stage.timeout, HOUR);
    if (fault !== null) yield fault;
  }
  yield* judgeRetries(stage);
  if (stage.path !== undefined && !(/^\/[!-"$-~]*$/.test(stage.path) && stage.path.length <= 2048)) {
    yield "path must begin with / and have no spaces, 2,048 bytes at most.";
  }
  if (stage.when !== "success" && stage.needs.length === 0) yield "the entry has no parents, so it runs always: leave its condition at success.";
  yield* judgeNeeds(stage, names);
}

function* judgeRetries({ retries }: StageDraft): Generator<string> {
  if (retries === undefined) return;
  if (!Number.isInteger(retries.count) || retries.count < 0 || retries.count > RETRIES_MAX) {
    yield `retries are ${retries.count}; 0 to ${RETRIES_MAX} are possible.`;
  }
  const fault = retries.backoff === undefined ? null : spanFault("pause between retries", retries.backoff, MINUTE, true);
  if (fault !== null) yield fault;
}

function* judgeNeeds(stage: StageDraft, names: ReadonlySet<string>): Generator<string> {
  const seen = new Set<string>();
  for (const need of stage.needs) {
    if (seen.has(need.stage)) yield `it needs ${need.stage} twice.`;
    seen.add(need.stage);
    if (!names.has(need.stage)) yield `it needs stage ${need.stage}, which does not exist.`;
    if (need.size === undefined) continue;
    const size = parseBytes(need.size);
    if (size === null) yield `the size of ${need.stage}'s output is "${need.size}"; write a whole number with KiB, MiB, GiB, kB, MB or GB, such as 64KiB.`;
    else if (size > GIB) yield `the output of ${need.stage} is said to be ${need.size}; 1GiB at most.`;
  }
}

function judgeFunction(stage: StageDraft, functions: ReadonlyMap<string, Known>): string | null {
  if (stage.function === "") return null;
  const known = functions.get(stage.function);
  if (known === undefined) return `there is no function ${stage.function}.`;
  if (known.workflow) return `${stage.function} is a workflow, and a stage runs a function.`;
  if (/^\d+$/.test(stage.version) && Number(stage.version) > known.current) return `function ${stage.function} has no version ${stage.version}.`;
  return null;
}

/** One entry, no cycle, and everything reached from the entry. */
function judgeGraph(draft: Draft): Mistake[] {
  const cycle = cycleOf(draft);
  const found: Mistake[] = cycle.map((stage) => ({ stage, text: `Stage ${stage} is part of a cycle; a stage cannot wait for its own output.` }));
  const roots = draft.stages.filter((stage) => stage.needs.length === 0).map((stage) => stage.name);
  const { entry } = draft;
  if (entry !== undefined) {
    const named = draft.stages.find((stage) => stage.name === entry);
    if (named === undefined) return [...found, { text: `There is no stage ${entry}, which is named as the entry.` }];
    if (named.needs.length > 0) found.push({ stage: entry, text: `Stage ${entry} is the entry and cannot need others.` });
    for (const root of roots) {
      if (root !== entry) found.push({ stage: root, text: `Stage ${root} cannot be reached from the entry ${entry}: it needs nothing.` });
    }
  } else if (roots.length > 1) {
    for (const root of roots) {
      const others = roots.filter((other) => other !== root).join(", ");
      found.push({ stage: root, text: `Stage ${root} is an entry, and so is ${others}; a workflow has exactly one. Connect it, or remove it.` });
    }
  } else if (roots.length === 0) {
    found.push({ text: "No stage takes the request: every stage needs another one." });
  }
  const start = entry ?? (roots.length === 1 ? roots[0] : undefined);
  if (start === undefined) return found;
  return [...found, ...unreached(draft, start, new Set([...cycle, ...roots]))];
}

/** Stages that do not depend on the entry, but for those of which it was said already. */
function unreached(draft: Draft, entry: string, told: ReadonlySet<string>): Mistake[] {
  const reached = new Set([entry]);
  for (let grown = true; grown; ) {
    grown = false;
    for (const stage of draft.stages) {
      if (!reached.has(stage.name) && stage.needs.some((need) => reached.has(need.stage))) {
        reached.add(stage.name);
        grown = true;
      }
    }
  }
  return draft.stages
    .filter((stage) => !reached.has(stage.name) && !told.has(stage.name))
    .map((stage) => ({ stage: stage.name, text: `Stage ${stage.name} cannot be reached from the entry ${entry}.` }));
}

/** The stages that wait for themselves, in the order of the file. */
export function cycleOf(draft: Draft): string[] {
  const names = new Set(draft.stages.map((stage) => stage.name));
  let left = draft.stages.map((stage) => ({ name: stage.name, needs: stage.needs.map((need) => need.stage).filter((need) => names.has(need)) }));
  // First whatever waits for nothing that is left goes, then whatever nobody waits for: what stays is on cycles, or on a way between two.
  for (let before = -1; before !== left.length; ) {
    before = left.length;
    const waiting = new Set(left.map((stage) => stage.name));
    left = left.filter((stage) => stage.needs.some((need) => waiting.has(need)));
  }
  for (let before = -1; before !== left.length; ) {
    before = left.length;
    const needed = new Set(left.flatMap((stage) => stage.needs));
    left = left.filter((stage) => needed.has(stage.name));
  }
  return left.map((stage) => stage.name);
}

/** Whether an edge would close a cycle. */
export function closesCycle(draft: Draft, from: string, to: string): boolean {
  if (from === to) return true;
  const ahead = [from];
  const seen = new Set<string>();
  for (let name = ahead.pop(); name !== undefined; name = ahead.pop()) {
    if (name === to) return true;
    if (seen.has(name)) continue;
    seen.add(name);
    ahead.push(...(draft.stages.find((stage) => stage.name === name)?.needs.map((need) => need.stage) ?? []));
  }
  return false;
}
