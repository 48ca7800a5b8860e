import { useQuery } from "@tanstack/react-query";
import type { Schemas } from "@/api/client";
import { useParam } from "@/app/search";
import { Badge, Button, Card, Clock, Empty, Loaded, matches, Notice, SearchBox, Segmented, Table, type Column } from "@/components";
import { bytes, duration, plural } from "@/format";
import { callsQuery, LIMIT } from "../queries";
import { useAppName } from "./useApp";

type Call = Schemas["CallLine"];

const SPANS = [{ value: "15m", label: "15 min" }, { value: "", label: "1 h" }, { value: "24h", label: "24 h" }] as const;
const STATUSES = [{ value: "", label: "All" }, { value: "2xx", label: "2xx" }, { value: "4xx", label: "4xx" }, { value: "5xx", label: "5xx" }] as const;

/** Single calls, as the nodes keep them that they came to. */
export function Calls() {
  const name = useAppName();
  const [text] = useParam("q");
  const [span, setSpan] = useParam("span");
  const [status, setStatus] = useParam("status");
  const calls = useQuery(callsQuery(name, span, status));
  return (
    <Card flush>
      <Loaded query={calls} lines={8}>
        {(list) => {
          const found = list.calls.filter((call) => matches(text, call.request, call.trace, call.node, call.outcome, call.method));
          return (
            <>
              <div className="toolbar">
                <SearchBox label="Filter by request, trace, node or outcome" found={found.length} />
                <Segmented label="Status" value={status} onChange={setStatus} options={STATUSES} />
                <span className="end" />
                <Segmented label="Time" value={span} onChange={setSpan} options={SPANS} />
                <Button small busy={calls.isFetching} onClick={() => void calls.refetch()}>Refresh</Button>
              </div>
              {(list.silent?.length ?? 0) > 0 && <div className="card-body"><Notice tone="warn">Without answer, so their calls are missing: {list.silent?.join(", ")}.</Notice></div>}
              {found.length === 0 ? (
                list.calls.length === 0 ? <Empty title="No such calls" icon="audit">Calls appear here as soon as they have ended, for as long as their nodes keep them.</Empty>
                  : <Empty title="Nothing matches" icon="search">{plural(list.calls.length, "call")} {list.calls.length === 1 ? "does" : "do"} not match the filter.</Empty>
              ) : <Table label="Calls" rows={found} columns={COLUMNS} rowKey={(call) => call.invocation} defaultSort="-at" />}
              <div className="card-foot">{plural(found.length, "call")}{list.more && `; there are more, these are the last ${LIMIT}`}</div>
            </>
          );
        }}
      </Loaded>
    </Card>
  );
}

function tone(call: Call): "good" | "warn" | "bad" | "neutral" {
  if (call.outcome === "running") return "neutral";
  if (call.outcome !== "ok") return call.outcome === "client" ? "warn" : "bad";
  return (call.status ?? 0) >= 400 ? "warn" : "good";
}

const ms = (us: number) => duration(us / 1000);

const COLUMNS: readonly Column<Call>[] = [
  { id: "at", header: "Time", cell: (call) => <Clock at={call.started_at} />, sort: (call) => call.started_at, width: "8rem" },
  { id: "status", header: "Status", cell: (call) => <Badge tone={tone(call)} title={call.outcome.replaceAll("_", " ")}>{call.status ?? call.outcome.replaceAll("_", " ")}</Badge>, sort: (call) => call.status ?? 0, width: "7rem" },
  { id: "method", header: "Method", cell: (call) => call.method, sort: (call) => call.method, width: "5rem", from: 900 },
  { id: "total", header: "Time taken", cell: (call) => <span title={`until let in ${ms(call.wait_us)}, until it had an instance ${ms(call.start_us)}, until the head ${ms(call.head_us)}`}>{ms(call.total_us)}</span>, sort: (call) => call.total_us, number: true, width: "6rem" },
  { id: "cpu", header: "CPU", cell: (call) => ms(call.cpu_us), sort: (call) => call.cpu_us, number: true, width: "6rem", from: 760 },
  { id: "sent", header: "Sent", cell: (call) => bytes(call.egress_bytes), sort: (call) => call.egress_bytes, number: true, width: "6rem", from: 640 },
  { id: "node", header: "Node", cell: (call) => call.node, sort: (call) => call.node, from: 560 },
  { id: "version", header: "Version", cell: (call) => `v${call.version}`, sort: (call) => call.version, number: true, width: "5rem", from: 860 },
  { id: "request", header: "Request", cell: (call) => <span className="mono" title={`trace ${call.trace}`}>{call.request}</span>, width: "minmax(8rem, 2fr)", from: 700 },
];
