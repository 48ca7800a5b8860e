import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import type { Schemas } from "@/api/client";
import { useParam, useTenant } from "@/app/search";
import { Ago, Bar, Card, Empty, Loaded, Notice, Segmented, Stat, Stats, Table, type Column } from "@/components";
import { money, percent, plural, sum } from "@/format";
import { costs, Days } from "./Days";
import { METER_NAMES, METERS, monthsBack, quantityText, spentShare } from "./meters";
import { BillingFrame, Export, StatementBadge } from "./parts";
import { budgetsQuery, headQuery, pricesQuery, usageQuery } from "./queries";

type Row = Schemas["UsageRow"];
type By = Exclude<Schemas["UsageBy"], "day">;

const VIEWS: readonly { value: By; label: string }[] = [
  { value: "function", label: "Function" }, { value: "region", label: "Region" }, { value: "app", label: "App" }, { value: "cluster", label: "Cluster" },
];

/** `/billing` */
export function BillingPage() {
  const [opened] = useState(() => Date.now());
  const months = monthsBack(opened, 13);
  const [month, setMonth] = useParam("month", months[0] ?? "");
  const running = month === months[0];
  return (
    <BillingFrame lead={running ? "What this month costs up to now. The month is counted in UTC." : `What ${month} cost. The month is counted in UTC.`} actions={(
      <>
        <select className="input compact" aria-label="Month" value={month} onChange={(event) => setMonth(event.target.value)}>
          {(months.includes(month) ? months : [month, ...months]).map((each, index) => <option key={each} value={each}>{index === 0 && each === months[0] ? `${each}, running` : each}</option>)}
        </select>
        <Export month={month} />
      </>
    )}>
      <Month month={month} />
    </BillingFrame>
  );
}

function Month({ month }: { month: string }) {
  const tenant = useTenant();
  const head = useQuery(headQuery(month, tenant));
  return (
    <>
      <Loaded query={head}>{(statement) => <Head statement={statement} />}</Loaded>
      <Budgets total={head.data?.total ?? null} />
      <ByDay month={month} />
      <Usage month={month} />
    </>
  );
}

function Head({ statement }: { statement: Schemas["Statement"] }) {
  const prices = useQuery(pricesQuery);
  const used = statement.meters.filter((meter) => meter.quantity !== "0");
  return (
    <>
      {prices.data?.length === 0 && <Notice>There is no price list, so everything costs nothing. An admin of the network adds one under <Link to="/billing/prices">Prices</Link>.</Notice>}
      <Stats>
        <Stat label={statement.state === "open" ? "So far" : "Total"} value={money(statement.total)} note={<><StatementBadge state={statement.state} /> <Ago at={statement.at} /></>} />
        {used.map((meter) => <Stat key={meter.meter} label={METERS[meter.meter].name} value={quantityText(meter.meter, meter.quantity)} note={money(meter.amount)} />)}
        {used.length === 0 && <Stat label="Usage" value="none" note="nothing was used yet" />}
      </Stats>
    </>
  );
}

/** How much of each budget is spent, if there are some. */
function Budgets({ total }: { total: Schemas["Money"] | null }) {
  const budgets = useQuery(budgetsQuery(useTenant()));
  const rows = budgets.data ?? [];
  if (rows.length === 0) return null;
  return (
    <Card title="Budgets" actions={<Link to="/billing/budgets">All budgets and alerts</Link>}>
      <ul className="stack-s">
        {rows.map((budget) => {
          const share = spentShare(total, budget.limit);
          return (
            <li key={budget.name} className="stack-s">
              <div className="row between"><span className="strong">{budget.name}</span><span className="muted">{total === null ? "–" : money(total)} of {money(budget.limit)}{share === null ? "" : `, ${percent(share)}`}</span></div>
              <Bar share={share ?? 0} label={`${budget.name}: ${percent(share ?? 0)} spent`} {...(share !== null && share >= 1 ? { tone: "bad" as const } : share !== null && share >= 0.8 ? { tone: "warn" as const } : {})} />
            </li>
          );
        })}
      </ul>
    </Card>
  );
}

function ByDay({ month }: { month: string }) {
  const tenant = useTenant();
  const days = useQuery(usageQuery(month, "day", tenant));
  return (
    <Card title={days.data === undefined || costs(days.data.rows) ? "Cost, day by day" : "Calls, day by day"}>
      <Loaded query={days} isEmpty={(view) => view.rows.length === 0} empty={<Empty slim title="Nothing was used">Costs appear here day by day, about a minute after they arise.</Empty>}>
        {(view) => <Days month={month} rows={view.rows} />}
      </Loaded>
    </Card>
  );
}

function Usage({ month }: { month: string }) {
  const tenant = useTenant();
  const [wanted, setBy] = useParam("by", "function");
  const by = VIEWS.find((view) => view.value === wanted)?.value ?? "function";
  const usage = useQuery(usageQuery(month, by, tenant));
  const rows = usage.data?.rows ?? [];
  const total = sum(rows.map((row) => row.cost));
  const columns: readonly Column<Row>[] = [
    { id: "name", header: VIEWS.find((view) => view.value === by)?.label ?? "", cell: (row) => <span className="strong">{row.name === "" ? "(none)" : row.name}</span>, sort: (row) => row.name },
    ...METER_NAMES.filter((meter) => rows.some((row) => row.quantities[meter] !== undefined)).map((meter, index): Column<Row> => ({
      id: meter, header: METERS[meter].name, number: true, width: "minmax(6rem, 1fr)", from: index === 0 ? 480 : 560 + index * 120,
      cell: (row) => { const quantity = row.quantities[meter]; return quantity === undefined ? <span className="faint">–</span> : quantityText(meter, quantity); },
      sort: (row) => Number(row.quantities[meter] ?? 0),
    })),
    { id: "share", header: "Share", cell: (row) => <Bar share={total === null || total.micros === 0 ? 0 : row.cost.micros / total.micros} label={`${row.name}: ${percent(total === null || total.micros === 0 ? 0 : row.cost.micros / total.micros)} of the cost`} />, width: "6rem", from: 640 },
    { id: "cost", header: "Cost", cell: (row) => <span className="strong">{money(row.cost)}</span>, sort: (row) => row.cost.micros, number: true, width: "8rem" },
  ];
  return (
    <Card title="Where it comes from" flush actions={<Segmented label="By" value={by} options={VIEWS} onChange={setBy} />}
      foot={`${plural(rows.length, "row")}${total === null ? "" : `, ${money(total)} before what is free`}. Usage stands where and when it was used; artifacts that are kept stand on the statement only.`}>
      <Loaded query={usage} isEmpty={(view) => view.rows.length === 0} empty={<Empty title="Nothing was used" icon="billing" action={<Link to="/functions" className="button">Go to functions</Link>}>Calls of your apps appear here about a minute after they ended.</Empty>}>
        {(view) => <Table label={`Usage by ${by}`} rows={view.rows} columns={columns} rowKey={(row) => row.name} defaultSort="-cost" />}
      </Loaded>
    </Card>
  );
}
