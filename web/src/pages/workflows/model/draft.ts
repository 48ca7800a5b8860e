/** A workflow while it is drawn. The same form as its file, with every key that may be there. */
import type { Schemas } from "@/api/client";

export type Condition = Schemas["Condition"];

export interface Need {
  readonly stage: string;
  /** How large that output is expected to be, as people write it (`64KiB`). */
  readonly size?: string;
}

export interface StageDraft {
  readonly name: string;
  readonly function: string;
  /** A number, or `current`. */
  readonly version: string;
  readonly needs: readonly Need[];
  readonly path?: string;
  readonly timeout?: string;
  readonly retries?: { readonly count: number; readonly backoff?: string };
  readonly when: Condition;
}

export interface Draft {
  readonly entry?: string;
  readonly timeout?: string;
  readonly stages: readonly StageDraft[];
}

export const EMPTY: Draft = { stages: [] };

/** A deployed workflow as a draft: what stands at its default is left out. */
export function ofDefinition(definition: Schemas["Definition"]): Draft {
  const { workflow, rules = {}, timeout } = definition;
  const stages = workflow.stages.map((stage): StageDraft => {
    const rule = rules[stage.name];
    const needs = (workflow.edges ?? []).filter((edge) => edge.to === stage.name).map((edge) => ({ stage: edge.from, size: edge.size }));
    const count = rule?.retries ?? 0;
    return {
      name: stage.name,
      function: stage.function,
      version: String(stage.version),
      needs,
      when: rule?.when ?? "success",
      ...(typeof rule?.path === "string" ? { path: rule.path } : {}),
      ...(typeof rule?.timeout === "string" ? { timeout: rule.timeout } : {}),
      ...(count > 0 ? { retries: { count, ...(rule?.backoff === undefined ? {} : { backoff: rule.backoff }) } } : {}),
    };
  });
  return { timeout, stages };
}

/** One change of a draft. */
export type Change =
  | { readonly kind: "add"; readonly stage: StageDraft }
  | { readonly kind: "set"; readonly name: string; readonly stage: StageDraft }
  | { readonly kind: "remove"; readonly names: readonly string[] }
  | { readonly kind: "connect"; readonly from: string; readonly to: string }
  | { readonly kind: "disconnect"; readonly edges: readonly { from: string; to: string }[] }
  | { readonly kind: "whole"; readonly timeout?: string; readonly entry?: string }
  | { readonly kind: "replace"; readonly draft: Draft; readonly typed?: boolean };

/** The draft after a change. A stage that is renamed is renamed wherever it is needed; one that is removed is needed nowhere. */
export function apply(draft: Draft, change: Change): Draft {
  switch (change.kind) {
    case "add":
      return { ...draft, stages: [...draft.stages, change.stage] };
    case "set":
      return setStage(draft, change.name, change.stage);
    case "remove":
      return removeStages(draft, new Set(change.names));
    case "connect":
      return mapStage(draft, change.to, (stage) =>
        stage.needs.some((need) => need.stage === change.from) ? stage : { ...stage, needs: [...stage.needs, { stage: change.from }] });
    case "disconnect":
      return {
        ...draft,
        stages: draft.stages.map((stage) => ({
          ...stage,
          needs: stage.needs.filter((need) => !change.edges.some((edge) => edge.to === stage.name && edge.from === need.stage)),
        })),
      };
    case "whole": {
      const { timeout, entry } = change;
      return { stages: draft.stages, ...(timeout === undefined || timeout === "" ? {} : { timeout }), ...(entry === undefined || entry === "" ? {} : { entry }) };
    }
    case "replace":
      return change.draft;
  }
}

function mapStage(draft: Draft, name: string, map: (stage: StageDraft) => StageDraft): Draft {
  return { ...draft, stages: draft.stages.map((stage) => (stage.name === name ? map(stage) : stage)) };
}

