import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import { allPages, api, body, page, type Page, type Schemas } from "@/api/client";
import { notOffered } from "@/api/offered";
import { useParam, useTenant } from "@/app/search";
import { Ago, Card, Empty, Failed, Loaded, Loading, matches, Notice, PagingFoot, SearchBox, Table, usePaging, type Column, type Paging } from "@/components";
import { count, group, place, plural } from "@/format";
import { DnsFrame } from "./parts";

type Row = Schemas["BindingDetail"];

/** `/dns/bindings` */
export function BindingsPage() {
  const tenant = useTenant();
  const apps = useQuery({ queryKey: ["apps", tenant], queryFn: () => allPages((cursor) => api.GET("/v1/apps", { params: { query: { tenant, cursor } } })) });
  return (
    <DnsFrame title="Bindings" lead="Which clients of an app are sent to which cluster. DNS answers from these; the longest prefix counts.">
      <Card flush>
        <Loaded query={apps} empty={<Empty title="Nothing is deployed yet" icon="functions" action={<Link to="/functions" className="button primary">Go to functions</Link>}>Bindings are made for apps, as soon as clients ask for them.</Empty>}>
          {(rows) => <Bindings apps={rows} />}
        </Loaded>
      </Card>
    </DnsFrame>
  );
}

function Bindings({ apps }: { apps: readonly Schemas["AppSummary"][] }) {
  const names = apps.map((app) => app.app).sort();
  const [app, setApp] = useParam("app", names[0] ?? "");
  const bindings = useInfiniteQuery({
    queryKey: ["bindings", app],
    queryFn: ({ pageParam }): Promise<Page<Row>> => page(api.GET("/v1/apps/{app}/bindings", { params: { path: { app }, query: { limit: 500, cursor: pageParam } } })),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (last) => last.next ?? undefined,
    refetchInterval: (query) => (query.state.error === null ? 15_000 : false),
  });
  const rows = useMemo(() => bindings.data?.pages.flatMap((each) => each.rows) ?? [], [bindings.data]);
  const [filter] = useParam("q");
  const found = useMemo(() => rows.filter((row) => passes(row, filter)), [rows, filter]);
  const paging = usePaging(bindings, filter !== "", found.length);
  const missing = notOffered(bindings.error);
  const host = apps.find((each) => each.app === app)?.host ?? app;
  return (
    <>
      <div className="toolbar">
        <select className="input compact" aria-label="App" value={app} onChange={(event) => setApp(event.target.value)}>
          {(names.includes(app) ? names : [app, ...names]).map((name) => <option key={name} value={name}>{name}</option>)}
        </select>
        <SearchBox label="Filter by prefix or cluster" />
        <span className="muted small end">{plural(rows.length, "binding")}{bindings.hasNextPage ? " so far" : ""}</span>
      </div>
      {missing ? <Plain app={app} host={host} />
        : bindings.isPending ? <Loading />
        : bindings.error !== null && rows.length === 0 ? <Failed error={bindings.error} onRetry={() => void bindings.refetch()} />
        : <Rows rows={rows} host={host} app={app} paging={paging} />}
    </>
  );
}

/** What older controllers tell of an app's bindings: no places, no demand. */
function Plain({ app, host }: { app: string; host: string }) {
  const detail = useQuery({ queryKey: ["app", app], queryFn: () => body(api.GET("/v1/apps/{app}", { params: { path: { app } } })) });
  return (
    <Loaded query={detail}>
      {(data) => (
        <>
          <div style={{ padding: "0.75rem 1rem" }}><Notice>This controller tells prefix, cluster and revision only; groups, places and demand come with a newer version.</Notice></div>
          <Rows rows={data.bindings.map((binding) => ({ ...binding, group: "–" }))} host={host} app={app} />
        </>
      )}
    </Loaded>
  );
}

function passes(row: Row, filter: string): boolean {
  return matches(filter, row.prefix, row.cluster, row.group);
}

function Rows({ rows, host, app, paging }: { rows: readonly Row[]; host: string; app: string; paging?: Paging }) {
  const [filter] = useParam("q");
  const found = useMemo(() => rows.filter((row) => passes(row, filter)), [rows, filter]);
  const columns: readonly Column<Row>[] = [
    { id: "prefix", header: "Clients", cell: (row) => <Link to="/dns" search={{ name: host, client: row.prefix }} className="mono" title="Look up as one of them">{row.prefix}</Link>, sort: (row) => row.prefix },
    { id: "cluster", header: "Sent to", cell: (row) => <span className="strong">{row.cluster}</span>, sort: (row) => row.cluster },
    { id: "group", header: "Distances, one way", cell: (row) => <span className="muted" title={`Clients at these distances share one plan: ${row.group}`}>{group(row.group)}</span>, sort: (row) => row.group, width: "minmax(10rem, 2.2fr)", from: 760 },
    { id: "place", header: "Where they are", cell: (row) => place(row.location), width: "minmax(8.5rem, 1fr)", from: 900 },
    { id: "queries", header: "Queries", cell: (row) => (typeof row.queries === "number" ? count(row.queries) : "–"), sort: (row) => row.queries, number: true, width: "6rem", from: 480 },
    { id: "seen", header: "Seen", cell: (row) => <Ago at={row.last_seen} none="–" />, sort: (row) => row.last_seen, width: "6rem", from: 560 },
    { id: "revision", header: "Revision", cell: (row) => count(row.revision), sort: (row) => row.revision, number: true, width: "5.5rem", from: 1000 },
  ];
  if (rows.length === 0) return <Empty title="No binding yet" icon="dns" action={<Link to="/dns" search={{ name: host }} className="button">Look {app} up</Link>}>Nobody asked for {host} yet. The first query is answered with the nearest cluster at once, and makes the planner bind the client's prefix.</Empty>;
  return (
    <>
      {paging?.looking === true ? <Loading /> : found.length === 0 ? <Empty title="No binding matches" icon="search">Take a word out of the filter.</Empty>
        : <Table label={`Bindings of ${app}`} rows={found} columns={columns} rowKey={(row) => row.prefix} defaultSort="prefix" onEnd={paging?.onEnd} />}
      {paging !== undefined && <PagingFoot paging={paging} rows={rows.length} what="binding" />}
    </>
  );
}
