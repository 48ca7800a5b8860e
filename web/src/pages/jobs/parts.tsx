/** Parts that several job pages show. */
import type { ReactNode } from "react";
import { Badge, PageHead, TabLinks } from "@/components";
import { about, type JobState } from "./course";

export function JobsFrame({ title, lead, actions, children }: { title: string; lead: string; actions?: ReactNode; children: ReactNode }) {
  return (
    <>
      <PageHead title={title} lead={lead} actions={actions} />
      <TabLinks label="Parts of jobs" items={[{ to: "/jobs", label: "Jobs" }, { to: "/jobs/schedules", label: "Schedules" }]} />
      {children}
    </>
  );
}

export function StateBadge({ state }: { state: JobState }) {
  const { tone, says } = about(state);
  return <Badge tone={tone} dot title={says}>{state}</Badge>;
}

export function AppChoice({ apps, value, onChange }: { apps: readonly string[]; value: string; onChange: (app: string) => void }) {
  return (
    <select className="input compact" aria-label="App" value={value} onChange={(event) => onChange(event.target.value)}>
      <option value="">All apps</option>
      {(value === "" || apps.includes(value) ? apps : [value, ...apps]).map((app) => <option key={app} value={app}>{app}</option>)}
    </select>
  );
}
