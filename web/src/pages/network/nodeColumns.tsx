import { Link } from "@tanstack/react-router";
import type { Schemas } from "@/api/client";
import { Ago, type Column } from "@/components";
import { count, mebibytes, milliCpu, percent, plural } from "@/format";
import { used } from "./figures";
import { NodeBadge, Taken } from "./parts";

type Node = Schemas["NodeInfo"];

export const NODE_COLUMNS: readonly Column<Node>[] = [
  { id: "node", header: "Node", cell: (node) => <Link to={`/network/nodes/${node.node}`} className="strong">{node.node}</Link>, sort: (node) => node.node },
  { id: "state", header: "State", cell: (node) => <NodeBadge node={node} />, sort: (node) => node.state, width: "7rem" },
  { id: "cluster", header: "Cluster", cell: (node) => <Link to={`/network/clusters/${node.cluster}`}>{node.cluster}</Link>, sort: (node) => node.cluster, from: 520 },
  { id: "calls", header: "Calls running", cell: (node) => <Taken share={used(node.slots, node.slots - node.busy)} text={`${count(node.busy)} of ${count(node.slots)}`} label={`${node.node}: ${count(node.busy)} of ${plural(node.slots, "slot")} busy`} />, sort: (node) => node.busy, width: "8rem", from: 420 },
  { id: "cpu", header: "CPU reserved", cell: (node) => <Taken share={used(node.capacity.cpu_milli, node.free.cpu_milli)} text={`${percent(used(node.capacity.cpu_milli, node.free.cpu_milli))} of ${milliCpu(node.capacity.cpu_milli)}`} label={`${node.node}: CPU reserved`} />, sort: (node) => used(node.capacity.cpu_milli, node.free.cpu_milli), width: "7.5rem", from: 760 },
  { id: "memory", header: "Memory reserved", cell: (node) => <Taken share={used(node.capacity.memory_mib, node.free.memory_mib)} text={`${percent(used(node.capacity.memory_mib, node.free.memory_mib))} of ${mebibytes(node.capacity.memory_mib)}`} label={`${node.node}: memory reserved`} />, sort: (node) => used(node.capacity.memory_mib, node.free.memory_mib), width: "8rem", from: 860 },
  { id: "version", header: "Agent", cell: (node) => node.version, sort: (node) => node.version, width: "5rem", from: 980 },
  { id: "seen", header: "Seen", cell: (node) => <Ago at={node.seen_at} />, sort: (node) => node.seen_at, width: "6rem", from: 640 },
];
