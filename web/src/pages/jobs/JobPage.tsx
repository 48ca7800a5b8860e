import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { usePathParam } from "@/app/params";
import { api, body } from "@/api/client";
import { useMay } from "@/api/session";
import { useNow } from "@/app/zone";
import { useTenant } from "@/app/search";
import { Ago, At, Badge, Button, Card, Code, Confirm, Copyable, Empty, Loaded, Notice, PageHead, Pairs, Stat, Stats, Table, useToast, useToastError, type Column } from "@/components";
import { LogLines, saveLog } from "@/components/LogLines";
import { SaveLink } from "@/components/SaveLink";
import { bytes, count, duration } from "@/format";
import { parseSize } from "./sizes";
import { about, canCancel, canRedrive, ended, endOf, happened, ran, textOf, times, type Attempt, type Job } from "./course";
import { StateBadge } from "./parts";
import { jobQuery, logsQuery, resultQuery } from "./queries";
import styles from "./Jobs.module.css";

/** `/jobs/ID` */
export function JobPage() {
  const id = usePathParam("job");
  const job = useQuery(jobQuery(id));
  const may = useMay("run-jobs", useTenant());
  const { data } = job;
  return (
    <>
      <PageHead title={data === undefined ? "Job" : `Job of ${data.app}`} crumbs={<Link to="/jobs">Jobs</Link>} lead={<Copyable text={id} what="id of the job" />}
        actions={may && data !== undefined ? <Actions job={data} /> : undefined} />
      <Loaded query={job}>{(detail) => <Detail job={detail} seen={job.dataUpdatedAt} />}</Loaded>
    </>
  );
}

function Actions({ job }: { job: Job }) {
  const [asked, ask] = useState(false);
  const queries = useQueryClient();
  const say = useToast();
  const sayError = useToastError();
  const redrive = useMutation({
    mutationFn: () => body(api.POST("/v1/jobs/{job}/redrive", { params: { path: { job: job.id } } })),
    onSuccess: async () => {
      say("The job was sent again");
      await queries.invalidateQueries({ queryKey: ["jobs"] });
    },
    onError: sayError,
  });
  const cancel = async () => {
    await api.DELETE("/v1/jobs/{job}", { params: { path: { job: job.id } } });
    say("The job was cancelled");
    await queries.invalidateQueries({ queryKey: ["jobs"] });
  };
  return (
    <>
      {canRedrive(job.state) && <Button icon="refresh" busy={redrive.isPending} onClick={() => redrive.mutate()}>Send it again</Button>}
      {canCancel(job.state) && <Button kind="danger" icon="close" onClick={() => ask(true)}>Cancel the job</Button>}
      {asked && (
        <Confirm title="Cancel the job?" action="Cancel the job" onConfirm={cancel} onClose={() => ask(false)}>
          <p>An attempt that runs is cut short, and what it answers counts no more. What the function did until then is done.</p>
        </Confirm>
      )}
    </>
  );
}

function Detail({ job, seen }: { job: Job; seen: number }) {
  const now = useNow();
  const { waited, ran } = times(job, now);
  return (
    <>
      <Stats>
        <Stat label="State" value={<StateBadge state={job.state} />} note={about(job.state).says} />
        <Stat label="Waited" value={duration(waited)} note={<>submitted <Ago at={job.submitted_at} /></>} />
        <Stat label="Ran" value={duration(ran)} note={job.cluster == null ? "no cluster yet" : `in ${job.cluster}`} />
        <Stat label="Attempts" value={count(job.attempts)} note={`${count(job.failures)} did not end well`} />
      </Stats>
      {job.reason != null && <Notice tone={canRedrive(job.state) ? "bad" : "info"}>{job.reason}</Notice>}
      <div className="halves">
        <Card title="Course"><Course job={job} /></Card>
        <Card title="About">
          <Pairs items={[
            ["App", <Link key="a" to="/jobs" search={{ app: job.app }}>{job.app}</Link>],
            ["Sent to", <span key="t" className="mono break">POST {job.target}</span>],
            ["Submitted by", job.submitted_by],
            ["Priority", `${job.priority} of 9`],
            ["Input", bytes(parseSize(job.input_size))],
            job.status == null ? null : ["Answered", `status ${job.status}`],
            job.result_size == null ? null : ["Result", bytes(parseSize(job.result_size))],
            ended(job.state) ? null : ["Dropped unless begun by", <At key="x" at={job.expires_at} />],
            job.kept_until == null ? null : ["Kept until", <At key="k" at={job.kept_until} />],
          ]} />
        </Card>
      </div>
      {(job.history ?? []).length > 1 && <Card title="Attempts" flush><Table label="Attempts" rows={job.history ?? []} columns={ATTEMPTS} rowKey={(attempt) => String(attempt.number)} defaultSort="-number" /></Card>}
      {job.result_size != null && <Result job={job} />}
      <Logs job={job} seen={seen} />
    </>
  );
}

