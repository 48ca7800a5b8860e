import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { api, body } from "@/api/client";
import { useMay } from "@/api/session";
import { useParam, useTenant } from "@/app/search";
import { useNow } from "@/app/zone";
import { Ago, Button, Card, Confirm, Empty, Failed, Loaded, Loading, matches, PagingFoot, SearchBox, Table, usePaging, useToast, type Column } from "@/components";
import { count, duration, plural } from "@/format";
import { shortId, STATES, stateOf, times, type Job, type JobState } from "./course";
import { AppChoice, JobsFrame, StateBadge } from "./parts";
import { appsQuery, jobsQuery } from "./queries";
import { SubmitDialog } from "./SubmitDialog";

/** `/jobs` */
export function JobsPage() {
  const tenant = useTenant();
  const may = useMay("run-jobs", tenant);
  const apps = useQuery(appsQuery(tenant));
  const [dialog, setDialog] = useParam("dialog");
  const submit = may ? <Button kind="primary" icon="plus" onClick={() => setDialog("submit")}>Submit a job</Button> : undefined;
  return (
    <JobsFrame title="Jobs" lead="Calls that nobody waits for, each ended exactly once." actions={submit}>
      <Card flush>
        <Loaded query={apps} empty={<Empty title="Nothing is deployed yet" icon="functions" action={<Link to="/functions" className="button primary">Go to functions</Link>}>A job is a call of an app. Deploy a function or a workflow first.</Empty>}>
          {(rows) => <List apps={rows.map((app) => app.app).sort()} submit={submit} mayRun={may} />}
        </Loaded>
      </Card>
      {dialog === "submit" && apps.data !== undefined && <SubmitDialog apps={apps.data.map((app) => app.app).sort()} onClose={() => setDialog("")} />}
    </JobsFrame>
  );
}

/** How long a job waited or ran, counting on while it does. The clock ticks in the cell, so that the table stays as it is. */
function Span({ job, of }: { job: Job; of: "waited" | "ran" }) {
  const now = useNow();
  return duration(times(job, now)[of]);
}

function columns(several: boolean): readonly Column<Job>[] {
  return [
    { id: "id", header: "Job", cell: (job) => <Link to={`/jobs/${job.id}`} className="mono" title={job.id}>{shortId(job.id)}</Link>, width: "minmax(7rem, 1.2fr)" },
    ...(several ? [{ id: "app", header: "App", cell: (job: Job) => <span className="strong">{job.app}</span>, sort: (job: Job) => job.app }] : []),
    { id: "state", header: "State", cell: (job) => <StateBadge state={job.state} />, sort: (job) => job.state, width: "7.5rem" },
    { id: "submitted", header: "Submitted", cell: (job) => <Ago at={job.submitted_at} />, sort: (job) => job.submitted_at, width: "6.5rem", from: 420 },
    { id: "waited", header: "Waited", cell: (job) => <Span job={job} of="waited" />, sort: (job) => times(job, Date.now()).waited, number: true, width: "5.5rem", from: 820 },
    { id: "ran", header: "Ran", cell: (job) => <Span job={job} of="ran" />, sort: (job) => times(job, Date.now()).ran, number: true, width: "5.5rem", from: 620 },
    { id: "attempts", header: "Attempts", cell: (job) => count(job.attempts), sort: (job) => job.attempts, number: true, width: "5.5rem", from: 900 },
    { id: "cluster", header: "Cluster", cell: (job) => job.cluster ?? "–", sort: (job) => job.cluster ?? null, from: 720 },
    { id: "status", header: "Status", cell: (job) => job.status ?? "–", sort: (job) => job.status ?? null, number: true, width: "4.5rem", from: 560 },
    { id: "by", header: "By", cell: (job) => <span className="muted">{job.submitted_by}</span>, sort: (job) => job.submitted_by, from: 1000 },
  ];
}

