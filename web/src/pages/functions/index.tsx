import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";
import { readings, recentRate, type Figures } from "@/api/figures";
import { useMay } from "@/api/session";
import { useParam, useTenant } from "@/app/search";
import { Ago, Card, Empty, Icon, Loaded, matches, PageHead, SearchBox, Table, type Column } from "@/components";
import { Spark } from "@/components/chart";
import { duration, percent, perSecond, shortDigest } from "@/format";
import { LabelList, Readiness } from "./parts";
import { appsQuery, figuresQuery, type App } from "./queries";

export function FunctionsPage() {
  const tenant = useTenant();
  const [filter] = useParam("q");
  const navigate = useNavigate();
  const apps = useQuery(appsQuery(tenant));
  const figures = useQuery(figuresQuery("app", "15m", { tenant }));
  const columns = useMemo(() => columnsWith(figures.data), [figures.data]);
  return (
    <>
      <PageHead title="Functions" lead="What is deployed, and how it does." actions={<Actions />} />
      <Card flush>
        <Loaded query={apps} empty={<NothingYet />}>
          {(rows) => {
            const found = rows.filter((app) => matches(filter, app.app, app.host, ...Object.entries(app.labels ?? {}).flat()));
            return (
              <>
                <div className="toolbar"><SearchBox label="Filter by name, host or label" found={found.length} /></div>
                {found.length === 0 ? (
                  <Empty title="Nothing matches" icon="search">No function has “{filter}” in its name, host or labels.</Empty>
                ) : (
                  <Table label="Functions" rows={found} columns={columns} rowKey={(app) => app.app} defaultSort="app" onOpen={(app) => void navigate({ to: `/functions/${app.app}` })} />
                )}
              </>
            );
          }}
        </Loaded>
      </Card>
    </>
  );
}

function Actions() {
  const may = useMay("deploy");
  return (
    <>
      <Link to="/functions/catalogue" className="button">Catalogue</Link>
      {may && <Link to="/functions/new" className="button primary"><Icon name="upload" />Upload a function</Link>}
    </>
  );
}

function NothingYet() {
  const may = useMay("deploy");
  return (
    <Empty title="Nothing is deployed yet" icon="functions" action={may ? <span className="row"><Link to="/functions/new" className="button primary">Upload a function</Link><Link to="/functions/catalogue" className="button">Take one from the catalogue</Link></span> : undefined}>
      A function is a WebAssembly component or a container image. Upload one, and it answers at a host name of its own in every region.
    </Empty>
  );
}

function columnsWith(figures: Figures | undefined): readonly Column<App>[] {
  const series = new Map(figures?.series.map((each) => [each.key, each]));
  const rate = (app: App) => (figures === undefined ? 0 : recentRate(figures, series.get(app.app)));
  const errors = (app: App) => {
    const sum = series.get(app.app)?.sum;
    return sum === undefined || sum.calls === 0 ? null : sum.errors / sum.calls;
  };
  return [
    { id: "app", header: "Name", width: "minmax(6rem, 1.4fr)", cell: (app) => <Link to={`/functions/${app.app}`} className="strong">{app.app}</Link>, sort: (app) => app.app },
    { id: "host", header: "Host", width: "minmax(8rem, 1.6fr)", cell: (app) => <span className="mono muted">{app.host}</span>, sort: (app) => app.host, from: 860 },
    { id: "state", header: "State", width: "minmax(6rem, 8rem)", cell: (app) => <Readiness app={app} />, sort: (app) => app.nodes_ready - app.nodes_total },
    { id: "labels", header: "Labels", width: "minmax(6rem, 1fr)", cell: (app) => <LabelList labels={app.labels} />, from: 1250 },
    { id: "spark", header: "Last 15 min", width: "7rem", cell: (app) => (figures === undefined ? null : <Spark points={readings(figures, series.get(app.app), "rate")} />), from: 760 },
    { id: "calls", header: "Calls", width: "5.5rem", number: true, cell: (app) => (figures === undefined ? "–" : perSecond(rate(app))), sort: rate, from: 340 },
    { id: "errors", header: "Errors", width: "5rem", number: true, cell: (app) => <ErrorShare share={errors(app)} />, sort: errors, from: 640 },
    { id: "p99", header: "Time, p99", width: "6rem", number: true, cell: (app) => duration(series.get(app.app)?.sum.p99_ms), sort: (app) => series.get(app.app)?.sum.p99_ms, from: 700 },
    { id: "version", header: "Version", width: "5rem", number: true, cell: (app) => <span title={shortDigest(app.digest)}>v{app.version}</span>, sort: (app) => app.version, from: 420 },
    { id: "deployed", header: "Deployed", width: "6.5rem", cell: (app) => <Ago at={app.deployed_at} />, sort: (app) => app.deployed_at, from: 560 },
  ];
}

function ErrorShare({ share }: { share: number | null }) {
  if (share === null) return <span className="faint">–</span>;
  return <span className={share === 0 ? "muted" : share > 0.01 ? "bad" : "warn"}>{percent(share)}</span>;
}
