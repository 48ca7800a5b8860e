import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, body, type Schemas } from "@/api/client";
import { useMay } from "@/api/session";
import { useTenant } from "@/app/search";
import { At, Badge, Bar, Button, Card, Code, Confirm, Dialog, Empty, ErrorNotice, Loaded, Notice, Table, TextField, useToast, type Column } from "@/components";
import { money, percent } from "@/format";
import { parseMoney, spentShare } from "./meters";
import { BillingFrame } from "./parts";
import { alertsQuery, budgetsQuery, headQuery } from "./queries";

type Budget = Schemas["Budget"];
type Alert = Schemas["BudgetAlert"];

/** Decimal text of an amount, as the API takes it. */
function decimal(amount: Schemas["Money"]): string {
  return `${Math.floor(amount.micros / 1_000_000)}.${String(amount.micros % 1_000_000).padStart(6, "0")}`.replace(/0{1,4}$/, "");
}

const set = (budget: Budget, tenant: string | undefined) => body(api.PUT("/v1/billing/budgets/{name}", { params: { path: { name: budget.name }, query: { tenant } }, body: { limit: decimal(budget.limit), thresholds: budget.thresholds, webhook: budget.webhook } }));

/** `/billing/budgets` */
export function BudgetsPage() {
  const tenant = useTenant();
  const may = useMay("manage-budgets", tenant);
  const reads = useMay("read-billing", tenant);
  const list = useQuery({ ...budgetsQuery(tenant), enabled: reads });
  const head = useQuery({ ...headQuery("current", tenant), enabled: reads });
  const [editing, edit] = useState<Budget | "new" | null>(null);
  const [removing, remove] = useState<Budget | null>(null);
  const queries = useQueryClient();
  const say = useToast();
  const total = head.data?.total ?? null;
  const add = may ? <Button kind="primary" icon="plus" onClick={() => edit("new")}>New budget</Button> : undefined;
  const refresh = () => queries.invalidateQueries({ queryKey: ["billing"] });
  const columns: readonly Column<Budget>[] = [
    { id: "name", header: "Budget", cell: (row) => <span className="strong">{row.name}</span>, sort: (row) => row.name },
    { id: "spent", header: "Spent this month", cell: (row) => <Spent total={total} budget={row} />, sort: (row) => spentShare(total, row.limit), width: "minmax(9rem, 1.4fr)" },
    { id: "limit", header: "Limit a month", cell: (row) => money(row.limit), sort: (row) => row.limit.micros, number: true, width: "9rem", from: 420 },
    { id: "alerts", header: "Alerts at", cell: (row) => row.thresholds.map((each) => `${each} %`).join(", "), from: 640 },
    ...(may ? [{ id: "act", header: "", width: "10rem", number: true, cell: (row: Budget) => (
      <span className="row-tight">
        <Button small aria-label={`Change ${row.name}`} onClick={() => edit(row)}>Change</Button>
        <Button small kind="danger" aria-label={`Remove ${row.name}`} onClick={() => remove(row)}>Remove</Button>
      </span>
    ) }] : []),
  ];
  return (
    <BillingFrame title="Budgets" lead="A budget gives an alert when a part of it is spent. It stops nothing." actions={add}>
      <Card flush>
        <Loaded query={list} empty={<Empty title="No budget yet" icon="billing" action={add}>Say what a month may cost, and be told at 50, 80 and 100 %.</Empty>}>
          {(rows) => <Table label="Budgets" rows={rows} columns={columns} rowKey={(row) => row.name} defaultSort="name" rowHeight={52} />}
        </Loaded>
      </Card>
      <Alerts tenant={tenant} />
      {editing !== null && <Edit budget={editing === "new" ? undefined : editing} currency={total?.currency ?? list.data?.[0]?.limit.currency ?? ""} onClose={() => edit(null)} />}
      {removing !== null && (
        <Confirm title={`Remove budget ${removing.name}?`} action="Remove it" onClose={() => remove(null)} onConfirm={async () => {
          await api.DELETE("/v1/billing/budgets/{name}", { params: { path: { name: removing.name }, query: { tenant } } });
          say({ text: `Budget ${removing.name} was removed`, undo: async () => { await set(removing, tenant); await refresh(); } });
          await refresh();
        }}>
          <p>It gives no more alerts. Those that it gave stay.</p>
        </Confirm>
      )}
    </BillingFrame>
  );
}

function Spent({ total, budget }: { total: Schemas["Money"] | null; budget: Budget }) {
  const share = spentShare(total, budget.limit);
  if (share === null || total === null) return <span className="faint">–</span>;
  const tone = share >= 1 ? { tone: "bad" as const } : share >= 0.8 ? { tone: "warn" as const } : {};
  return <div className="stack-s" style={{ gap: "3px" }}><span>{money(total)} <span className="muted">({percent(share)})</span></span><Bar share={share} label={`${budget.name}: ${percent(share)} spent`} {...tone} /></div>;
}

