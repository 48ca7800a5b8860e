/** Parts that several DNS pages show. */
import type { ReactNode } from "react";
import type { Schemas } from "@/api/client";
import { useMay } from "@/api/session";
import { Badge, PageHead, TabLinks } from "@/components";

export function DnsFrame({ title = "DNS", lead, actions, children }: { title?: string; lead: string; actions?: ReactNode; children: ReactNode }) {
  const look = useMay("look-machines");
  return (
    <>
      <PageHead title={title} documentTitle={title === "DNS" ? title : `${title} · DNS`} lead={lead} actions={actions} />
      <TabLinks label="Parts of DNS" items={[
        { to: "/dns", label: "Look up" },
        { to: "/dns/bindings", label: "Bindings" },
        { to: "/dns/records", label: "Text records" },
        ...(look ? [{ to: "/dns/latencies", label: "Latencies" }] : []),
      ]} />
      {children}
    </>
  );
}

const SOURCES: Readonly<Record<Schemas["LatencySource"], string>> = { measured: "measured", located: "by distance", unknown: "not known" };

export function Source({ source }: { source: Schemas["LatencySource"] }) {
  return <Badge tone={source === "measured" ? "good" : source === "located" ? "info" : "neutral"}>{SOURCES[source]}</Badge>;
}
