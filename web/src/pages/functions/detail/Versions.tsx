import { useState } from "react";
import { useParam } from "@/app/search";
import { Ago, Badge, Button, Card, Copyable, Empty, Field, Loaded, Pairs, Table, type Column } from "@/components";
import { bytes, duration, shortDigest } from "@/format";
import { LabelList, VersionMarks } from "../parts";
import type { AppDetail, Version } from "../queries";
import { changes, comparable } from "./diff";
import { useRollBack } from "./Detail";
import { TrafficCard } from "./TrafficCard";
import { sharesOf } from "./traffic";
import { useApp, useMayHere } from "./useApp";

export function Versions() {
  const app = useApp();
  return <Loaded query={app}>{({ value, tag }) => <Inner app={value} tag={tag} />}</Loaded>;
}

function Inner({ app, tag }: { app: AppDetail; tag: string | null }) {
  const newest = [...app.versions].sort((a, b) => b.version - a.version);
  return (
    <div className="stack">
      <TrafficCard app={app} versions={newest} />
      <List app={app} tag={tag} versions={newest} />
      <Diff versions={newest} current={app.version} />
    </div>
  );
}

function List({ app, tag, versions }: { app: AppDetail; tag: string | null; versions: readonly Version[] }) {
  const may = useMayHere("deploy");
  const back = useRollBack(app.app);
  const shares = sharesOf(app.traffic);
  const [chosen, setChosen] = useParam("version");
  const columns: Column<Version>[] = [
    { id: "version", header: "Version", width: "minmax(10rem, 1fr)", sort: (each) => each.version, cell: (each) => <span className="row"><button type="button" className="link strong" aria-expanded={chosen === String(each.version)} onClick={() => setChosen(chosen === String(each.version) ? "" : String(each.version))}>v{each.version}</button><VersionMarks version={each} current={app.version} shares={shares} /></span> },
    { id: "created", header: "Deployed", width: "7rem", sort: (each) => each.created_at, cell: (each) => <Ago at={each.created_at} /> },
    { id: "runtime", header: "Runtime", width: "6rem", cell: (each) => each.manifest.runtime ?? "wasm", from: 700 },
    { id: "size", header: "Size", width: "6rem", number: true, sort: (each) => each.size, cell: (each) => bytes(each.size), from: 460 },
    { id: "digest", header: "Digest", width: "10rem", cell: (each) => <Copyable text={each.digest} shown={shortDigest(each.digest)} what={`digest of v${each.version}`} />, from: 640 },
    { id: "labels", header: "Labels", cell: (each) => <LabelList labels={each.labels} />, from: 900 },
    {
      id: "act", header: "", width: "8.5rem", number: true,
      cell: (each) => (may && each.version !== app.version ? <Button small icon="undo" busy={back.isPending && back.variables.to === each.version} onClick={() => back.mutate({ from: app.version, to: each.version, tag })}>Make current</Button> : null),
    },
  ];
  const shown = versions.find((each) => String(each.version) === chosen);
  return (
    <Card title="Versions" flush>
      <Table label="Versions" rows={versions} columns={columns} rowKey={(each) => String(each.version)} defaultSort="-version" />
      {shown !== undefined && <VersionFacts version={shown} />}
    </Card>
  );
}

function VersionFacts({ version }: { version: Version }) {
  return (
    <div className="card-foot stack">
      {(version.forms?.length ?? 0) > 0 && (
        <>
          <h3>Other forms of v{version.version}</h3>
          <Pairs items={(version.forms ?? []).map((form) => [form.manifest.name, <span key={form.manifest.name}>{form.manifest.runtime}, {bytes(form.size)}, <Copyable text={form.digest} shown={shortDigest(form.digest)} what={`digest of ${form.manifest.name}`} /></span>] as const)} />
        </>
      )}
      <h3>How v{version.version} was judged</h3>
      {version.bad !== null && version.bad !== undefined && <p><Badge tone="bad" dot>rolled back</Badge> <Ago at={version.bad.at} />: {version.bad.reason}</p>}
      {version.validation === undefined || version.validation.length === 0 ? <p className="muted">Nothing was kept of its validation.</p> : (
        <Pairs items={version.validation.map((step) => [step.step, <span key={step.step}>{step.result} <span className="faint">({duration(step.took)})</span></span>] as const)} />
      )}
    </div>
  );
}

function Diff({ versions, current }: { versions: readonly Version[]; current: number }) {
  const second = versions.find((each) => each.version < current) ?? versions.find((each) => each.version !== current);
  const [from, setFrom] = useParam("from", String(second?.version ?? ""));
  const [to, setTo] = useParam("to", String(current));
  const [all, setAll] = useState(false);
  if (versions.length < 2) return null;
  const before = versions.find((each) => String(each.version) === from);
  const after = versions.find((each) => String(each.version) === to);
  const found = changes(comparable(before), comparable(after));
  const sameCode = before?.digest === after?.digest;
  return (
    <Card title="Difference between two versions" actions={<><Pick label="From" value={from} versions={versions} onChange={setFrom} /><Pick label="To" value={to} versions={versions} onChange={setTo} /></>} flush>
      {before === undefined || after === undefined ? <Empty title="Choose two versions" /> : (
        <div className="scroll-x" tabIndex={0} role="region" aria-label="Fields that differ">
          <table className="plain-table">
            <thead><tr><th>Field</th><th>v{before.version}</th><th>v{after.version}</th></tr></thead>
            <tbody>
              <tr><td>code</td>{sameCode ? <td colSpan={2} className="muted">the same</td> : <><td className="diff-old mono">{shortDigest(before.digest)} · {bytes(before.size)}</td><td className="diff-new mono">{shortDigest(after.digest)} · {bytes(after.size)}</td></>}</tr>
              {(all ? found : found.slice(0, 30)).map((change) => (
                <tr key={change.field}>
                  <td className="mono">{change.field}</td>
                  <td className={change.before === null ? "faint" : "diff-old mono break"}>{change.before ?? "not set"}</td>
                  <td className={change.after === null ? "faint" : "diff-new mono break"}>{change.after ?? "not set"}</td>
                </tr>
              ))}
              {found.length === 0 && <tr><td>manifest</td><td colSpan={2} className="muted">the same</td></tr>}
            </tbody>
          </table>
          {found.length > 30 && !all && <div className="card-foot"><Button onClick={() => setAll(true)}>Show all {found.length}</Button></div>}
        </div>
      )}
    </Card>
  );
}

function Pick({ label, value, versions, onChange }: { label: string; value: string; versions: readonly Version[]; onChange: (value: string) => void }) {
  return (
    <div className="pick">
      <Field label={label}>
        {(control) => (
          <select {...control} className="input compact" value={value} onChange={(event) => onChange(event.target.value)}>
            {versions.map((each) => <option key={each.version} value={each.version}>v{each.version}</option>)}
          </select>
        )}
      </Field>
    </div>
  );
}
