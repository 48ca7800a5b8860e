import { useInfiniteQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, page, type Schemas } from "@/api/client";
import { useMay } from "@/api/session";
import { useParam, useSetParams, useTenant } from "@/app/search";
import { Ago, At, Button, Card, Code, Copyable, Dialog, Empty, Failed, Field, Loading, NoPermission, PageHead, PagingFoot, Pairs, Table, usePaging, type Column } from "@/components";
import { plural } from "@/format";
import { sinceOf } from "./since";

type Entry = Schemas["AuditRecord"];

const PAGE = 200;

/** Who changed what, newest first. The filters are the controller's own and stand in the address. */
export function AuditPage() {
  const may = useMay("read-audit", useTenant());
  return (
    <>
      <PageHead title="Audit log" lead="Every change that was made through the API: who, what, when, from where. Entries are never changed or removed." />
      {may ? <Log /> : <Card><NoPermission detail="Reading the audit log takes the right of an owner." /></Card>}
    </>
  );
}

function Log() {
  const tenant = useTenant();
  const [actor] = useParam("actor");
  const [action] = useParam("action");
  const [subject] = useParam("subject");
  const [span] = useParam("since");
  const [entry, open] = useParam("entry", "", true);
  const log = useInfiniteQuery({
    queryKey: ["audit", tenant, actor, action, subject, span],
    queryFn: ({ pageParam }) => page(api.GET("/v1/audit", { params: { query: {
      limit: PAGE, tenant, cursor: pageParam,
      actor: actor === "" ? undefined : actor, action: action === "" ? undefined : action, subject: subject === "" ? undefined : subject,
      since: sinceOf(span, Date.now()),
    } } })),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (last) => last.next ?? undefined,
  });
  const rows = log.data?.pages.flatMap((each) => each.rows) ?? [];
  const opened = rows.find((each) => each.id === entry);
  const paging = usePaging(log, false, rows.length);
  return (
    <>
      <Card flush>
        <Filters />
        {log.data === undefined ? (log.isError ? <Failed error={log.error} onRetry={() => void log.refetch()} /> : <Loading lines={10} />) : rows.length === 0 ? (
          <Empty title="No entries" icon="audit">Nothing was changed that matches the filters.</Empty>
        ) : (
          <Table label="Audit log" rows={rows} columns={COLUMNS} rowKey={(each) => each.id} onOpen={(each) => open(each.id)} onEnd={paging.onEnd} />
        )}
        {log.data !== undefined && <PagingFoot paging={paging} rows={rows.length} what="entry" whats="entries" />}
        {log.data !== undefined && <div className="card-foot">{plural(rows.length, "entry", "entries")}{log.hasNextPage && ", more as you scroll"}</div>}
      </Card>
      {opened !== undefined && <EntryDialog entry={opened} onClose={() => open("")} />}
    </>
  );
}

const COLUMNS: readonly Column<Entry>[] = [
  { id: "at", header: "When", width: "13rem", cell: (each) => <At at={each.at} />, from: 760 },
  { id: "ago", header: "When", width: "5.5rem", cell: (each) => <Ago at={each.at} />, until: 760 },
  { id: "actor", header: "Who", width: "minmax(5rem, 1fr)", cell: (each) => <b>{each.actor}</b> },
  { id: "action", header: "What", width: "minmax(6rem, 1fr)", cell: (each) => each.action, from: 560 },
  { id: "both", header: "What", width: "minmax(8rem, 2fr)", cell: (each) => <>{each.action}<span className="sub mono">{each.subject}</span></>, until: 560 },
  { id: "subject", header: "To what", width: "minmax(8rem, 2fr)", cell: (each) => <span className="mono">{each.subject}</span>, from: 560 },
  { id: "address", header: "From", width: "9rem", cell: (each) => <span className="mono muted">{each.address ?? "–"}</span>, from: 900 },
];

const SPANS = [["", "All times"], ["1h", "Last hour"], ["24h", "Last day"], ["7d", "Last week"], ["30d", "Last 30 days"]] as const;

function Filters() {
  const [actor] = useParam("actor");
  const [action] = useParam("action");
  const [subject] = useParam("subject");
  const [span, setSpan] = useParam("since");
  const set = useSetParams();
  const [typed, setTyped] = useState({ actor, action, subject });
  const apply = () => set({ actor: typed.actor.trim(), action: typed.action.trim(), subject: typed.subject.trim() });
  const reset = () => {
    const none = { actor: "", action: "", subject: "" };
    setTyped(none);
    set({ ...none, since: "" });
  };
  return (
    <form className="toolbar audit-filters" onSubmit={(event) => { event.preventDefault(); apply(); }}>
      {(["actor", "action", "subject"] as const).map((part) => (
        <Field key={part} label={{ actor: "Who", action: "What", subject: "To what" }[part]}>
          {(control) => <input {...control} className="input" value={typed[part]} spellCheck={false} autoComplete="off" placeholder={{ actor: "ann", action: "deploy", subject: "app/hello" }[part]} onChange={(event) => setTyped({ ...typed, [part]: event.target.value })} onBlur={apply} />}
        </Field>
      ))}
      <Field label="When">
        {(control) => <select {...control} className="input" value={span} onChange={(event) => setSpan(event.target.value)}>{SPANS.map(([value, label]) => <option key={value} value={value}>{label}</option>)}</select>}
      </Field>
      <div className="row"><Button type="submit" icon="filter">Filter</Button>{[actor, action, subject, span].some((each) => each !== "") && <Button kind="ghost" onClick={reset}>Show all</Button>}</div>
    </form>
  );
}

function EntryDialog({ entry, onClose }: { entry: Entry; onClose: () => void }) {
  const show = (value: unknown) => JSON.stringify(value, null, 2);
  return (
    <Dialog title={`${entry.action} ${entry.subject}`} onClose={onClose} wide>
      <Pairs items={[
        ["When", <At key="w" at={entry.at} />],
        ["Who", <b key="a">{entry.actor}</b>],
        ["From", entry.address ?? "–"],
        entry.token !== null && entry.token !== undefined && ["By the token", <span key="t" className="mono">{entry.token}</span>],
        entry.request !== null && entry.request !== undefined && ["Request", <Copyable key="r" text={entry.request} what="request id" />],
      ]} />
      {entry.before !== null && entry.before !== undefined && <div className="stack-s"><h3>Before</h3><Code text={show(entry.before)} label="state before" maxHeight="18rem" wrap /></div>}
      {entry.after !== null && entry.after !== undefined && <div className="stack-s"><h3>After</h3><Code text={show(entry.after)} label="state after" maxHeight="18rem" wrap /></div>}
    </Dialog>
  );
}
