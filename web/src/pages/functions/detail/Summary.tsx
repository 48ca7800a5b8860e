import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { readings, recentRate } from "@/api/figures";
import { Ago, Badge, Card, Copyable, Loaded, Notice, Pairs, Stat, Stats, Table, type Column } from "@/components";
import { LineChart } from "@/components/chart";
import { bytes, compact, duration, percent, perSecond, plural, shortDigest, withUnits } from "@/format";
import { LabelList, VersionMarks } from "../parts";
import { figuresQuery, type AppDetail } from "../queries";
import { sharesOf } from "./traffic";
import { useApp, useAppName } from "./useApp";

export function Summary() {
  const app = useApp().data?.value;
  if (app === undefined) return null;
  return (
    <div className="stack">
      <Rollout app={app} />
      <Figures />
      <div className="columns">
        <div className="stack">
          <LatestVersions app={app} />
          <Nodes app={app} />
        </div>
        <About app={app} />
      </div>
    </div>
  );
}

function Rollout({ app }: { app: AppDetail }) {
  const rollout = app.rollout;
  if (rollout === null || rollout === undefined) return null;
  const tone = rollout.state === "broken" ? "bad" : rollout.state === "held" ? "good" : "info";
  const words = { watching: "is watched", held: "has held its objective", broken: "broke its objective" }[rollout.state];
  return (
    <Notice tone={tone}>
      <strong>v{rollout.version} {words}</strong> against v{rollout.baseline}: {plural(rollout.calls, "call")}, {plural(rollout.failures, "failure")}. {rollout.reason}
    </Notice>
  );
}

function Figures() {
  const name = useAppName();
  const figures = useQuery(figuresQuery("total", "15m", { app: name }));
  return (
    <Loaded query={figures} lines={6}>
      {(data) => {
        const series = data.series[0];
        const sum = series?.sum;
        return (
          <>
            <Stats>
              <Stat label="Calls" value={perSecond(recentRate(data, series))} note={`${compact(sum?.calls ?? 0)} in 15 min`} />
              <Stat label="Errors" value={sum === undefined || sum.calls === 0 ? "–" : percent(sum.errors / sum.calls)} note={`${plural(sum?.errors ?? 0, "answer")} 5xx`} />
              <Stat label="Time, p50" value={duration(sum?.p50_ms)} note="half are faster" />
              <Stat label="Time, p99" value={duration(sum?.p99_ms)} note="99 % are faster" />
              <Stat label="Cold starts" value={compact(sum?.cold_starts ?? 0)} note={sum === undefined || sum.calls === 0 ? "no calls" : `${percent(sum.cold_starts / sum.calls)} of calls`} />
            </Stats>
            <Card title="Last 15 minutes" actions={<Link to={`/functions/${name}/metrics`} className="small">All metrics</Link>}>
              <LineChart title="Calls per second" from={data.from} to={data.to} format={perSecond} height={150} atLeast={0.2} series={[{ name: "calls", points: readings(data, series, "rate"), color: "--series-1", area: true }]} />
            </Card>
          </>
        );
      }}
    </Loaded>
  );
}

