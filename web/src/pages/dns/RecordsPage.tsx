/** Text records that were set by hand or by a certificate tool: seen, added, taken away. */
import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { api, body, page, type Page, type Schemas } from "@/api/client";
import { useMay } from "@/api/session";
import { useParam, useTenant } from "@/app/search";
import { Ago, Button, Card, Confirm, Dialog, Empty, ErrorNotice, Failed, Loading, matches, Notice, PagingFoot, SearchBox, Table, TextArea, TextField, usePaging, useToast, type Column } from "@/components";
import { plural, withUnits } from "@/format";
import { spanFault } from "@/format/durations";
import { recordName, textsOf } from "./addresses";
import { DnsFrame } from "./parts";
import styles from "./Dns.module.css";

type Row = Schemas["TxtInfo"];

const KEY = ["dns", "txt"] as const;

/** `/dns/records` */
export function RecordsPage() {
  const tenant = useTenant();
  const may = useMay("manage-records", tenant);
  const [editing, edit] = useState<Row | "new" | null>(null);
  const [filter] = useParam("q");
  const records = useInfiniteQuery({
    queryKey: [...KEY, tenant],
    queryFn: ({ pageParam: cursor }): Promise<Page<Row>> => page(api.GET("/v1/dns/txt", { params: { query: { tenant, limit: 500, cursor } } })),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (last) => last.next ?? undefined,
    refetchInterval: (query) => (query.state.error === null ? 15_000 : false),
  });
  const rows = useMemo(() => records.data?.pages.flatMap((each) => each.rows) ?? [], [records.data]);
  const found = useMemo(() => rows.filter((row) => matches(filter, row.name, row.app, row.updated_by, ...row.values)), [rows, filter]);
  const paging = usePaging(records, filter !== "", found.length);
  const add = may ? <Button kind="primary" icon="plus" onClick={() => edit("new")}>Set text records</Button> : undefined;
  return (
    <DnsFrame title="Text records" lead="TXT records of names in the zone, such as those by which a certificate authority sees that a name is yours. DNS answers them within about a second." actions={add}>
      <Card flush>
        {records.isPending ? <Loading /> : records.error !== null && rows.length === 0 ? <Failed error={records.error} onRetry={() => void records.refetch()} />
          : rows.length === 0 ? <Empty title="No text record yet" icon="dns" action={add}>A certificate tool sets them with <code>fdn dns txt add _acme-challenge.APP.ZONE VALUE</code> and takes them away again.</Empty>
          : (
            <>
              <div className="toolbar"><SearchBox label="Filter by name, value, app or person" found={found.length} /><span className="muted small end">{plural(found.length, "name")}{records.hasNextPage ? " so far" : ""}</span></div>
              {paging.looking ? <Loading /> : found.length === 0 ? <Empty title="No text record matches" icon="filter">Take a word out of the filter.</Empty>
                : <Table label="Text records" rows={found} columns={columns(may, edit)} rowKey={(row) => row.name} defaultSort="name" onEnd={paging.onEnd} />}
              <PagingFoot paging={paging} rows={rows.length} what="name" />
            </>
          )}
      </Card>
      {editing !== null && <EditDialog row={editing === "new" ? undefined : editing} onClose={() => edit(null)} />}
    </DnsFrame>
  );
}

function columns(may: boolean, edit: (row: Row) => void): readonly Column<Row>[] {
  return [
    { id: "name", header: "Name", cell: (row) => <span className="mono truncate" title={row.name}>{row.name}</span>, sort: (row) => row.name, width: "minmax(10rem, 2.6fr)" },
    { id: "values", header: "Values", cell: (row) => <span className="mono truncate" title={row.values.join("\n")}>{row.values.map((value) => `"${value}"`).join(" ")}</span>, sort: (row) => row.values.length, width: "minmax(6rem, 2fr)" },
    { id: "ttl", header: "TTL", cell: (row) => withUnits(row.ttl), number: true, width: "4.5rem", from: 720 },
    { id: "app", header: "App", cell: (row) => (row.app == null ? <span className="muted">the network</span> : <Link to={`/functions/${row.app}`}>{row.app}</Link>), sort: (row) => row.app ?? null, from: 860 },
    { id: "ends", header: "Ends", cell: (row) => <Ago at={row.expires_at} none="never" />, sort: (row) => row.expires_at ?? null, width: "6.5rem", from: 620 },
    { id: "changed", header: "Changed", cell: (row) => <Ago at={row.updated_at} />, sort: (row) => row.updated_at, width: "6.5rem", from: 980 },
    { id: "by", header: "By", cell: (row) => <span className="muted">{row.updated_by}</span>, sort: (row) => row.updated_by, from: 1100 },
    ...(may ? [{ id: "act", header: "", cell: (row: Row) => <RowActions row={row} edit={edit} />, width: "10rem", number: true }] : []),
  ];
}