function List({ apps, submit, mayRun }: { apps: readonly string[]; submit: React.ReactNode; mayRun: boolean }) {
  const tenant = useTenant();
  const [app, setApp] = useParam("app");
  const [stateText, setState] = useParam("state");
  const [filter] = useParam("q");
  const navigate = useNavigate();
  const state = stateOf(stateText);
  const jobs = useInfiniteQuery(jobsQuery(tenant, app, state));
  const rows = useMemo(() => jobs.data?.pages.flatMap((page) => page.rows) ?? [], [jobs.data]);
  const found = useMemo(() => rows.filter((job) => matches(filter, job.id, job.app, job.submitted_by, job.cluster, job.reason, job.target)), [rows, filter]);
  const shown = useMemo(() => columns(app === ""), [app]);
  const filtered = state !== undefined || filter !== "" || app !== "";
  const paging = usePaging(jobs, filter !== "", found.length);
  return (
    <>
      <div className="toolbar">
        <SearchBox label="Filter by id, person, cluster, reason" found={found.length} />
        <AppChoice apps={apps} value={app} onChange={setApp} />
        <select className="input compact" aria-label="State" value={state ?? ""} onChange={(event) => setState(event.target.value)}>
          <option value="">All states</option>
          {STATES.map((each) => <option key={each} value={each}>{each}</option>)}
        </select>
        <span className="muted small end">{plural(found.length, "job")}{jobs.hasNextPage ? " so far" : ""}</span>
        {mayRun && app !== "" && found.some((job) => job.state === "dead") && <RedriveAll app={app} />}
      </div>
      {jobs.isPending ? <Loading /> : jobs.error !== null && rows.length === 0 ? <Failed error={jobs.error} onRetry={() => void jobs.refetch()} />
        : (
          <>
            {paging.looking ? <Loading /> : found.length === 0 ? <Nothing filtered={filtered} state={state} submit={submit} />
              : <Table label="Jobs" rows={found} columns={shown} rowKey={(job) => job.id} defaultSort="-submitted" onOpen={(job) => void navigate({ to: `/jobs/${job.id}` })} onEnd={paging.onEnd} />}
            <PagingFoot paging={paging} rows={rows.length} what="job" />
          </>
        )}
    </>
  );
}

function Nothing({ filtered, state, submit }: { filtered: boolean; state: JobState | undefined; submit: React.ReactNode }) {
  if (!filtered) return <Empty title="No job yet" icon="jobs" action={submit}>Submit one here, or with <code>fdn job submit APP -d INPUT</code>. Schedules submit them by themselves.</Empty>;
  return <Empty title={state === undefined ? "No job matches" : `No job is ${state}`} icon="filter">Choose another app or state, or take a word out of the filter.</Empty>;
}

/** Sends all dead letters of an app again. */
function RedriveAll({ app }: { app: string }) {
  const [asked, ask] = useState(false);
  const queries = useQueryClient();
  const say = useToast();
  const redrive = useMutation({
    mutationFn: async () => {
      let total = 0;
      for (let more = true; more; ) {
        const answer = await body(api.POST("/v1/apps/{app}/jobs/redrive", { params: { path: { app } } }));
        total += answer.jobs;
        more = answer.more && answer.jobs > 0;
      }
      return total;
    },
    onSuccess: async (total) => {
      say(`${plural(total, "dead letter")} of ${app} sent again`);
      await queries.invalidateQueries({ queryKey: ["jobs"] });
    },
  });
  return (
    <>
      <Button small icon="refresh" onClick={() => ask(true)}>Send dead letters again</Button>
      {asked && (
        <Confirm title={`Send all dead letters of ${app} again?`} action="Send them again" onConfirm={() => redrive.mutateAsync()} onClose={() => ask(false)}>
          <p>Each is run as if it were submitted anew. A function that is not safe to repeat may do its work twice.</p>
        </Confirm>
      )}
    </>
  );
}

