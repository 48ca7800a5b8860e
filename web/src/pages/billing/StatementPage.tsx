import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import { usePathParam } from "@/app/params";
import type { Schemas } from "@/api/client";
import { useMay } from "@/api/session";
import { useParam, useTenant } from "@/app/search";
import { Ago, Badge, Card, Empty, Loaded, matches, SearchBox, Stat, Stats, Table, type Column } from "@/components";
import { count, money, plural, sum } from "@/format";
import { METER_NAMES, METERS, quantityText } from "./meters";
import { BillingFrame, Export, StatementBadge } from "./parts";
import { statementQuery } from "./queries";

type Line = Schemas["StatementLine"] & { index: number };

/** `/billing/statements/MONTH` */
export function StatementPage() {
  const month = usePathParam("month");
  const tenant = useTenant();
  const may = useMay("read-billing", tenant);
  const statement = useQuery({ ...statementQuery(month, tenant), enabled: may });
  const lead = <Link to="/billing/statements">All statements</Link>;
  return (
    <BillingFrame title={`Statement ${statement.data?.month ?? month}`} lead={lead} actions={<Export month={month} />}>
      <Loaded query={statement} lines={8}>{(data) => <Shown statement={data} />}</Loaded>
    </BillingFrame>
  );
}

function columns(month: string): readonly Column<Line>[] {
  return [
    { id: "meter", header: "Meter", cell: (line) => <span className="row-tight"><span className="strong">{METERS[line.meter].name}</span>{line.kind === "free_tier" && <Badge tone="good">free</Badge>}{line.month !== month && <Badge tone="warn" title="Usage that came after its month was closed">late, {line.month}</Badge>}</span>, sort: (line) => line.meter, width: "minmax(9rem, 1.3fr)", from: 480 },
    { id: "what", header: "Meter", cell: (line) => <><span className="strong">{METERS[line.meter].name}</span><span className="sub">{[line.function ?? line.app, line.region, quantityText(line.meter, line.quantity)].filter((part) => part != null).join(" · ")}</span></>, sort: (line) => line.meter, width: "minmax(9rem, 1.3fr)", until: 480 },
    { id: "app", header: "App", cell: (line) => line.app ?? "–", sort: (line) => line.app ?? null, from: 720 },
    { id: "function", header: "Function", cell: (line) => line.function ?? "–", sort: (line) => line.function ?? null, from: 480 },
    { id: "region", header: "Region", cell: (line) => line.region ?? "–", sort: (line) => line.region ?? null, from: 620 },
    { id: "cluster", header: "Cluster", cell: (line) => line.cluster ?? "–", sort: (line) => line.cluster ?? null, from: 1080 },
    { id: "days", header: "Days", cell: (line) => <span className="nowrap muted">{line.from.slice(5)} to {line.to.slice(5)}</span>, sort: (line) => line.from, width: "8rem", from: 1260 },
    { id: "list", header: "Price list", cell: (line) => line.price_list ?? "–", sort: (line) => line.price_list ?? null, from: 940 },
    { id: "quantity", header: "Quantity", cell: (line) => <span title={`${line.quantity} ${line.unit}`}>{quantityText(line.meter, line.quantity)}</span>, number: true, width: "9rem", from: 480 },
    { id: "amount", header: "Amount", cell: (line) => <span className="strong" title={money(line.amount, true)}>{money(line.amount)}</span>, sort: (line) => line.amount.micros, number: true, width: "8.5rem" },
  ];
}

function Shown({ statement }: { statement: Schemas["Statement"] }) {
  const [filter] = useParam("q");
  const [meter, setMeter] = useParam("meter");
  const lines = useMemo(() => statement.lines.map((line, index): Line => ({ ...line, index })), [statement]);
  const found = useMemo(() => lines.filter((line) => (meter === "" || line.meter === meter) && matches(filter, METERS[line.meter].name, line.app, line.function, line.region, line.cluster, line.price_list)), [lines, filter, meter]);
  const shown = sum(found.map((line) => line.amount));
  return (
    <>
      <Stats>
        <Stat label="Total" value={money(statement.total)} note={<><StatementBadge state={statement.state} /> <Ago at={statement.at} /></>} />
        {statement.meters.map((each) => <Stat key={each.meter} label={METERS[each.meter].name} value={money(each.amount)} note={quantityText(each.meter, each.quantity)} />)}
      </Stats>
      <Card flush title={plural(statement.line_count, "line")}>
        {lines.length === 0 ? <Empty title="Nothing was used" icon="billing">This month has no lines.</Empty> : (
          <>
            <div className="toolbar">
              <SearchBox label="Filter by app, function, region, price list" found={found.length} />
              <select className="input compact" aria-label="Meter" value={meter} onChange={(event) => setMeter(event.target.value)}>
                <option value="">All meters</option>
                {METER_NAMES.map((name) => <option key={name} value={name}>{METERS[name].name}</option>)}
              </select>
              <span className="muted small end">{count(found.length)} shown{shown === null ? "" : `, ${money(shown)}`}</span>
            </div>
            {found.length === 0 ? <Empty title="No line matches" icon="filter">Take a word out of the filter, or choose all meters.</Empty>
              : <Table label="Lines of the statement" rows={found} columns={columns(statement.month)} rowKey={(line) => String(line.index)} defaultSort="" />}
          </>
        )}
      </Card>
    </>
  );
}
