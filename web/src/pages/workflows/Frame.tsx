/** The head of all pages of one workflow. */
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { PageHead, TabLinks } from "@/components";

export function Frame({ app, lead, actions, children }: { app: string; lead?: ReactNode; actions?: ReactNode; children: ReactNode }) {
  const here = `/workflows/${app}`;
  return (
    <>
      <PageHead title={app} documentTitle={`${app} · Workflows`} lead={lead} actions={actions} crumbs={<Link to="/workflows">Workflows</Link>} />
      <TabLinks label={`Views of ${app}`} items={[
        { to: here, label: "Design" },
        { to: `${here}/run`, label: "Run" },
        { to: `${here}/runs`, label: "History", exact: false },
      ]} />
      {children}
    </>
  );
}
