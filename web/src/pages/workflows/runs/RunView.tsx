/** One run: lit up on the canvas, on the time line, and as a table. */
import { useMemo } from "react";
import { useParam } from "@/app/search";
import { Ago, Badge, Card, Notice, Stat, Stats, type Tone } from "@/components";
import { useNow } from "@/app/zone";
import { bytes, count, duration, elapsed } from "@/format";
import { Canvas } from "../editor/Canvas";
import type { Draft } from "../model/draft";
import { stagesOf, type Run } from "../model/run";
import { Gantt, outcomeWord } from "./Gantt";

const STATUS: Readonly<Record<Run["status"], { word: string; tone: Tone }>> = {
  running: { word: "running", tone: "info" },
  answered: { word: "answered", tone: "good" },
  failed: { word: "failed", tone: "bad" },
  lost: { word: "lost with its node", tone: "bad" },
  late: { word: "out of time", tone: "bad" },
  abandoned: { word: "given up by its caller", tone: "warn" },
};

export function RunStatus({ run }: { run: Run }) {
  const { word, tone } = STATUS[run.status];
  return <Badge tone={tone} dot>{word}</Badge>;
}

/** A draft of stages without edges, for a run of a version that is no longer current. */
function bare(run: Run): Draft {
  return { stages: run.stages.map((stage) => ({ name: stage.stage, function: "", version: "current", needs: [], when: "success" })) };
}

export function RunView({ run, draft, revision }: { run: Run; draft: Draft | undefined; revision: number | undefined }) {
  const clock = useNow();
  const now = run.ended_at ?? Math.max(clock, run.started_at);
  const states = useMemo(() => stagesOf(run, now), [run, now]);
  const [selected, select] = useParam("stage");
  const current = revision === run.revision && draft !== undefined;
  const ended = [...states.values()].filter((stage) => stage.state === "done").length;
  return (
    <div className="stack">
      <Stats>
        <Stat label="Run" value={<RunStatus run={run} />} note={<Ago at={run.started_at} />} />
        <Stat label={run.ended_at == null ? "Running for" : "Took"} value={elapsed(now - run.started_at)} note={run.ended_at == null ? "so far" : "from the request to the answer"} />
        <Stat label="Stages done" value={count(ended)} unit={`of ${count(run.stages.length)}`} note={`revision ${run.revision}`} />
        <Stat label="Came to" value={run.cluster} note={`led by ${run.node}`} />
      </Stats>
      <Card flush title="Stages">
        {!current && <div style={{ padding: "0.75rem 1rem" }}><Notice>This was revision {run.revision}{revision === undefined ? "" : `; revision ${revision} is current`}. Its stages are shown without their edges.</Notice></div>}
        <Canvas label={`Stages of the run`} draft={current ? draft : bare(run)} states={states} selected={selected} onSelect={select} />
      </Card>
      <Card title="Time line" flush>
        <div style={{ padding: "0.5rem" }}><Gantt run={run} now={now} selected={selected} onSelect={select} /></div>
      </Card>
      <Attempts run={run} now={now} selected={selected} />
    </div>
  );
}

function Attempts({ run, now, selected }: { run: Run; now: number; selected: string }) {
  const rows = run.stages.filter((stage) => selected === "" || stage.stage === selected).flatMap((stage) => stage.attempts.map((attempt) => ({ stage: stage.stage, attempt })));
  return (
    <Card title={selected === "" ? "Attempts" : `Attempts of ${selected}`} flush>
      <div className="scroll-x" tabIndex={0} role="region" aria-label="Attempts">
        <table className="plain-table">
          <thead><tr><th>Stage</th><th className="num">Attempt</th><th>Cluster</th><th>Node</th><th>Outcome</th><th className="num">Began after</th><th className="num">Took</th><th className="num">Output</th><th>Why</th></tr></thead>
          <tbody>
            {rows.map(({ stage, attempt }) => (
              <tr key={`${stage} ${attempt.attempt}`}>
                <td className="strong">{stage}</td>
                <td className="num">{count(attempt.attempt)}</td>
                <td className="nowrap">{attempt.cluster}</td>
                <td className="nowrap">{attempt.node ?? "–"}</td>
                <td><Badge tone={attempt.outcome === "done" ? "good" : attempt.outcome === "running" ? "info" : attempt.outcome === "cancelled" ? "neutral" : "bad"}>{outcomeWord(attempt.outcome)}</Badge></td>
                <td className="num nowrap">{duration(attempt.started_at - run.started_at)}</td>
                <td className="num nowrap">{elapsed((attempt.ended_at ?? now) - attempt.started_at)}</td>
                <td className="num nowrap">{typeof attempt.output_bytes === "number" ? bytes(attempt.output_bytes) : "–"}</td>
                <td style={{ minWidth: "14rem" }}>{attempt.reason ?? ""}</td>
              </tr>
            ))}
            {rows.length === 0 && <tr><td colSpan={9} className="muted">No attempt was made yet.</td></tr>}
          </tbody>
        </table>
      </div>
    </Card>
  );
}
