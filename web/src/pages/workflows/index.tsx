import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";
import { useMay } from "@/api/session";
import { useParam, useTenant } from "@/app/search";
import { Ago, Badge, Card, Empty, Icon, Loaded, matches, PageHead, SearchBox, Table, type Column } from "@/components";
import { count, plural } from "@/format";
import { functionsOf, isWorkflow, shapeQuery, useApps, type AppSummary } from "./data";
import { ofDefinition } from "./model/draft";
import { Sketch } from "./Sketch";

const COLUMNS: readonly Column<AppSummary>[] = [
  { id: "app", header: "Name", cell: (row) => <Link to={`/workflows/${row.app}`} className="strong">{row.app}</Link>, sort: (row) => row.app },
  { id: "shape", header: "Shape", cell: (row) => <Shape app={row} />, width: "7.5rem", from: 520 },
  { id: "stages", header: "Stages", cell: (row) => plural(functionsOf(row).length, "stage"), sort: (row) => functionsOf(row).length, width: "6rem" },
  { id: "functions", header: "Functions", cell: (row) => <span className="muted">{[...new Set(functionsOf(row))].join(", ")}</span>, from: 860 },
  { id: "host", header: "Host", cell: (row) => <span className="mono muted">{row.host}</span>, sort: (row) => row.host, from: 760 },
  { id: "ready", header: "Ready", cell: (row) => <Ready app={row} />, sort: (row) => row.nodes_ready, width: "8rem", from: 620 },
  { id: "version", header: "Version", cell: (row) => `v${row.version}`, sort: (row) => row.version, width: "5rem", number: true },
  { id: "deployed", header: "Deployed", cell: (row) => <Ago at={row.deployed_at} />, sort: (row) => row.deployed_at, width: "7rem", from: 420 },
];

/** Asked for by each row that comes into sight. */
function Shape({ app }: { app: AppSummary }) {
  const { data } = useQuery(shapeQuery(app));
  const draft = useMemo(() => (data === undefined ? undefined : ofDefinition(data.definition)), [data]);
  return draft === undefined ? null : <Sketch draft={draft} />;
}

function Ready({ app }: { app: AppSummary }) {
  const all = app.nodes_ready === app.nodes_total;
  return <Badge tone={all ? "good" : "warn"} dot>{`${count(app.nodes_ready)} of ${plural(app.nodes_total, "node")}`}</Badge>;
}

export function WorkflowsPage() {
  const tenant = useTenant();
  const mayDeploy = useMay("deploy", tenant);
  const apps = useApps(tenant);
  const create = mayDeploy ? <Link to="/workflows/new" className="button primary"><Icon name="plus" />New workflow</Link> : undefined;
  return (
    <>
      <PageHead title="Workflows" lead="Several functions behind one address, each where it ends soonest." actions={create} />
      <Card flush>
        <Loaded query={apps} empty={<NothingYet action={create} functions={0} />}>
          {(rows) => <List apps={rows} create={create} />}
        </Loaded>
      </Card>
    </>
  );
}

function List({ apps, create }: { apps: readonly AppSummary[]; create: React.ReactNode }) {
  const navigate = useNavigate();
  const [filter] = useParam("q");
  const workflows = useMemo(() => apps.filter(isWorkflow), [apps]);
  const found = useMemo(() => workflows.filter((row) => matches(filter, row.app, row.host, ...functionsOf(row))), [workflows, filter]);
  if (workflows.length === 0) return <NothingYet action={create} functions={apps.length} />;
  return (
    <>
      <div className="toolbar">
        <SearchBox label="Filter by name, host or function" found={found.length} />
        <span className="muted small end">{plural(found.length, "workflow")}</span>
      </div>
      {found.length === 0
        ? <Empty title="No workflow matches" icon="search">Take a word out of the filter.</Empty>
        : <Table label="Workflows" rows={found} columns={COLUMNS} rowKey={(row) => row.app} defaultSort="app" rowHeight={44}
            onOpen={(row) => void navigate({ to: `/workflows/${row.app}` })} />}
    </>
  );
}

function NothingYet({ action, functions }: { action: React.ReactNode; functions: number }) {
  return (
    <Empty title="No workflow yet" icon="workflows" action={functions === 0 ? <Link to="/functions" className="button">Go to functions</Link> : action}>
      {functions === 0
        ? "Stages run functions that are deployed already, and none is. Deploy functions first, then connect them here."
        : `${plural(functions, "function")} can be connected: draw stages, connect them, and deploy them behind one address.`}
    </Empty>
  );
}
