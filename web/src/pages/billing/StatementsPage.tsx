import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import type { Schemas } from "@/api/client";
import { useMay } from "@/api/session";
import { useTenant } from "@/app/search";
import { At, Card, Empty, Loaded, Table, type Column } from "@/components";
import { money } from "@/format";
import { BillingFrame, StatementBadge } from "./parts";
import { statementsQuery } from "./queries";

type Row = Schemas["StatementSummary"];

const COLUMNS: readonly Column<Row>[] = [
  { id: "month", header: "Month", cell: (row) => <Link to={`/billing/statements/${row.month}`} className="strong">{row.month}</Link>, sort: (row) => row.month },
  { id: "state", header: "State", cell: (row) => <StatementBadge state={row.state} />, sort: (row) => row.state },
  { id: "at", header: "As of", cell: (row) => <At at={row.at} />, sort: (row) => row.at, width: "minmax(13rem, 1.4fr)", from: 560 },
  { id: "total", header: "Total", cell: (row) => <span className="strong">{money(row.total)}</span>, sort: (row) => row.total.micros, number: true },
];

/** `/billing/statements` */
export function StatementsPage() {
  const tenant = useTenant();
  const may = useMay("read-billing", tenant);
  const list = useQuery({ ...statementsQuery(tenant), enabled: may });
  const navigate = useNavigate();
  return (
    <BillingFrame title="Statements" lead="One for each month. An issued statement never changes; what comes late stands on the next one.">
      <Card flush>
        <Loaded query={list} empty={<Empty title="No statement yet" icon="billing" action={<Link to="/billing/statements/current" className="button">The running month</Link>}>The first one is issued three days after the end of the first month with usage.</Empty>}>
          {(rows) => <Table label="Statements" rows={rows} columns={COLUMNS} rowKey={(row) => row.month} defaultSort="-month" onOpen={(row) => void navigate({ to: `/billing/statements/${row.month}` })} />}
        </Loaded>
      </Card>
    </BillingFrame>
  );
}
