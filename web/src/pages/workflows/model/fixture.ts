/** Drafts and runs for tests. */
import type { Draft, StageDraft } from "./draft";
import type { Run } from "./run";

export function stage(name: string, needs: readonly string[] = [], more: Partial<StageDraft> = {}): StageDraft {
  return { name, function: "f", version: "current", when: "success", needs: needs.map((need) => ({ stage: need })), ...more };
}

export function drawn(...stages: readonly StageDraft[]): Draft {
  return { stages };
}

export const DIAMOND = drawn(stage("in"), stage("left", ["in"]), stage("right", ["in"]), stage("join", ["left", "right"]));

export const RUN: Run = {
  run: "run_1", request: "r1", app: "photo", revision: 1, node: "eu-west-1", cluster: "eu-west", started_at: 1000, ended_at: 1200, status: "answered",
  stages: [
    { stage: "in", attempts: [{ attempt: 1, cluster: "eu-west", started_at: 1000, ended_at: 1050, outcome: "done" }] },
    {
      stage: "face",
      attempts: [
        { attempt: 1, cluster: "us-east", started_at: 1050, ended_at: 1100, outcome: "lost", reason: "the connection broke" },
        { attempt: 2, cluster: "eu-west", started_at: 1150, ended_at: 1200, outcome: "done" },
      ],
    },
    { stage: "later", attempts: [] },
  ],
};
