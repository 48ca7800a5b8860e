import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { usePathParam } from "@/app/params";
import { api, body, type Schemas } from "@/api/client";
import { useMay } from "@/api/session";
import { Ago, At, Badge, Button, Card, Check, Confirm, Copyable, Empty, Loaded, NoPermission, Notice, Pairs, Stat, Stats, Table, useToast, useToastError, type Column } from "@/components";
import { count, duration, percent, plural, significant } from "@/format";
import { DeviceBar } from "./Devices";
import { colours, used } from "./figures";
import { Capacity, Crumbs, NetworkFrame, NodeBadge, SchedulerStages } from "./parts";
import styles from "./Network.module.css";
import { nodeQuery } from "./queries";

type NodeApp = Schemas["AppObserved"];

/** `/network/nodes/NAME` */
export function NodePage() {
  const node = usePathParam("node");
  const [removed, setRemoved] = useState(false);
  const look = useMay("look-machines");
  const operate = useMay("operate-machines");
  const query = useQuery({ ...nodeQuery(node), enabled: look && !removed });
  if (!look) return <NetworkFrame title={node} crumbs={<Crumbs to="/network" label="Clusters" />}><Card><NoPermission detail="Looking into machines takes the right of an operator of the network." /></Card></NetworkFrame>;
  return (
    <NetworkFrame title={node} crumbs={<Crumbs to="/network/nodes" label="Nodes" />}
      lead={query.data === undefined ? undefined : <>In <Link className={styles.inline} to={`/network/clusters/${query.data.info.cluster}`}>{query.data.info.cluster}</Link>, region {query.data.region}</>}
      actions={operate && query.data !== undefined ? <Actions info={query.data.info} onRemoved={() => setRemoved(true)} /> : undefined}>
      <Loaded query={query}>{(detail) => <Detail detail={detail} />}</Loaded>
    </NetworkFrame>
  );
}

function Actions({ info, onRemoved }: { info: Schemas["NodeInfo"]; onRemoved: () => void }) {
  const { node } = info;
  const [asked, ask] = useState<"drain" | "remove" | null>(null);
  const queries = useQueryClient();
  const say = useToast();
  const sayError = useToastError();
  const refresh = () => Promise.all([queries.invalidateQueries({ queryKey: ["nodes"] }), queries.invalidateQueries({ queryKey: ["clusters"] })]);
  const uncordon = useMutation({
    mutationFn: () => body(api.POST("/v1/nodes/{node}/uncordon", { params: { path: { node } } })),
    onSuccess: async () => {
      say(`${node} takes work again`);
      await refresh();
    },
    onError: sayError,
  });
  const drain = async () => {
    await body(api.POST("/v1/nodes/{node}/drain", { params: { path: { node } } }));
    say({ text: `${node} is being drained`, undo: () => uncordon.mutateAsync() });
    await refresh();
  };
  return (
    <>
      {info.cordoned
        ? <Button icon="play" busy={uncordon.isPending} onClick={() => uncordon.mutate()}>Uncordon</Button>
        : <Button icon="pause" onClick={() => ask("drain")}>Drain</Button>}
      <Button kind="danger" icon="trash" onClick={() => ask("remove")}>Remove</Button>
      {asked === "drain" && (
        <Confirm title={`Drain ${node}?`} action="Drain" onConfirm={drain} onClose={() => ask(null)}>
          <p>It takes no new work: DNS no longer answers with it, and what runs there ends by itself. {info.busy > 0 ? `${plural(info.busy, "call")} ${info.busy === 1 ? "runs" : "run"} there now.` : "No call runs there now."}</p>
          <p>Uncordon takes it back into service at any time.</p>
        </Confirm>
      )}
      {asked === "remove" && <Remove info={info} onClose={() => ask(null)} onRemoved={onRemoved} />}
    </>
  );
}

function Remove({ info, onClose, onRemoved }: { info: Schemas["NodeInfo"]; onClose: () => void; onRemoved: () => void }) {
  const { node, state } = info;
  const [force, setForce] = useState(false);
  const queries = useQueryClient();
  const navigate = useNavigate();
  const say = useToast();
  const works = state === "alive" || state === "draining";
  const remove = async () => {
    await api.DELETE("/v1/nodes/{node}", { params: { path: { node }, query: force ? { force } : {} } });
    onRemoved();
    say(`${node} was removed`);
    queries.removeQueries({ queryKey: ["nodes", node] });
    void queries.invalidateQueries({ queryKey: ["clusters"] });
    await navigate({ to: "/network/nodes" });
  };
  return (
    <Confirm title={`Remove ${node}?`} action="Remove the node" word={node} onConfirm={remove} onClose={onClose}>
      <p>Its certificates no longer count and its name is free. To come back, the machine has to join anew.</p>
      {works && <Notice tone="warn">It is {state}. Drain it first, so that no call is cut short; or remove it although it works.</Notice>}
      {works && <Check label="Remove it although it works" checked={force} onChange={(event) => setForce(event.target.checked)} />}
    </Confirm>
  );
}

