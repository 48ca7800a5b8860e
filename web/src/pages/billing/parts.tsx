/** Parts that several billing pages show. */
import type { ReactNode } from "react";
import type { Schemas } from "@/api/client";
import { useMay } from "@/api/session";
import { useTenant } from "@/app/search";
import { Badge, Button, Card, Icon, NoPermission, PageHead, TabLinks, useToastError } from "@/components";
import { useState } from "react";
import { wholeStatement } from "./queries";

export function BillingFrame({ title = "Billing", lead, actions, children, open = false }: {
  title?: string;
  lead: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
  /** Whether everybody may look at the page. */
  open?: boolean;
}) {
  const may = useMay("read-billing", useTenant());
  return (
    <>
      <PageHead title={title} documentTitle={title === "Billing" ? title : `${title} · Billing`} lead={lead} actions={may || open ? actions : undefined} />
      <TabLinks label="Parts of billing" items={[
        { to: "/billing", label: "Month to date" },
        { to: "/billing/statements", label: "Statements", exact: false },
        { to: "/billing/budgets", label: "Budgets" },
        { to: "/billing/prices", label: "Prices" },
      ]} />
      {may || open ? children : <Card><NoPermission detail="Reading bills takes the right of an owner." /></Card>}
    </>
  );
}

const STATES: Readonly<Record<Schemas["StatementState"], { tone: "info" | "warn" | "good"; says: string }>> = {
  open: { tone: "info", says: "The month runs, or has just ended: it still changes." },
  closed: { tone: "warn", says: "Nothing is added any more; it is about to be issued." },
  issued: { tone: "good", says: "It never changes again." },
};

export function StatementBadge({ state }: { state: Schemas["StatementState"] }) {
  const { tone, says } = STATES[state];
  return <Badge tone={tone} dot title={says}>{state}</Badge>;
}

function save(text: string, type: string, name: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** A statement as a file: lines as comma-separated values, or whole as JSON. */
export function Export({ month }: { month: string }) {
  const tenant = useTenant();
  const [busy, setBusy] = useState(false);
  const sayError = useToastError();
  const query = tenant === undefined ? "" : `?tenant=${encodeURIComponent(tenant)}`;
  const json = async () => {
    setBusy(true);
    try {
      const statement = await wholeStatement(month, tenant);
      save(`${JSON.stringify(statement, null, 2)}\n`, "application/json", `statement-${statement.month}.json`);
    } catch (error) {
      sayError(error);
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <a className="button" href={`/v1/billing/statements/${month}/csv${query}`} download={`statement-${month}.csv`}><Icon name="download" />Export CSV</a>
      <Button icon="download" busy={busy} onClick={() => void json()}>Export JSON</Button>
    </>
  );
}
