/** What became of each stage of a run, and where its attempts stand on a time line. */
import type { Schemas } from "@/api/client";

export type Run = Schemas["RunInfo"];
export type Attempt = Schemas["RunAttempt"];

/** How a stage stands: `waiting` for its parents, `skipped` when the run ended without it. */
export type StageState = "waiting" | "running" | "done" | "failed" | "cancelled" | "skipped";

export interface StageRun {
  readonly stage: string;
  readonly state: StageState;
  readonly cluster?: string;
  /** From the first attempt's beginning to the last one's end, or until now. */
  readonly took?: number;
  readonly attempts: number;
  readonly reason?: string;
}

const FAILED: readonly Attempt["outcome"][] = ["lost", "answered", "refused", "not_started"];

/** The state of a stage. `now` is used while it runs. */
export function stageRun(run: Run, stage: Schemas["RunStage"], now: number): StageRun {
  const [first, last] = [stage.attempts[0], stage.attempts.at(-1)];
  if (first === undefined || last === undefined) {
    return { stage: stage.stage, state: run.status === "running" ? "waiting" : "skipped", attempts: 0 };
  }
  return {
    stage: stage.stage,
    state: stateOf(run, last),
    cluster: last.cluster,
    took: Math.max(0, (last.ended_at ?? (run.status === "running" ? now : run.ended_at ?? now)) - first.started_at),
    attempts: stage.attempts.length,
    ...(typeof last.reason === "string" ? { reason: last.reason } : {}),
  };
}

function stateOf(run: Run, last: Attempt): StageState {
  if (last.outcome === "done") return "done";
  if (last.outcome === "cancelled") return "cancelled";
  // An attempt that failed may be followed by another one while the run goes on.
  if (last.outcome === "running" || (run.status === "running" && last.outcome === "not_started")) return run.status === "running" ? "running" : "cancelled";
  return FAILED.includes(last.outcome) ? "failed" : "done";
}

export function stagesOf(run: Run, now: number): Map<string, StageRun> {
  return new Map(run.stages.map((stage) => [stage.stage, stageRun(run, stage, now)]));
}

export interface Bar {
  readonly attempt: Attempt;
  /** Shares of the whole width, from 0 to 1. */
  readonly from: number;
  readonly to: number;
  readonly ms: number;
}

export interface Row {
  readonly stage: string;
  readonly bars: readonly Bar[];
}

export interface Gantt {
  /** Milliseconds from the left edge to the right one. */
  readonly span: number;
  readonly rows: readonly Row[];
  /** Milliseconds since the run's beginning. */
  readonly ticks: readonly number[];
}

/** The time line of a run. */
export function gantt(run: Run, now: number): Gantt {
  const end = run.ended_at ?? Math.max(now, run.started_at);
  const last = Math.max(end, ...run.stages.flatMap((stage) => stage.attempts.map((attempt) => attempt.ended_at ?? attempt.started_at)));
  const span = Math.max(1, last - run.started_at);
  const share = (at: number) => Math.min(1, Math.max(0, (at - run.started_at) / span));
  const rows = run.stages.map((stage) => ({
    stage: stage.stage,
    bars: stage.attempts.map((attempt) => {
      const ended = attempt.ended_at ?? end;
      return { attempt, from: share(attempt.started_at), to: share(ended), ms: Math.max(0, ended - attempt.started_at) };
    }),
  }));
  return { span, rows, ticks: ticks(span) };
}

/** Round numbers from 0 up to the span, about `wanted` of them. */
export function ticks(span: number, wanted = 5): number[] {
  const raw = span / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= raw) ?? raw;
  return Array.from({ length: Math.floor(span / step + 1e-9) + 1 }, (_, index) => index * step);
}
