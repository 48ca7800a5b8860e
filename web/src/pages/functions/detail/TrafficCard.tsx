/** The share of calls that each of two versions gets. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import type { Schemas } from "@/api/client";
import { ApiError } from "@/api/problem";
import { setTraffic } from "@/api/traffic";
import { Button, Card, Check, ErrorNotice, Field, Loaded, SelectField, useToast, useToastError } from "@/components";
import { trafficQuery, type AppDetail, type Version } from "../queries";
import { sharesOf, wanted } from "./traffic";
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
  const info = useQuery({ ...trafficQuery(app.app), enabled: versions.length > 1 });
  if (versions.length < 2) return null;
  // A split that changes elsewhere begins the form anew.
  return (
    <Loaded query={info}>
      {({ value, tag }) => <Split key={JSON.stringify([value.traffic, app.version])} app={app} traffic={value.traffic} tag={tag} versions={versions} may={may} />}
    </Loaded>
  );
}

function Split({ app, traffic, tag, versions, may }: {
  app: AppDetail;
  traffic: Traffic;
  /** Of the split as it is shown. */
  tag: string | null;
  versions: readonly Version[];
  may: boolean;
}) {
  const shares = sharesOf(traffic);
  const split = traffic.split ?? [];
  const several = split.length > 2;
  const initialOther = split.find((share) => share.version !== app.version)?.version ?? versions.find((each) => each.version !== app.version)?.version ?? 0;
  const [other, setOther] = useState(initialOther);
  // None is chosen as long as only something else is changed.
  const [chosen, setChosen] = useState<number | null>(null);
  const percent = chosen ?? shares.get(other) ?? 0;
  const [sticky, setSticky] = useState<Sticky>(traffic.sticky ?? "none");
  const [pin, setPin] = useState(traffic.pin ?? false);
  const queries = useQueryClient();
  const say = useToast();
  const failed = useToastError();
  const put = async (next: Traffic, expected: string | null) => {
    try {
      return await setTraffic(app.app, next, expected);
    } finally {
      await queries.invalidateQueries({ queryKey: ["app", app.app] });
    }
  };
  const change = useMutation({
    mutationFn: (next: Traffic) => put(next, tag),
    onSuccess: (answer, next) => say({
      text: next.split === undefined || next.split.length === 0 ? `All calls go to v${app.version}` : `${percent} % of calls go to v${other}`,
      undo: () => put({ split, sticky: traffic.sticky ?? "none", pin: traffic.pin ?? false }, answer.tag),
    }),
    onError: (error) => {
      // The form begins anew with what is there now, if that is another split, and would say nothing of it.
      if (outdated(error)) failed(error);
    },
  });
  const set = () => change.mutate({ split: wanted(split, app.version, other, chosen), sticky, pin });
  return (
    <Card title="Traffic" actions={split.length > 0 && may ? <Button small onClick={() => change.mutate({ split: [], sticky: "none", pin: false })}>End the split</Button> : undefined}>
      <form className="stack" onSubmit={(event) => { event.preventDefault(); set(); }}>
        <ShareBar app={app.app} shares={shares.size === 0 ? new Map([[app.version, 100]]) : shares} current={app.version} />
        {several && <p className="muted">The split is between {split.length} versions. A share that is set here replaces it by one between two.</p>}
        {may && (
          <>
            <Field label={`Share of v${other}`} hint={`${rest(percent)} % stay with v${app.version}, the current version. Calls are split at every gateway.`}>
              {(control) => (
                <div className="row-tight">
                  <input {...control} type="range" min={0} max={100} step={1} value={Math.round(percent)} className="grow" aria-valuetext={`${percent} % of calls to v${other}`} onChange={(event) => setChosen(Number(event.target.value))} />
                  <output className="strong num" style={{ minWidth: "3.5rem" }}>{percent} %</output>
                </div>
              )}
            </Field>
            <div className="row" role="group" aria-label="Usual shares">{[0, 1, 5, 10, 25, 50, 100].map((each) => <Button key={each} small onClick={() => setChosen(each)}>{each} %</Button>)}</div>
            <div className="halves">
              <SelectField label="Second version" value={String(other)} options={versions.filter((each) => each.version !== app.version).map((each) => ({ value: String(each.version), label: `v${each.version}` }))}
                onChange={(event) => { setOther(Number(event.target.value)); setChosen(Math.round(shares.get(Number(event.target.value)) ?? 0)); }} />
              <SelectField label="Clients" value={sticky} options={STICKY} onChange={(event) => setSticky(event.target.value as Sticky)} />
            </div>
            <Check label="Calls may name their version" hint="With the header x-fdn-pin, also a version that gets no calls otherwise." checked={pin} onChange={(event) => setPin(event.target.checked)} />
            <ErrorNotice error={outdated(change.error) ? null : change.error} />
            <div><Button type="submit" kind="primary" busy={change.isPending}>Set the split</Button></div>
          </>
        )}
      </form>
    </Card>
  );
}

/** Whether a split was refused because another one was there than the one shown. */
function outdated(error: unknown): boolean {
  return error instanceof ApiError && error.status === 412;
}

/** What a share, with one decimal at most, leaves of all calls. */
function rest(percent: number): number {
  return Math.round((100 - percent) * 10) / 10;
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