function LatestVersions({ app }: { app: AppDetail }) {
  const shares = sharesOf(app.traffic);
  const newest = [...app.versions].sort((a, b) => b.version - a.version).slice(0, 5);
  return (
    <Card title="Versions" flush actions={<Link to={`/functions/${app.app}/versions`} className="small">Compare, and split traffic</Link>}>
      <div className="scroll-x" tabIndex={0} role="region" aria-label="Newest versions">
        <table className="plain-table">
          <thead><tr><th>Version</th><th>Deployed</th><th className="num">Size</th><th>Digest</th></tr></thead>
          <tbody>
            {newest.map((version) => (
              <tr key={version.version}>
                <td><span className="row"><b>v{version.version}</b> <VersionMarks version={version} current={app.version} shares={shares} /></span></td>
                <td><Ago at={version.created_at} /></td>
                <td className="num nowrap">{bytes(version.size)}</td>
                <td className="mono muted">{shortDigest(version.digest)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

type OnNode = AppDetail["nodes"][number];

const NODES: readonly Column<OnNode>[] = [
  { id: "node", header: "Node", width: "minmax(6rem, 1fr)", cell: (each) => <b>{each.node}</b>, sort: (each) => each.node },
  { id: "cluster", header: "Cluster", width: "minmax(5rem, 1fr)", cell: (each) => each.cluster, sort: (each) => each.cluster, from: 460 },
  { id: "state", header: "State", width: "minmax(5.5rem, 1fr)", cell: (each) => <Phase observed={each.observed} />, sort: (each) => each.observed?.phase.phase ?? "" },
  { id: "warm", header: "Warm", width: "4rem", number: true, cell: (each) => each.observed?.instances ?? 0, sort: (each) => each.observed?.instances ?? 0, from: 620 },
  { id: "calls", header: "Calls", width: "4rem", number: true, cell: (each) => compact(each.observed?.invocations ?? 0), sort: (each) => each.observed?.invocations ?? 0 },
  { id: "errors", header: "Errors", width: "4rem", number: true, cell: (each) => compact(each.observed?.errors ?? 0), sort: (each) => each.observed?.errors ?? 0, from: 540 },
  { id: "mean", header: "Mean time", width: "5.5rem", number: true, cell: ({ observed }) => (observed == null || observed.invocations === 0 ? "–" : duration(observed.execution_mean)), sort: ({ observed }) => (observed == null || observed.invocations === 0 ? null : observed.execution_mean), from: 420 },
];

function Nodes({ app }: { app: AppDetail }) {
  if (app.nodes.length === 0) return null;
  return (
    <Card title={`On ${plural(app.nodes_total, "node")}`} flush>
      <Table label="State on each node" rows={app.nodes} columns={NODES} rowKey={(each) => each.node} defaultSort="node" sortParam="nodes" />
    </Card>
  );
}

function Phase({ observed }: { observed: OnNode["observed"] }) {
  if (observed == null) return <Badge>waiting</Badge>;
  const { phase } = observed;
  return (
    <>
      {phase.phase === "ready" ? <Badge tone="good" dot>ready</Badge> : phase.phase === "failed" ? <Badge tone="bad" dot title={phase.reason}>failed: {phase.reason}</Badge> : <Badge tone="info" dot>{phase.phase}</Badge>}
      {observed.degraded != null && <Badge tone="warn" title={observed.degraded}>degraded</Badge>}
    </>
  );
}

function About({ app }: { app: AppDetail }) {
  const version = app.versions.find((each) => each.version === app.version);
  const manifest = version?.manifest;
  return (
    <Card title="About">
      <Pairs items={[
        ["Host", <Copyable key="h" text={app.host} what="host name" />],
        ["Deployed", <Ago key="d" at={app.deployed_at} />],
        ["Current", `v${app.version}`],
        ["Digest", <Copyable key="g" text={app.digest} shown={shortDigest(app.digest)} what="digest" />],
        ["Runtime", manifest?.runtime === "docker" ? "container image" : "WebAssembly component"],
        (version?.forms?.length ?? 0) > 0 && ["Other forms", (version?.forms ?? []).map((form) => `${form.manifest.name} (${form.manifest.runtime})`).join(", ")],
        ["Memory", withUnits(manifest?.memory ?? "–")],
        ["Time limit", withUnits(manifest?.timeout ?? "–")],
        ["Calls at once", manifest?.concurrency === undefined ? "–" : `${manifest.concurrency} an instance`],
        app.workflow.stages.length > 1 && ["Stages", <Link key="w" to={`/workflows/${app.app}`}>{plural(app.workflow.stages.length, "stage")}</Link>],
        ["Domains", app.domains === undefined || app.domains.length === 0 ? <Link key="n" to={`/functions/${app.app}/domains`}>none of your own</Link> : app.domains.join(", ")],
        ["Labels", <LabelList key="l" labels={app.labels} />],
      ]} />
    </Card>
  );
}