function setStage(draft: Draft, name: string, changed: StageDraft): Draft {
  const next = mapStage(draft, name, () => changed);
  if (changed.name === name) return next;
  return {
    ...next,
    ...(draft.entry === name ? { entry: changed.name } : {}),
    stages: next.stages.map((stage) => ({
      ...stage,
      needs: stage.needs.map((need) => (need.stage === name ? { ...need, stage: changed.name } : need)),
    })),
  };
}

function removeStages(draft: Draft, names: ReadonlySet<string>): Draft {
  const { entry, ...rest } = draft;
  return {
    ...rest,
    ...(entry === undefined || names.has(entry) ? {} : { entry }),
    stages: draft.stages
      .filter((stage) => !names.has(stage.name))
      .map((stage) => ({ ...stage, needs: stage.needs.filter((need) => !names.has(need.stage)) })),
  };
}

/** A name that no stage has yet, made of a function's. */
export function freeName(draft: Draft, wanted: string): string {
  const taken = new Set(draft.stages.map((stage) => stage.name));
  const base = wanted === "" ? "stage" : wanted;
  if (!taken.has(base)) return base;
  for (let number = 2; ; number += 1) {
    const name = `${base}-${number}`;
    if (!taken.has(name)) return name;
  }
}

/** What is drawn, with what was drawn before and what was taken back. */
export interface History {
  readonly past: readonly Draft[];
  readonly now: Draft;
  readonly future: readonly Draft[];
  /** The last step was a key typed into the file; the next one belongs to it. */
  readonly typing?: boolean;
}

export type Step =
  | Change
  | { readonly kind: "undo" }
  | { readonly kind: "redo" }
  | { readonly kind: "load"; readonly draft: Draft }
  | { readonly kind: "settle"; readonly draft: Draft };

const KEPT = 100;

export function begin(draft: Draft): History {
  return { past: [], now: draft, future: [] };
}

export function step(history: History, action: Step): History {
  const { past, now, future } = history;
  if (action.kind === "load") return begin(action.draft);
  // What was drawn, as it was deployed: no step of its own.
  if (action.kind === "settle") return { past, now: action.draft, future };
  if (action.kind === "undo") {
    const before = past.at(-1);
    return before === undefined ? history : { past: past.slice(0, -1), now: before, future: [now, ...future] };
  }
  if (action.kind === "redo") {
    const [after, ...rest] = future;
    return after === undefined ? history : { past: [...past, now], now: after, future: rest };
  }
  const next = apply(now, action);
  if (same(next, now)) return history;
  const typing = action.kind === "replace" && action.typed === true;
  return { past: typing && history.typing === true ? past : [...past, now].slice(-KEPT), now: next, future: [], ...(typing ? { typing } : {}) };
}

/** Whether two drafts say the same. */
export function same(a: Draft, b: Draft): boolean {
  return JSON.stringify(declaration(a)) === JSON.stringify(declaration(b));
}

/** A draft as its file has it: keys in the order of the documentation, defaults left out. */
export function declaration(draft: Draft): Record<string, unknown> {
  return {
    ...(draft.timeout === undefined ? {} : { timeout: draft.timeout }),
    ...(draft.entry === undefined ? {} : { entry: draft.entry }),
    stages: draft.stages.map(stageDeclaration),
  };
}

function stageDeclaration(stage: StageDraft): Record<string, unknown> {
  const { name, version, needs, path, timeout, retries, when } = stage;
  return {
    name,
    function: stage.function,
    ...(version === "current" ? {} : { version: /^\d+$/.test(version) ? Number(version) : version }),
    ...(needs.length === 0 ? {} : { needs: needs.map((need) => (need.size === undefined ? need.stage : { stage: need.stage, size: need.size })) }),
    ...(path === undefined ? {} : { path }),
    ...(timeout === undefined ? {} : { timeout }),
    ...(retries === undefined ? {} : { retries }),
    ...(when === "success" ? {} : { when }),
  };
}
