import { useInfiniteQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";
import { usePathParam } from "@/app/params";
import { notOffered } from "@/api/offered";
import { useNow } from "@/app/zone";
import { useParam } from "@/app/search";
import { Ago, Card, Empty, Failed, Loading, PagingFoot, Segmented, Table, usePaging, type Column } from "@/components";
import { NotOffered } from "@/components/NotOffered";
import { count, elapsed } from "@/format";
import { Frame } from "../Frame";
import type { Run } from "../model/run";
import { MiniGantt } from "./Gantt";
import { runsQuery } from "./queries";
import { RunStatus } from "./RunView";

type Filter = "all" | "running" | "answered" | "failed";

const FILTERS: readonly { value: Filter; label: string }[] = [
  { value: "all", label: "All" }, { value: "running", label: "Running" }, { value: "answered", label: "Answered" }, { value: "failed", label: "Not answered" },
];

function passes(run: Run, filter: string): boolean {
  if (filter === "running" || filter === "answered") return run.status === filter;
  return filter !== "failed" || (run.status !== "running" && run.status !== "answered");
}

/** The clock ticks in the cells of runs that go on, so that the table stays as it is. */
function Line({ run }: { run: Run }) {
  const now = useNow();
  return <MiniGantt run={run} now={run.ended_at ?? now} />;
}

function Took({ run }: { run: Run }) {
  const now = useNow();
  return elapsed((run.ended_at ?? now) - run.started_at);
}

function columnsOf(app: string): readonly Column<Run>[] {
  return [
    { id: "started", header: "Began", cell: (run) => <Link to={`/workflows/${app}/runs/${run.run}`} className="strong"><Ago at={run.started_at} /></Link>, sort: (run) => run.started_at, width: "minmax(5.5rem, 8rem)" },
    { id: "status", header: "Status", cell: (run) => <RunStatus run={run} />, sort: (run) => run.status, width: "minmax(6.5rem, 1fr)" },
    { id: "line", header: "Stages in time", cell: (run) => <Line run={run} />, width: "8.5rem", from: 640 },
    { id: "took", header: "Took", cell: (run) => <Took run={run} />, sort: (run) => (run.ended_at ?? Date.now()) - run.started_at, number: true, width: "5rem" },
    { id: "cluster", header: "Came to", cell: (run) => run.cluster, sort: (run) => run.cluster, from: 560 },
    { id: "attempts", header: "Attempts", cell: (run) => count(run.stages.reduce((sum, stage) => sum + stage.attempts.length, 0)), number: true, width: "6rem", from: 760 },
    { id: "revision", header: "Revision", cell: (run) => count(run.revision), sort: (run) => run.revision, number: true, width: "5rem", from: 900 },
  ];
}

/** `/workflows/NAME/runs` */
export function RunsPage() {
  const app = usePathParam("app");
  const [filter, setFilter] = useParam("status", "all");
  const navigate = useNavigate();
  const runs = useInfiniteQuery(runsQuery(app));
  const rows = useMemo(() => runs.data?.pages.flatMap((page) => page.rows) ?? [], [runs.data]);
  const found = rows.filter((run) => passes(run, filter));
  const columns = useMemo(() => columnsOf(app), [app]);
  const paging = usePaging(runs, filter !== "all", found.length);
  if (notOffered(runs.error)) return <Frame app={app}><Card><NotOffered what="Runs of workflows" /></Card></Frame>;
  const try_ = <Link to={`/workflows/${app}/run`} className="button primary">Run it</Link>;
  return (
    <Frame app={app} lead="Runs of this workflow, newest first.">
      <Card flush>
        {runs.isPending ? <Loading /> : runs.error !== null && rows.length === 0 ? <Failed error={runs.error} onRetry={() => void runs.refetch()} />
          : rows.length === 0 ? <Empty title="No run yet" icon="play" action={try_}>A run appears here with the first call. Make one from this page.</Empty>
          : (
            <>
              <div className="toolbar"><Segmented label="Status" value={filter as Filter} options={FILTERS} onChange={setFilter} /></div>
              {paging.looking ? <Loading /> : found.length === 0 ? <Empty title="No such run" icon="filter">Choose another status.</Empty> : (
                <Table label="Runs" rows={found} columns={columns} rowKey={(run) => run.run} defaultSort="-started" onOpen={(run) => void navigate({ to: `/workflows/${app}/runs/${run.run}` })} onEnd={paging.onEnd} />
              )}
              <PagingFoot paging={paging} rows={rows.length} what="run" />
            </>
          )}
      </Card>
    </Frame>
  );
}
