import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { lazy, Suspense, useState } from "react";
import { api, body, type Schemas } from "@/api/client";
import { useEvents, type NetworkEvent } from "@/api/events";
import { readings, recentRate, type Figures } from "@/api/figures";
import { may, useMay, useSession } from "@/api/session";
import { useTenant } from "@/app/search";
import { Ago, Badge, Bar, Card, Empty, Loaded, Loading, PageHead, Stat, Stats } from "@/components";
import { LineChart } from "@/components/chart";
import { compact, duration, money, percent, perSecond, plural } from "@/format";
import { headQuery } from "@/pages/billing/queries";
import { appsQuery, figuresQuery } from "@/pages/functions/queries";
import { FirstSteps } from "./FirstSteps";
import { HEALTH, loadOf } from "./traffic";
import css from "./overview.module.css";

// A part of its own, so that the rest is there before it; asked for at once, so that it is there when the figures are.
const map = import("./WorldMap");
map.catch(() => undefined);
const WorldMap = lazy(() => map.then((module) => ({ default: module.WorldMap })));

type TrafficMap = Schemas["TrafficMap"];

export function OverviewPage() {
  const tenant = useTenant();
  const who = useSession();
  const looks = may(who, "look", tenant);
  const apps = useQuery({ ...appsQuery(tenant), enabled: looks });
  const figures = useQuery({ ...figuresQuery("total", "15m", { tenant }), enabled: looks });
  const traffic = useQuery({ queryKey: ["figures", "traffic", tenant], queryFn: () => body(api.GET("/v1/traffic", { params: { query: { tenant } } })), refetchInterval: 10_000, enabled: looks });
  if (!looks) return <Outside />;
  return (
    <>
      <PageHead title="Overview" lead="The network as it is now." />
      {apps.data?.length === 0 && <FirstSteps />}
      <Loaded query={figures} lines={3}>{(data) => <Numbers figures={data} apps={apps.data?.length} />}</Loaded>
      <div className="columns even">
        <Card title="Regions and traffic" flush>
          <Loaded query={traffic} lines={10}>{(data) => <Suspense fallback={<Loading lines={10} />}><WorldMap traffic={data} /></Suspense>}</Loaded>
        </Card>
        <Card title="Clusters" flush>
          <Loaded query={traffic} isEmpty={(data) => data.clusters.length === 0} empty={<Empty title="No cluster yet" icon="network" action={<Link className="button" to="/network">Clusters and nodes</Link>}>Join a machine with one command, and it appears here.</Empty>}>
            {(data) => <Regions traffic={data} />}
          </Loaded>
        </Card>
      </div>
      <div className="columns">
        <Card title="Last 15 minutes"><Loaded query={figures} lines={8}>{(data) => <Charts figures={data} />}</Loaded></Card>
        <Happening />
      </div>
    </>
  );
}

/** For those who run machines only: no tenant's apps are theirs to look at. */
function Outside() {
  const machines = useMay("look-machines");
  return (
    <>
      <PageHead title="Overview" />
      <Card>
        <Empty title="You are a member of no tenant" icon="access" action={machines ? <Link className="button primary" to="/network">Clusters and nodes</Link> : undefined}>
          {machines ? "As an operator you look after the machines of the network." : "Ask an owner of a tenant to add you; its functions are shown here then."}
        </Empty>
      </Card>
    </>
  );
}

function Numbers({ figures, apps }: { figures: Figures; apps: number | undefined }) {
  const series = figures.series[0];
  const all = series?.sum;
  const quiet = all === undefined || all.calls === 0;
  return (
    <Stats>
      <Stat label="Calls" value={perSecond(recentRate(figures, series))} note={`${compact(all?.calls ?? 0)} in 15 min`} />
      <Stat label="Errors" value={quiet ? "–" : percent(all.errors / all.calls)} note={`${plural(all?.errors ?? 0, "answer")} 5xx`} />
      <Stat label="Time, p50" value={duration(all?.p50_ms)} note="half are faster" />
      <Stat label="Time, p99" value={duration(all?.p99_ms)} note="99 % are faster" />
      <Stat label="Cold starts" value={compact(all?.cold_starts ?? 0)} note={quiet ? "no calls" : `${percent(all.cold_starts / all.calls)} of calls`} />
      <Spend />
      {apps !== undefined && <Stat label="Functions" value={compact(apps)} note={<Link to="/functions">See all of them</Link>} />}
    </Stats>
  );
}

