import { expect, it } from "vitest";
import { RUN } from "./fixture";
import { gantt, stagesOf, ticks, type Run } from "./run";

it("tells how each stage stands", () => {
  const stages = stagesOf(RUN, 5000);
  expect(stages.get("in")).toMatchObject({ state: "done", cluster: "eu-west", took: 50, attempts: 1 });
  expect(stages.get("face")).toMatchObject({ state: "done", cluster: "eu-west", took: 150, attempts: 2 });
  expect(stages.get("later")).toMatchObject({ state: "skipped", attempts: 0 });
});

it("tells what runs, and for how long", () => {
  const run: Run = { run: RUN.run, request: RUN.request, app: RUN.app, revision: 1, node: RUN.node, cluster: RUN.cluster, started_at: RUN.started_at, status: "running", stages: [{ stage: "in", attempts: [{ attempt: 1, cluster: "eu-west", started_at: 1000, outcome: "running" }] }, { stage: "later", attempts: [] }] };
  expect(stagesOf(run, 1300).get("in")).toMatchObject({ state: "running", took: 300 });
  expect(stagesOf(run, 1300).get("later")?.state).toBe("waiting");
  expect(gantt(run, 1300).span).toBe(300);
});

it("places attempts on the time line", () => {
  const { span, rows } = gantt(RUN, 9999);
  expect(span).toBe(200);
  expect(rows[1]?.bars.map((bar) => [bar.from, bar.to, bar.ms])).toEqual([[0.25, 0.5, 50], [0.75, 1, 50]]);
  expect(rows[2]?.bars).toEqual([]);
});

it("has round ticks", () => {
  expect(ticks(200)).toEqual([0, 50, 100, 150, 200]);
  expect(ticks(1)).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1].map((value) => expect.closeTo(value, 9) as unknown as number));
});
