import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { useMay } from "@/api/session";
import type { Schemas } from "@/api/client";
import { useParam } from "@/app/search";
import { Button, Card, Empty, Loaded, matches, SearchBox, Stat, Stats, Table, type Column } from "@/components";
import { count, mebibytes, milliCpu, percent, plural, significant } from "@/format";
import { NewCluster } from "./NewCluster";
import { totals, used } from "./figures";
import { Alive, NetworkFrame, Taken } from "./parts";
import { clustersQuery } from "./queries";

type Row = Schemas["ClusterInfo"];

const gpuOf = (row: Row) => row.capacity.gpu_memory_mib ?? 0;

function columns(detail: boolean): readonly Column<Row>[] {
  return [
    { id: "cluster", header: "Cluster", cell: (row) => (detail ? <Link to={`/network/clusters/${row.cluster}`} className="strong">{row.cluster}</Link> : <span className="strong">{row.cluster}</span>), sort: (row) => row.cluster },
    { id: "region", header: "Region", cell: (row) => row.region, sort: (row) => row.region, from: 560 },
    { id: "nodes", header: "Nodes alive", cell: (row) => <Alive alive={row.nodes_alive} total={row.nodes_total} />, sort: (row) => row.nodes_alive, width: "6.5rem" },
    { id: "calls", header: "Calls running", cell: (row) => <Taken share={used(row.slots, row.slots - row.busy)} text={`${count(row.busy)} of ${count(row.slots)}`} label={`${row.cluster}: ${count(row.busy)} of ${plural(row.slots, "slot")} busy`} />, sort: (row) => row.busy, width: "8rem", from: 420 },
    { id: "cpu", header: "CPU reserved", cell: (row) => <Taken share={used(row.capacity.cpu_milli, row.free.cpu_milli)} text={`${percent(used(row.capacity.cpu_milli, row.free.cpu_milli))} of ${milliCpu(row.capacity.cpu_milli)}`} label={`${row.cluster}: ${percent(used(row.capacity.cpu_milli, row.free.cpu_milli))} of its CPU reserved`} />, sort: (row) => used(row.capacity.cpu_milli, row.free.cpu_milli), width: "7.5rem", from: 760 },
    { id: "memory", header: "Memory reserved", cell: (row) => <Taken share={used(row.capacity.memory_mib, row.free.memory_mib)} text={`${percent(used(row.capacity.memory_mib, row.free.memory_mib))} of ${mebibytes(row.capacity.memory_mib)}`} label={`${row.cluster}: ${percent(used(row.capacity.memory_mib, row.free.memory_mib))} of its memory reserved`} />, sort: (row) => used(row.capacity.memory_mib, row.free.memory_mib), width: "8rem", from: 860 },
    { id: "gpu", header: "GPU reserved", cell: (row) => (gpuOf(row) === 0 ? <span className="faint">none</span> : <Taken share={used(gpuOf(row), row.free.gpu_memory_mib ?? 0)} text={`${percent(used(gpuOf(row), row.free.gpu_memory_mib ?? 0))} of ${mebibytes(gpuOf(row))}`} label={`${row.cluster}: ${percent(used(gpuOf(row), row.free.gpu_memory_mib ?? 0))} of its GPU memory reserved`} />), sort: gpuOf, width: "8rem", from: 1000 },
    { id: "speed", header: "Speed", cell: (row) => `${significant(row.speed)}×`, sort: (row) => row.speed, number: true, width: "4.5rem", from: 1060 },
  ];
}

/** `/network` */
export function NetworkPage() {
  const look = useMay("look-machines");
  const operate = useMay("operate-machines");
  const navigate = useNavigate();
  const [filter] = useParam("q");
  const [making, make] = useState(false);
  const list = useQuery(clustersQuery);
  const actions = operate ? <><Button icon="plus" onClick={() => make(true)}>New cluster</Button><Link to="/network/join" className="button primary">Join a node</Link></> : undefined;
  return (
    <NetworkFrame title="Clusters and nodes" lead="The machines of the network, and what is free on them." actions={actions}>
      {list.data !== undefined && <Figures clusters={list.data} />}
      <Card flush>
        <Loaded query={list} empty={<Empty title="No cluster yet" icon="network" action={actions}>{operate ? "Make a cluster, then let a machine into it with a join token." : "An operator of the network makes clusters."}</Empty>}>
          {(rows) => {
            const found = rows.filter((row) => matches(filter, row.cluster, row.region));
            return (
              <>
                <div className="toolbar"><SearchBox label="Filter by cluster or region" found={found.length} /></div>
                {found.length === 0 ? <Empty title="No cluster matches" icon="search">Take a word out of the filter.</Empty> : (
                  <Table label="Clusters" rows={found} columns={columns(look)} rowKey={(row) => row.cluster} defaultSort="cluster" rowHeight={52}
                    {...(look ? { onOpen: (row: Row) => void navigate({ to: `/network/clusters/${row.cluster}` }) } : {})} />
                )}
              </>
            );
          }}
        </Loaded>
      </Card>
      {making && <NewCluster onClose={() => make(false)} />}
    </NetworkFrame>
  );
}

function Figures({ clusters }: { clusters: readonly Row[] }) {
  const all = totals(clusters);
  return (
    <Stats>
      <Stat label="Clusters" value={count(all.clusters)} unit={`in ${plural(new Set(clusters.map((each) => each.region)).size, "region")}`} />
      <Stat label="Nodes alive" value={count(all.alive)} unit={`of ${count(all.nodes)}`} />
      <Stat label="Calls running" value={count(all.busy)} unit={`of ${plural(all.slots, "slot")}`} />
      <Stat label="Load" value={percent(used(all.slots, all.slots - all.busy))} unit="of all slots" />
    </Stats>
  );
}
