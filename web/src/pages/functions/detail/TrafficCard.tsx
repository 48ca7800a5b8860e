/** The share of calls that each of two versions gets. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, body, type Schemas } from "@/api/client";
import { Button, Card, Check, ErrorNotice, Field, SelectField, useToast } from "@/components";
import type { AppDetail, Version } from "../queries";
import { between, sharesOf } from "./traffic";
import { useMayHere } from "./useApp";

type Traffic = Schemas["Traffic"];
type Sticky = Schemas["Sticky"];

const STICKY: readonly { value: Sticky; label: string }[] = [
  { value: "none", label: "Each call anew" },
  { value: "cookie", label: "A client stays with its version (cookie)" },
  { value: "address", label: "A client stays with its version (address)" },
];

export function TrafficCard({ app, versions }: { app: AppDetail; versions: readonly Version[] }) {
  const may = useMayHere("deploy");
  // A split that changes elsewhere begins the form anew.
  return versions.length < 2 ? null : <Split key={JSON.stringify([app.traffic, app.version])} app={app} versions={versions} may={may} />;
}

function Split({ app, versions, may }: { app: AppDetail; versions: readonly Version[]; may: boolean }) {
  const traffic: Traffic = app.traffic ?? {};
  const shares = sharesOf(traffic);
  const split = traffic.split ?? [];
  const several = split.length > 2;
  const initialOther = split.find((share) => share.version !== app.version)?.version ?? versions.find((each) => each.version !== app.version)?.version ?? 0;
  const [other, setOther] = useState(initialOther);
  const [percent, setPercent] = useState(() => Math.round(shares.get(initialOther) ?? 0));
  const [sticky, setSticky] = useState<Sticky>(traffic.sticky ?? "none");
  const [pin, setPin] = useState(traffic.pin ?? false);
  const queries = useQueryClient();
  const say = useToast();
  const put = async (next: Traffic) => {
    await body(api.PUT("/v1/apps/{app}/traffic", { params: { path: { app: app.app } }, body: next }));
    await queries.invalidateQueries({ queryKey: ["app", app.app] });
  };
  const change = useMutation({
    mutationFn: put,
    onSuccess: (_, next) => say({
      text: next.split === undefined || next.split.length === 0 ? `All calls go to v${app.version}` : `${percent} % of calls go to v${other}`,
      undo: () => put({ split, sticky: traffic.sticky ?? "none", pin: traffic.pin ?? false }),
    }),
  });
  const set = () => change.mutate({ split: between(app.version, other, percent), sticky, pin });
  return (
    <Card title="Traffic" actions={split.length > 0 && may ? <Button small onClick={() => change.mutate({ split: [], sticky: "none", pin: false })}>End the split</Button> : undefined}>
      <form className="stack" onSubmit={(event) => { event.preventDefault(); set(); }}>
        <ShareBar app={app.app} shares={shares.size === 0 ? new Map([[app.version, 100]]) : shares} current={app.version} />
        {several && <p className="muted">The split is between {split.length} versions. What is set here replaces it by one between two.</p>}
        {may && (
          <>
            <Field label={`Share of v${other}`} hint={`${100 - percent} % stay with v${app.version}, the current version. Calls are split at every gateway.`}>
              {(control) => (
                <div className="row-tight">
                  <input {...control} type="range" min={0} max={100} step={1} value={percent} className="grow" aria-valuetext={`${percent} % of calls to v${other}`} onChange={(event) => setPercent(Number(event.target.value))} />
                  <output className="strong num" style={{ minWidth: "3.5rem" }}>{percent} %</output>
                </div>
              )}
            </Field>
            <div className="row" role="group" aria-label="Usual shares">{[0, 1, 5, 10, 25, 50, 100].map((each) => <Button key={each} small onClick={() => setPercent(each)}>{each} %</Button>)}</div>
            <div className="halves">
              <SelectField label="Second version" value={String(other)} options={versions.filter((each) => each.version !== app.version).map((each) => ({ value: String(each.version), label: `v${each.version}` }))}
                onChange={(event) => { setOther(Number(event.target.value)); setPercent(Math.round(shares.get(Number(event.target.value)) ?? 0)); }} />
              <SelectField label="Clients" value={sticky} options={STICKY} onChange={(event) => setSticky(event.target.value as Sticky)} />
            </div>
            <Check label="Calls may name their version" hint="With the header x-fdn-pin, also a version that gets no calls otherwise." checked={pin} onChange={(event) => setPin(event.target.checked)} />
            <ErrorNotice error={change.error} />
            <div><Button type="submit" kind="primary" busy={change.isPending}>Set the split</Button></div>
          </>
        )}
      </form>
    </Card>
  );
}

function ShareBar({ app, shares, current }: { app: string; shares: ReadonlyMap<number, number>; current: number }) {
  return (
    <div className="stack-s">
      <div className="sharebar" aria-hidden="true">
        {[...shares].map(([version, share], index) => <i key={version} style={{ width: `${share}%`, background: `var(--series-${(index % 6) + 1})` }} />)}
      </div>
      <div className="row small" aria-label={`Shares of ${app}`} role="group">
        {[...shares].map(([version, share], index) => (
          <span key={version} className="row-tight"><i className="key-dot" style={{ background: `var(--series-${(index % 6) + 1})` }} /><b>v{version}</b>{version === current && <span className="muted">current</span>}<span>{share} %</span></span>
        ))}
      </div>
    </div>
  );
}