const ALERTS: readonly Column<Alert>[] = [
  { id: "at", header: "When", cell: (row) => <At at={row.at} />, sort: (row) => row.at, width: "minmax(13rem, 1.3fr)" },
  { id: "budget", header: "Budget", cell: (row) => <span className="strong">{row.budget}</span>, sort: (row) => row.budget },
  { id: "threshold", header: "Passed", cell: (row) => <Badge tone={row.threshold >= 100 ? "bad" : "warn"}>{row.threshold} %</Badge>, sort: (row) => row.threshold, width: "5.5rem" },
  { id: "spent", header: "Spent then", cell: (row) => money(row.spent), sort: (row) => row.spent.micros, number: true, from: 560 },
  { id: "limit", header: "Limit then", cell: (row) => money(row.limit), sort: (row) => row.limit.micros, number: true, from: 680 },
  { id: "month", header: "Month", cell: (row) => row.month, sort: (row) => row.month, width: "6rem", from: 760 },
];

function Alerts({ tenant }: { tenant: string | undefined }) {
  const list = useQuery(alertsQuery(tenant));
  return (
    <Card title="Alerts" flush>
      <Loaded query={list} empty={<Empty title="No alert was given" slim>An alert stands here when a budget passes one of its thresholds, once for each in a month.</Empty>}>
        {(rows) => <Table label="Alerts" rows={rows} columns={ALERTS} rowKey={(row) => `${row.budget} ${row.month} ${row.threshold} ${row.at}`} defaultSort="-at" sortParam="alerts" />}
      </Loaded>
    </Card>
  );
}

/** Per cents as people list them, ascending; `null` when one is none. */
function thresholdsOf(text: string): number[] | null {
  const numbers = text.split(/[\s,;%]+/).filter((part) => part !== "").map(Number);
  return numbers.length > 0 && numbers.every((each) => Number.isInteger(each) && each >= 1 && each <= 1000) ? [...new Set(numbers)].sort((a, b) => a - b) : null;
}

function Edit({ budget, currency, onClose }: { budget: Budget | undefined; currency: string; onClose: () => void }) {
  const [name, setName] = useState(budget?.name ?? "");
  const [limit, setLimit] = useState(budget === undefined ? "" : decimal(budget.limit));
  const [at, setAt] = useState(budget?.thresholds.join(", ") ?? "50, 80, 100");
  const [webhook, setWebhook] = useState(budget?.webhook ?? "");
  const queries = useQueryClient();
  const say = useToast();
  const tenant = useTenant();
  const micros = parseMoney(limit);
  const thresholds = thresholdsOf(at);
  const save = useMutation({
    mutationFn: () => set({ name, limit: { micros: micros ?? 0, currency }, thresholds: thresholds ?? [], webhook: webhook || undefined }, tenant),
    onSuccess: async (saved) => {
      say(`Budget ${saved.name}: ${money(saved.limit)} a month`);
      await queries.invalidateQueries({ queryKey: ["billing"] });
      if (typeof saved.webhook_secret === "string") return;
      onClose();
    },
  });
  const secret = save.data?.webhook_secret;
  if (save.data !== undefined && typeof secret === "string") {
    return (
      <Dialog title={`Budget ${save.data.name} is set`} onClose={onClose} foot={<Button kind="primary" onClick={onClose}>Done</Button>}>
        <Notice>What the webhook gets is signed with this key, one for all budgets of the tenant.</Notice>
        <Code text={secret} label="key of the webhook's signature" wrap />
      </Dialog>
    );
  }
  const ready = name !== "" && micros !== null && micros > 0 && thresholds !== null;
  return (
    <Dialog title={budget === undefined ? "New budget" : `Budget ${budget.name}`} onClose={onClose} onSubmit={() => save.mutate()}
      foot={<><Button onClick={onClose}>Cancel</Button><Button type="submit" kind="primary" busy={save.isPending} disabled={!ready}>Set the budget</Button></>}>
      <TextField label="Name" value={name} disabled={budget !== undefined} onChange={(event) => setName(event.target.value)} placeholder="all" autoComplete="off" spellCheck={false} />
      <TextField label={`Limit a month${currency === "" ? "" : ` in ${currency}`}`} inputMode="decimal" value={limit} onChange={(event) => setLimit(event.target.value)} placeholder="100" error={limit !== "" && micros === null ? "A number such as 100 or 99.50, six decimals at most." : undefined} />
      <TextField label="Alerts at, in per cent" value={at} onChange={(event) => setAt(event.target.value)} error={thresholds === null ? "Whole numbers such as 50, 80, 100." : undefined} />
      <TextField label="Webhook" type="url" value={webhook} onChange={(event) => setWebhook(event.target.value)} placeholder="https://example.org/bills" hint="Told of each alert." />
      <ErrorNotice error={save.error} />
    </Dialog>
  );
}
