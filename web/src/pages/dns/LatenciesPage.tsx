import { useInfiniteQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api, page, type Page, type Schemas } from "@/api/client";
import { notOffered } from "@/api/offered";
import { useMay } from "@/api/session";
import { useParam } from "@/app/search";
import { Card, Empty, Failed, Loading, matches, NoPermission, PagingFoot, SearchBox, Table, usePaging, type Column } from "@/components";
import { NotOffered } from "@/components/NotOffered";
import { duration, place, plural } from "@/format";
import { DnsFrame } from "./parts";

type Row = Schemas["LatencyRow"];

const LEAD = "How far each client prefix is from each cluster, there and back: measured, or estimated from where it is.";

/** `/dns/latencies` */
export function LatenciesPage() {
  const look = useMay("look-machines");
  return <DnsFrame title="Latencies" lead={LEAD}><Card flush>{look ? <Latencies /> : <NoPermission detail="The latency map takes the right to look at machines." />}</Card></DnsFrame>;
}

function Latencies() {
  const [filter] = useParam("q");
  const list = useInfiniteQuery({
    queryKey: ["latencies"],
    queryFn: ({ pageParam }): Promise<Page<Row>> => page(api.GET("/v1/latencies", { params: { query: { limit: 500, cursor: pageParam } } })),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (last) => last.next ?? undefined,
  });
  const rows = useMemo(() => list.data?.pages.flatMap((each) => each.rows) ?? [], [list.data]);
  const clusters = useMemo(() => [...new Set(rows.flatMap((row) => row.clusters.map((each) => each.cluster)))].sort(), [rows]);
  const found = useMemo(() => rows.filter((row) => matches(filter, row.prefix, row.clusters[0]?.cluster)), [rows, filter]);
  const paging = usePaging(list, filter !== "", found.length);
  if (notOffered(list.error)) return <NotOffered what="The latency map" />;
  if (list.isPending) return <Loading />;
  if (list.error !== null && rows.length === 0) return <Failed error={list.error} onRetry={() => void list.refetch()} />;
  if (rows.length === 0) return <Empty title="No prefix is known yet" icon="dns">Prefixes appear here when their place is configured or when agents have measured them.</Empty>;
  const columns: readonly Column<Row>[] = [
    { id: "prefix", header: "Clients", cell: (row) => <span className="mono">{row.prefix}</span>, sort: (row) => row.prefix, width: "minmax(7rem, 1.2fr)" },
    { id: "place", header: "Where they are", cell: (row) => place(row.location), from: 720, width: "minmax(9rem, 1fr)" },
    { id: "nearest", header: "Nearest", cell: (row) => <span className="strong">{row.clusters[0]?.cluster ?? "–"}</span>, sort: (row) => row.clusters[0]?.cluster, width: "minmax(4rem, 1fr)" },
    { id: "far", header: "Round trip", cell: (row) => <To row={row} cluster={row.clusters[0]?.cluster ?? ""} />, number: true, width: "5.5rem", until: 560 },
    ...clusters.slice(0, 8).map((cluster, index): Column<Row> => ({
      id: `to-${cluster}`, header: cluster, number: true, width: "minmax(5.5rem, 1fr)", from: 560 + index * 110,
      cell: (row) => <To row={row} cluster={cluster} />,
      sort: (row) => row.clusters.find((each) => each.cluster === cluster)?.rtt_ms,
    })),
  ];
  return (
    <>
      <div className="toolbar"><SearchBox label="Filter by prefix or nearest cluster" found={found.length} /><span className="muted small end">{plural(found.length, "prefix", "prefixes")}; ~ is an estimate by distance</span></div>
      {paging.looking ? <Loading /> : found.length === 0 ? <Empty title="No prefix matches" icon="search">Take a word out of the filter.</Empty>
        : <Table label="Latencies" rows={found} columns={columns} rowKey={(row) => row.prefix} defaultSort="prefix" onEnd={paging.onEnd} />}
      <PagingFoot paging={paging} rows={rows.length} what="prefix" whats="prefixes" />
    </>
  );
}

function To({ row, cluster }: { row: Row; cluster: string }) {
  const found = row.clusters.find((each) => each.cluster === cluster);
  if (found === undefined) return <span className="faint">–</span>;
  const nearest = row.clusters[0]?.cluster === cluster;
  const mark = found.source === "measured" ? "" : "~";
  return <span className={nearest ? "good strong" : undefined} title={found.source}>{mark}{duration(found.rtt_ms)}</span>;
}
