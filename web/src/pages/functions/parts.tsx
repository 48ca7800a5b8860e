/** Small parts that several pages about functions show. */
import { Badge } from "@/components";
import { count, plural } from "@/format";
import type { App, Version } from "./queries";

/** Whether all nodes serve the current version. */
export function Readiness({ app }: { app: Pick<App, "nodes_ready" | "nodes_total"> }) {
  const { nodes_ready: ready, nodes_total: total } = app;
  if (total === 0) return <Badge tone="warn" dot>no nodes</Badge>;
  if (ready >= total) return <Badge tone="good" dot>ready</Badge>;
  return <Badge tone="warn" dot>{count(ready)} of {plural(total, "node")}</Badge>;
}

/** The labels of a function or version. */
export function LabelList({ labels }: { labels: Readonly<Record<string, string>> | undefined }) {
  const entries = Object.entries(labels ?? {});
  if (entries.length === 0) return <span className="faint">none</span>;
  return <span className="row">{entries.map(([name, value]) => <Badge key={name}>{value === "" ? name : `${name}: ${value}`}</Badge>)}</span>;
}

/** The version that calls go to unless traffic is split, and what it is marked as. */
export function VersionMarks({ version, current, shares }: { version: Version; current: number; shares: ReadonlyMap<number, number> }) {
  const share = shares.get(version.version);
  return (
    <span className="row-tight">
      {version.version === current && <Badge tone="accent" dot>current</Badge>}
      {share !== undefined && <Badge tone="info">{share} % of calls</Badge>}
      {version.bad !== null && version.bad !== undefined && <Badge tone="bad" dot title={version.bad.reason}>rolled back</Badge>}
    </span>
  );
}