function Detail({ detail }: { detail: Schemas["NodeDetail"] }) {
  const { info, status, certificate } = detail;
  const devices = status?.devices ?? [];
  const palette = colours(devices);
  return (
    <>
      <Stats>
        <Stat label="State" value={<NodeBadge node={info} />} note={<>seen <Ago at={info.seen_at} /></>} />
        <Stat label="Calls running" value={count(info.busy)} unit={`of ${plural(info.slots, "slot")}`} note={`${percent(used(info.slots, info.slots - info.busy))} busy`} />
        <Stat label="Calls waiting" value={status == null ? "–" : count(status.waiting ?? 0)} note={status == null ? "it says nothing now" : `${duration(status.queued_work)} of work queued`} />
        <Stat label="Speed" value={status == null ? "–" : `${significant(status.speed)}×`} note="of the reference machine" />
      </Stats>
      <div className="halves even">
        <Card title="Capacity"><Capacity capacity={info.capacity} free={info.free} /></Card>
        <Card title="About">
          <Pairs items={[
            ["Gateway", <Copyable key="g" text={info.gateway} what="address of the gateway" />],
            ["Health, metrics, logs", <Copyable key="a" text={info.admin} what="address of health and metrics" />],
            ["Agent", info.version],
            status?.stage_calls == null ? null : ["Stage calls", <span key="s" className="mono">{status.stage_calls}</span>],
            ["Let in", detail.enrolled_at == null ? "by the network's own token" : <At key="e" at={detail.enrolled_at} />],
            certificate == null ? null : ["Certificate", <span key="c"><span className="mono break">{certificate.serial}</span>, until <At at={certificate.expires_at} /></span>],
          ]} />
        </Card>
      </div>
      {status?.stages != null && <Card title="Where scaling tasks ended"><SchedulerStages stages={status.stages} /></Card>}
      {devices.length > 0 && <Card title="Devices">{devices.map((device) => <DeviceBar key={device.id} node={info.node} device={device} palette={palette} />)}</Card>}
      <Card title="Apps" flush>
        {info.apps.length === 0 ? <Empty title="No app is here" icon="functions">What is deployed reaches a node within seconds of its joining.</Empty>
          : <Table label={`Apps on ${info.node}`} rows={info.apps} columns={APPS} rowKey={(app) => app.app} defaultSort="app" />}
      </Card>
    </>
  );
}

const APPS: readonly Column<NodeApp>[] = [
  { id: "app", header: "App", cell: (app) => <span className="strong">{app.app}</span>, sort: (app) => app.app },
  { id: "phase", header: "Phase", cell: (app) => <Phase app={app} />, sort: (app) => app.phase.phase },
  { id: "calls", header: "Calls", cell: (app) => count(app.invocations), sort: (app) => app.invocations, number: true, width: "6rem" },
  { id: "errors", header: "Errors", cell: (app) => <span className={app.errors > 0 ? "bad" : undefined}>{count(app.errors)}</span>, sort: (app) => app.errors, number: true, width: "6rem", from: 480 },
  { id: "mean", header: "Mean time", cell: (app) => (app.invocations === 0 ? "–" : duration(app.execution_mean)), sort: (app) => app.execution_mean, number: true, width: "7rem", from: 620 },
  { id: "instances", header: "Instances", cell: (app) => count(app.instances ?? 0), sort: (app) => app.instances ?? 0, number: true, width: "6rem", from: 760 },
];

function Phase({ app }: { app: NodeApp }) {
  const { phase } = app;
  if (phase.phase === "failed") return <Badge tone="bad" title={phase.reason}>failed: {phase.reason}</Badge>;
  if (app.degraded != null) return <Badge tone="warn" title={app.degraded}>degraded</Badge>;
  return <Badge tone={phase.phase === "ready" ? "good" : "info"}>{phase.phase}</Badge>;
}
