import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useMay } from "@/api/session";
import { usePathParam } from "@/app/params";
import { At, Card, Empty, Loaded, LongList, NoPermission, Pairs, Stat, Stats, Table, type Column } from "@/components";
import { count, duration, percent, place, plural, significant } from "@/format";
import type { Schemas } from "@/api/client";
import { DeviceBar } from "./Devices";
import { colours, used } from "./figures";
import { NODE_COLUMNS } from "./nodeColumns";
import { Alive, Capacity, Crumbs, NetworkFrame, SchedulerStages } from "./parts";
import styles from "./Network.module.css";
import { clusterQuery } from "./queries";

const LINK_COLUMNS: readonly Column<Schemas["ClusterLink"]>[] = [
  { id: "cluster", header: "Cluster", cell: (link) => <Link to={`/network/clusters/${link.cluster}`} className="strong">{link.cluster}</Link>, sort: (link) => link.cluster },
  { id: "rtt", header: "Round trip", cell: (link) => duration(link.rtt_ms), sort: (link) => link.rtt_ms, number: true, width: "8rem" },
  { id: "source", header: "From", cell: (link) => (link.source === "measured" ? "measured between nodes" : "the distance"), sort: (link) => link.source, width: "12rem", from: 480 },
];

/** `/network/clusters/NAME` */
export function ClusterPage() {
  const cluster = usePathParam("cluster");
  const look = useMay("look-machines");
  const operate = useMay("operate-machines");
  const query = useQuery({ ...clusterQuery(cluster), enabled: look });
  const crumbs = <Crumbs to="/network" label="Clusters" />;
  if (!look) return <NetworkFrame title={cluster} crumbs={crumbs}><Card><NoPermission detail="Looking into machines takes the right of an operator of the network." /></Card></NetworkFrame>;
  const join = operate ? <Link to="/network/join" search={{ cluster }} className="button">Join a node</Link> : undefined;
  return (
    <NetworkFrame title={cluster} crumbs={crumbs} actions={join} lead={query.data === undefined ? undefined : `Region ${query.data.info.region}`}>
      <Loaded query={query}>{(detail) => <Detail detail={detail} />}</Loaded>
    </NetworkFrame>
  );
}

function Detail({ detail }: { detail: Schemas["ClusterDetail"] }) {
  const { info, nodes, statuses, stages, head, links } = detail;
  const navigate = useNavigate();
  const devices = statuses.flatMap((status) => (status.devices ?? []).map((device) => ({ node: status.node, device })));
  const palette = colours(devices.map(({ device }) => device));
  const queued = statuses.reduce((sum, status) => sum + (status.queued_work ?? 0), 0);
  return (
    <>
      <Stats>
        <Stat label="Nodes alive" value={count(info.nodes_alive)} unit={`of ${count(info.nodes_total)}`} note={info.nodes_alive < info.nodes_total ? <Alive alive={info.nodes_alive} total={info.nodes_total} /> : "all of them"} />
        <Stat label="Calls running" value={count(info.busy)} unit={`of ${plural(info.slots, "slot")}`} note={`${percent(used(info.slots, info.slots - info.busy))} busy`} />
        <Stat label="Calls waiting" value={count(detail.waiting)} note={`${duration(queued)} of work queued`} />
        <Stat label="Speed" value={`${significant(info.speed)}×`} note="of the reference machine" />
      </Stats>
      <div className="halves even">
        <Card title="Capacity"><Capacity capacity={info.capacity} free={info.free} /></Card>
        <Card title="Where scaling tasks ended">
          {stages == null
            ? <Empty slim title="No instances are scheduled here" icon="info">Functions of this cluster run in the gateways' own processes, so there is nothing to place.</Empty>
            : <SchedulerStages stages={stages} />}
        </Card>
      </div>
      <Card title="Nodes" flush>
        {nodes.length === 0 ? <Empty title="No node yet" icon="network" action={<Link to="/network/join" search={{ cluster: info.cluster }} className="button primary">Join a node</Link>}>Let a machine in with a join token.</Empty>
          : <Table label={`Nodes of ${info.cluster}`} rows={nodes} columns={NODE_COLUMNS.filter((column) => column.id !== "cluster")} rowKey={(node) => node.node} defaultSort="node" rowHeight={52}
              onOpen={(node) => void navigate({ to: `/network/nodes/${node.node}` })} />}
      </Card>
      {devices.length > 0 && <Card title="Devices">
        <LongList label="Devices" rows={devices} rowKey={({ node, device }) => `${node} ${device.id}`} rowHeight={130}>{({ node, device }) => <DeviceBar node={node} device={device} palette={palette} />}</LongList>
      </Card>}
      {links.length > 0 && <Card title="Other clusters" flush>
        <Table label={`Clusters around ${info.cluster}`} rows={links} columns={LINK_COLUMNS} rowKey={(link) => link.cluster} defaultSort="rtt" sortParam="link-sort"
          onOpen={(link) => void navigate({ to: `/network/clusters/${link.cluster}` })} />
      </Card>}
      <Card title="About">
        <Pairs items={[
          ["Position", place(info.location)],
          ["Gateways", <span key="g" className="mono">{info.gateways.length === 0 ? "none" : info.gateways.join(", ")}</span>],
          ["Global scheduler", head == null ? <span key="h" className="muted">no head: nothing needs one here</span> : <span key="h"><Link className={styles.inline} to={`/network/nodes/${head.node}`}>{head.node}</Link>, epoch {head.epoch}, lease until <At at={head.expires_at} /></span>],
          ["Agents", Object.entries(detail.versions).map(([version, nodesOf]) => `${version} on ${plural(nodesOf, "node")}`).join(", ") || "none"],
        ]} />
      </Card>
    </>
  );
}