const put = (name: string, wish: Schemas["SetTxt"]) => body(api.PUT("/v1/dns/txt/{name}", { params: { path: { name } }, body: wish }));

function RowActions({ row, edit }: { row: Row; edit: (row: Row) => void }) {
  const [asked, ask] = useState(false);
  const queries = useQueryClient();
  const say = useToast();
  const refresh = () => queries.invalidateQueries({ queryKey: KEY });
  const remove = async () => {
    await api.DELETE("/v1/dns/txt/{name}", { params: { path: { name: row.name } } });
    const left = row.expires_at == null ? null : Math.max(10, Math.round((row.expires_at - Date.now()) / 1000));
    say({
      text: `Text records of ${row.name} were taken away`,
      undo: async () => {
        await put(row.name, { values: row.values, ttl: row.ttl, expires_in: left === null ? null : `${left}s` });
        await refresh();
      },
    });
    await refresh();
  };
  return (
    <span className="row-tight">
      <Button small onClick={() => edit(row)} aria-label={`Change ${row.name}`}>Change</Button>
      <Button small kind="danger" onClick={() => ask(true)} aria-label={`Remove ${row.name}`}>Remove</Button>
      {asked && (
        <Confirm title={`Take the text records of ${row.name} away?`} action="Take them away" onConfirm={remove} onClose={() => ask(false)}>
          <p>Whoever proves by them that the name is theirs can do so no more. Resolvers keep what they have for {withUnits(row.ttl)}.</p>
        </Confirm>
      )}
    </span>
  );
}

function EditDialog({ row, onClose }: { row: Row | undefined; onClose: () => void }) {
  const network = useQuery({ queryKey: ["network"], queryFn: () => body(api.GET("/v1/network")), staleTime: 3_600_000 });
  const zone = network.data?.zone ?? "";
  const [name, setName] = useState(row?.name ?? "");
  const [text, setText] = useState(row?.values.join("\n") ?? "");
  const [ttl, setTtl] = useState<string>(row?.ttl ?? "60s");
  const [life, setLife] = useState("");
  const queries = useQueryClient();
  const say = useToast();
  const values = textsOf(text);
  const wrong = { ttl: spanFault(ttl), life: spanFault(life) };
  const save = useMutation({
    mutationFn: () => put(recordName(name, zone), { values, ttl: ttl || null, expires_in: life || null }),
    onSuccess: async (saved) => {
      say(`Text records of ${saved.name} are set`);
      await queries.invalidateQueries({ queryKey: KEY });
      onClose();
    },
  });
  const foot = <><Button onClick={onClose}>Cancel</Button><Button type="submit" kind="primary" busy={save.isPending} disabled={name.trim() === "" || values.length === 0 || Object.values(wrong).some((fault) => fault !== undefined)}>Set them</Button></>;
  return (
    <Dialog wide title={row === undefined ? "Set text records" : `Text records of ${row.name}`} onClose={onClose} foot={foot} onSubmit={() => save.mutate()}>
      <TextField label="Name" value={name} disabled={row !== undefined} onChange={(event) => setName(event.target.value)} placeholder={`_acme-challenge.hello.${zone}`} className="mono" spellCheck={false} autoComplete="off"
        hint={zone === "" ? undefined : `Below the host name of an app of yours, with an underscore before the label next to it; without .${zone} is enough.`} />
      <TextArea label="Values" rows={3} value={text} onChange={(event) => setText(event.target.value)} className="mono" spellCheck={false} hint="One a line. These take the place of those that are there." />
      <div className={styles.times}>
        <TextField label="Kept by resolvers (TTL)" value={ttl} onChange={(event) => setTtl(event.target.value)} placeholder="60s" error={wrong.ttl} />
        <TextField label="Go by themselves after" value={life} onChange={(event) => setLife(event.target.value)} placeholder="never" error={wrong.life} />
      </div>
      {row?.expires_at != null && life === "" && <Notice>They end <Ago at={row.expires_at} /> now; set like this, they stay until somebody takes them away.</Notice>}
      <ErrorNotice error={save.error} />
    </Dialog>
  );
}