/** What happened, in order. */
function Course({ job }: { job: Job }) {
  return (
    <ol className={styles.course}>
      {happened(job).map(({ at, text, tone, why }) => (
        <li key={`${at} ${text}`} className={tone === undefined ? undefined : styles[tone]}>
          <span>{text}{why != null && <span className={`muted small ${styles.why}`}>{why}</span>}</span>
          <span className="muted small"><At at={at} /></span>
        </li>
      ))}
    </ol>
  );
}

const ATTEMPTS: readonly Column<Attempt>[] = [
  { id: "number", header: "Attempt", cell: (attempt) => count(attempt.number), sort: (attempt) => attempt.number, number: true, width: "5rem" },
  { id: "cluster", header: "Cluster", cell: (attempt) => attempt.cluster ?? "–", sort: (attempt) => attempt.cluster ?? null },
  { id: "began", header: "Began", cell: (attempt) => <At at={attempt.started_at} />, sort: (attempt) => attempt.started_at, width: "minmax(9rem, 1.2fr)", from: 480 },
  { id: "ran", header: "Ran", cell: (attempt) => <Ran attempt={attempt} />, sort: (attempt) => ran(attempt, Date.now()), number: true, width: "6rem" },
  { id: "end", header: "End", cell: (attempt) => { const { tone, text, says } = endOf(attempt); return <Badge tone={tone} dot title={says}>{text}</Badge>; }, sort: (attempt) => endOf(attempt).text, width: "7rem" },
  { id: "status", header: "Status", cell: (attempt) => attempt.status ?? "–", sort: (attempt) => attempt.status ?? null, number: true, width: "4.5rem", from: 620 },
  { id: "why", header: "Why", cell: (attempt) => <span className="muted" title={attempt.reason ?? undefined}>{attempt.reason ?? ""}</span>, width: "minmax(8rem, 2fr)", from: 820 },
];

function Ran({ attempt }: { attempt: Attempt }) {
  return duration(ran(attempt, useNow()));
}

function Result({ job }: { job: Job }) {
  const result = useQuery(resultQuery(job.id));
  return (
    <Card title="Result" actions={result.data === undefined ? undefined : <span className="muted small">{result.data.type}, {bytes(result.data.bytes.byteLength)}</span>}>
      <Loaded query={result}>
        {({ bytes, type }) => {
          const text = textOf(bytes);
          return (
            <div className="stack-s">
              {text === null ? <p className="muted">It is no text.</p> : <Code text={text === "" ? "(empty)" : text.slice(0, 100_000)} label="result" wrap maxHeight="24rem" />}
              <div><SaveLink bytes={bytes} type={type} name={`${job.id}.result`} label="Save the result" /></div>
            </div>
          );
        }}
      </Loaded>
    </Card>
  );
}

function Logs({ job, seen }: { job: Job; seen: number }) {
  const logs = useQuery(logsQuery(job.id, !ended(job.state), seen));
  const found = logs.data ?? [];
  return (
    <Card title="Logs" flush actions={found.length === 0 ? undefined : <Button small icon="download" onClick={() => saveLog(job.id, found)}>Download</Button>}>
      <Loaded query={logs} empty={<Empty title="It wrote nothing" icon="jobs">What its functions write to standard output and error while they run stands here, as long as the nodes keep it.</Empty>}>
        {(lines) => (
          <LogLines label="Log of the job" lines={lines} short />
        )}
      </Loaded>
    </Card>
  );
}
