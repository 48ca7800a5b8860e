/** Parts that several network pages show. */
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import type { Schemas } from "@/api/client";
import { useMay } from "@/api/session";
import { Badge, Bar, PageHead, TabLinks, type Tone } from "@/components";
import { count, mebibytes, milliCpu, significant } from "@/format";
import { used } from "./figures";
import styles from "./Network.module.css";

type Resources = Schemas["Resources"];

export function NetworkFrame({ title, lead, actions, crumbs, children }: { title: string; lead?: ReactNode; actions?: ReactNode; crumbs?: ReactNode; children: ReactNode }) {
  const look = useMay("look-machines");
  const operate = useMay("operate-machines");
  const tabs = [
    { to: "/network", label: "Clusters" },
    ...(look ? [{ to: "/network/nodes", label: "Nodes" }, { to: "/network/devices", label: "Devices" }] : []),
    ...(operate ? [{ to: "/network/join", label: "Join a node" }] : []),
  ];
  return (
    <>
      <PageHead title={title} lead={lead} actions={actions} crumbs={crumbs} />
      {crumbs === undefined && <TabLinks label="Parts of the network" items={tabs} />}
      {children}
    </>
  );
}

export function Crumbs({ to, label }: { to: string; label: string }) {
  return <><Link to="/network">Network</Link>{to !== "/network" && <> / <Link to={to}>{label}</Link></>}</>;
}

const STATES: Readonly<Record<Schemas["NodeState"], Tone>> = { joined: "info", alive: "good", draining: "warn", drained: "neutral", lost: "bad" };

export function NodeBadge({ node }: { node: Schemas["NodeInfo"] }) {
  return <Badge tone={STATES[node.state]} dot>{node.state}</Badge>;
}

export function Alive({ alive, total }: { alive: number; total: number }) {
  const tone = total === 0 ? "neutral" : alive === total ? "good" : alive === 0 ? "bad" : "warn";
  return <Badge tone={tone} dot>{total === 0 ? "no node" : `${count(alive)} of ${count(total)}`}</Badge>;
}

export function toneOf(share: number): { tone?: "warn" | "bad" } {
  return share >= 0.95 ? { tone: "bad" } : share >= 0.8 ? { tone: "warn" } : {};
}

/** How much of something is taken: the figure and a bar. */
export function Taken({ share, text, label }: { share: number; text: string; label: string }) {
  return (
    <div className={styles.taken}>
      <span className="nowrap">{text}</span>
      <Bar share={share} label={label} {...toneOf(share)} />
    </div>
  );
}

export function Capacity({ capacity, free }: { capacity: Resources; free: Resources }) {
  const gpu = capacity.gpu_memory_mib ?? 0;
  const gpuFree = free.gpu_memory_mib ?? 0;
  const rows = [
    { name: "CPU", share: used(capacity.cpu_milli, free.cpu_milli), text: `${significant((capacity.cpu_milli - free.cpu_milli) / 1000)} of ${milliCpu(capacity.cpu_milli)}` },
    { name: "Memory", share: used(capacity.memory_mib, free.memory_mib), text: `${mebibytes(capacity.memory_mib - free.memory_mib)} of ${mebibytes(capacity.memory_mib)}` },
    ...(gpu > 0 ? [{ name: "GPU memory", share: used(gpu, gpuFree), text: `${mebibytes(gpu - gpuFree)} of ${mebibytes(gpu)}` }] : []),
  ];
  return (
    <dl className={styles.capacity}>
      {rows.map((row) => (
        <div key={row.name}>
          <dt>{row.name}</dt>
          <dd><span>{row.text} reserved</span><Bar share={row.share} label={`${row.name}: ${row.text} reserved`} {...toneOf(row.share)} /></dd>
        </div>
      ))}
    </dl>
  );
}

const STAGES: readonly { key: keyof Schemas["StageCounts"]; name: string; says: string }[] = [
  { key: "local", name: "Local", says: "placed on the node that they came to" },
  { key: "probe", name: "Probe", says: "placed on one of two nodes that were asked" },
  { key: "global", name: "Global", says: "placed by the global scheduler" },
  { key: "refused", name: "Refused", says: "no room anywhere" },
];

/** At which stage of the schedulers scaling tasks ended. */
export function SchedulerStages({ stages }: { stages: Schemas["StageCounts"] }) {
  const total = STAGES.reduce((sum, { key }) => sum + stages[key], 0);
  return (
    <dl className={styles.capacity}>
      {STAGES.map(({ key, name, says }) => {
        const share = total === 0 ? 0 : stages[key] / total;
        return (
          <div key={key}>
            <dt>{name} <span className="faint small">{says}</span></dt>
            <dd><span>{count(stages[key])}{total > 0 && ` (${Math.round(share * 100)} %)`}</span><Bar share={share} label={`${name}: ${count(stages[key])} of ${count(total)} tasks`} {...(key === "refused" ? { tone: "bad" as const } : {})} /></dd>
          </div>
        );
      })}
    </dl>
  );
}