/** What this month has cost so far. Those who may not read bills do not see the place of it. */
function Spend() {
  const tenant = useTenant();
  const who = useSession();
  const allowed = may(who, "read-billing", tenant);
  const bill = useQuery({ ...headQuery("current", tenant), enabled: allowed });
  if (!allowed) return null;
  return <Stat label="This month" value={bill.data === undefined ? "–" : money(bill.data.total)} note={<Link to="/billing">See the bill</Link>} />;
}

function Charts({ figures }: { figures: Figures }) {
  const series = figures.series[0];
  const range = { from: figures.from, to: figures.to, height: 130 };
  return (
    <div className="stack">
      <LineChart {...range} title="Calls per second" format={perSecond} atLeast={0.2} series={[{ name: "calls", points: readings(figures, series, "rate"), color: "--series-1", area: true }]} />
      <LineChart {...range} title="Time to answer" format={duration} atLeast={1} series={[{ name: "p50", points: readings(figures, series, "p50"), color: "--series-2" }, { name: "p99", points: readings(figures, series, "p99"), color: "--series-4" }]} />
    </div>
  );
}

/** How many clusters stand beside the map; the rest is a click away. */
const BESIDE = 40;

function Regions({ traffic }: { traffic: TrafficMap }) {
  const shown = traffic.clusters.length <= BESIDE ? traffic.clusters : [...traffic.clusters].sort((a, b) => b.calls_per_second - a.calls_per_second).slice(0, BESIDE);
  return (
    <ul className={css["regions"]}>
      {shown.map((cluster) => {
        const load = loadOf(cluster);
        const health = HEALTH[cluster.health];
        return (
          <li key={cluster.cluster}>
            <span className="row-tight"><Link to="/network" search={{ q: cluster.cluster }} className="strong">{cluster.cluster}</Link><Badge tone={health.tone} dot>{health.words}</Badge></span>
            <span className="strong num">{perSecond(cluster.calls_per_second)}</span>
            <span className="small muted">{cluster.nodes_alive} of {plural(cluster.nodes_total, "node")} · {percent(cluster.error_rate)} errors</span>
            <span className="small muted num">{cluster.busy} of {cluster.slots} slots</span>
            <span className={css["wide"]}><Bar share={load} label={`${cluster.cluster} is ${percent(load)} busy`} tone={load > 0.9 ? "bad" : load > 0.7 ? "warn" : "good"} /></span>
          </li>
        );
      })}
      {shown.length < traffic.clusters.length && <li><Link to="/network">All {plural(traffic.clusters.length, "cluster")}</Link><span className="small muted num">the busiest are here</span></li>}
    </ul>
  );
}

const KEPT = 12;

/** What happened lately, and goes on happening: the newest events of the stream. */
function Happening() {
  const [events, setEvents] = useState<readonly NetworkEvent[]>([]);
  const tenant = useTenant();
  useEvents((event) => setEvents((before) => [event, ...before].slice(0, KEPT)));
  const canRead = useMay("read-audit", tenant);
  const audit = useQuery({
    queryKey: ["audit", "newest", tenant],
    queryFn: () => body(api.GET("/v1/audit", { params: { query: { limit: KEPT, tenant } } })),
    enabled: canRead,
  });
  const begun = events.map((event) => ({ id: `e${event.id}`, at: event.at, action: event.action, subject: event.subject, detail: event.detail ?? "" }));
  const before = (audit.data ?? []).filter((record) => record.action !== "login").map((record) => ({ id: record.id, at: record.at, action: record.action, subject: record.subject, detail: `by ${record.actor}` }));
  const oldest = begun.at(-1)?.at ?? Number.POSITIVE_INFINITY;
  const rows = [...begun, ...before.filter((row) => row.at < oldest)].slice(0, KEPT);
  return (
    <Card title="What happened" flush actions={canRead ? <Link to="/audit" className="small">Audit log</Link> : undefined}>
      {rows.length === 0 ? <Empty title="Quiet" icon="clock">Deploys, plans and changes of machines appear here as they happen.</Empty> : (
        <ul className={css["events"]}>
          {rows.map((row) => (
            <li key={row.id}><span className="faint"><Ago at={row.at} /></span><span className="break"><b>{row.action}</b> {row.subject} <span className="muted">{row.detail}</span></span></li>
          ))}
        </ul>
      )}
    </Card>
  );
}
