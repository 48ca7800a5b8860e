import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { Schemas } from "@/api/client";
import { useParam } from "@/app/search";
import { Ago, Badge, Button, Card, Loaded, LongList, Notice, Pairs, sentence, Table, TextField } from "@/components";
import { count, duration, group, money } from "@/format";
import { explainQuery } from "../queries";
import { useApp, useAppName } from "./useApp";

type Explanation = Schemas["Explanation"];
type Candidate = Schemas["Candidate"];
type Compared = Schemas["Compared"];
type StageCompared = Schemas["StageCompared"];

/** Where the function runs for a client, and why there: every candidate with its terms. */
export function Explain() {
  const name = useAppName();
  const bindings = useApp().data?.value.bindings ?? [];
  const [client, setClient] = useParam("client", bindings[0]?.prefix ?? "", true);
  const explanation = useQuery(explainQuery(name, client));
  return (
    <div className="stack">
      <Card title="For which client?">
        <Ask key={client} client={client} prefixes={bindings.map((binding) => binding.prefix)} onAsk={setClient} />
      </Card>
      <Loaded query={explanation} lines={6}>{(data) => <Result data={data} />}</Loaded>
      {bindings.length > 0 && (
        <Card title="Where clients are sent" flush>
          <Table label="Where clients are sent" rows={bindings} rowKey={(binding) => binding.prefix} defaultSort="prefix" columns={[
            { id: "prefix", header: "Clients", cell: (binding) => <button type="button" className="link mono" onClick={() => setClient(binding.prefix)}>{binding.prefix}</button>, sort: (binding) => binding.prefix },
            { id: "cluster", header: "Sent to", cell: (binding) => binding.cluster, sort: (binding) => binding.cluster },
            { id: "revision", header: "Revision", cell: (binding) => count(binding.revision), sort: (binding) => binding.revision, number: true, width: "6rem", from: 420 },
          ]} />
        </Card>
      )}
    </div>
  );
}

function Ask({ client, prefixes, onAsk }: { client: string; prefixes: readonly string[]; onAsk: (client: string) => void }) {
  const [typed, setTyped] = useState(client);
  return (
    <form className="row narrow" onSubmit={(event) => { event.preventDefault(); onAsk(typed.trim()); }}>
      <div className="grow"><TextField label="Address or network" value={typed} className="mono" list="known-clients" spellCheck={false} placeholder="203.0.113.7" hint="Empty: your own." onChange={(event) => setTyped(event.target.value)} /></div>
      <datalist id="known-clients">{prefixes.map((prefix) => <option key={prefix} value={prefix} />)}</datalist>
      <Button type="submit" kind="primary">Explain</Button>
    </form>
  );
}

function Result({ data }: { data: Explanation }) {
  const longest = data.candidates.reduce((most, candidate) => Math.max(most, candidate.total ?? 0), 1e-6);
  return (
    <>
      <Notice tone={data.chosen === null || data.chosen === undefined ? "warn" : "good"}>
        {data.chosen === null || data.chosen === undefined ? <strong>No cluster can run it for {data.client}.</strong> : <><strong>{data.chosen}</strong> for <span className="mono">{data.client}</span>. </>}{" "}
        {data.reason !== "" && sentence(data.reason)}
        {data.bound === null || data.bound === undefined ? " DNS answers with the nearest cluster, since no binding holds for this client." : ` DNS answers with ${data.bound.cluster} for ${data.bound.prefix}.`}
      </Notice>
      <Card title="Candidates" flush foot="What a client feels: the way there, the mean wait for a slot, the work at the cluster’s speed, and the way back.">
        <div className="stack-s card-body">
          <LongList label="Candidates" className="candidates" rows={data.candidates} rowKey={(candidate) => candidate.cluster} rowHeight={76}>
            {(candidate) => <CandidateRow candidate={candidate} chosen={candidate.cluster === data.chosen} longest={longest} />}
          </LongList>
          <div className="row small muted">
            {PARTS.map((part) => <span key={part.name} className="row-tight"><i className="key-dot" style={{ background: `var(${part.color})` }} />{part.name}</span>)}
          </div>
        </div>
      </Card>
      {(data.stages?.length ?? 0) > 0 && (
        <Card title="Stages" flush>
          <table className="plain-table"><thead><tr><th>Stage</th><th>Function</th><th>Cluster</th></tr></thead>
            <tbody>{(data.stages ?? []).map((stage) => <tr key={stage.stage}><td className="strong">{stage.stage}</td><td>{stage.function} v{stage.version}</td><td>{stage.cluster}</td></tr>)}</tbody></table>
        </Card>
      )}
      {(data.forms?.length ?? 0) > 0 && (
        <Card title="Forms" flush foot="The same function built more than once: each cluster serves the form that suits it, by what a call takes, what calls wait for instances as a mean, and what a million calls cost.">
          <div className="scroll-x" tabIndex={0} role="region" aria-label="Forms">
          <table className="plain-table"><thead><tr><th>Stage</th><th>Cluster</th><th>Form</th><th>Run</th><th>Cold</th><th>Million</th><th>Verdict</th></tr></thead>
            <tbody>{(data.forms ?? []).map((each) => <tr key={`${each.stage} ${each.cluster} ${each.form}`}><td className="strong">{each.stage}</td><td>{each.cluster}</td><td>{each.form}{each.chosen && <> <Badge tone="good" dot>served</Badge></>}</td><td>{duration(each.run)}{each.run !== null && <span className="faint"> {each.measured ? "measured" : "expected"}</span>}</td><td>{duration(each.cold)}</td><td>{each.price == null ? "–" : money(each.price)}</td><td>{each.verdict}</td></tr>)}</tbody></table>
          </div>
        </Card>
      )}
      {(data.actual?.length ?? 0) > 0 && (
        <Card title="Predicted and actual" flush foot="What the plan counts with where this client is sent, and what calls took there lately.">
          <div className="scroll-x" tabIndex={0} role="region" aria-label="Predicted and actual">
          <table className="plain-table"><thead><tr><th>Stage</th><th>Cluster</th><th>Phase</th><th>Predicted</th><th>Actual</th></tr></thead>
            <tbody>{(data.actual ?? []).flatMap((stage) => phases(stage).map(([phase, term]) => <tr key={`${stage.stage} ${phase}`}><td className="strong">{stage.stage}</td><td>{stage.cluster}</td><td>{phase}</td><td>{duration(term.predicted)}</td><td>{duration(term.actual)}</td></tr>))}</tbody></table>
          </div>
        </Card>
      )}
      {data.plan !== null && data.plan !== undefined && (
        <Card title="The plan in force">
          <Pairs items={[["Made", <Ago key="a" at={data.plan.planned_at} />], ["Because", data.plan.reason], ["For the group", <span key="g">{group(data.plan.group)} away</span>], ["Revision", data.plan.revision]]} />
        </Card>
      )}
    </>
  );
}

/** The phases of a stage's calls, in the order in which they pass. */
function phases(stage: StageCompared): readonly (readonly [string, Compared])[] {
  const way = stage.way === null || stage.way === undefined ? [] : [["way", stage.way] as const];
  return [...way, ["queue", stage.queue] as const, ["execution", stage.execution] as const];
}

const SOURCES = { measured: "measured", located: "estimated by distance", unknown: "not known" } as const;

const PARTS = [
  { name: "way there", color: "--series-5" },
  { name: "waiting", color: "--series-3" },
  { name: "work", color: "--series-1" },
  { name: "way back", color: "--series-2" },
] as const;

/** The spans of a candidate, in the order in which they pass. */
function spans(candidate: Candidate): readonly number[] {
  const there = candidate.distance ?? 0;
  const wait = Math.max(0, (candidate.start ?? there) - there);
  return [there, wait, candidate.work ?? 0, there];
}

function CandidateRow({ candidate, chosen, longest }: { candidate: Candidate; chosen: boolean; longest: number }) {
  const excluded = candidate.excluded !== null && candidate.excluded !== undefined;
  return (
    <div className="candidate">
      <div className="row between">
        <span className="row-tight"><b>{candidate.cluster}</b>{chosen && <Badge tone="good" dot>chosen</Badge>}{excluded && <Badge tone="bad" dot>excluded</Badge>}</span>
        <span className="strong">{excluded ? "–" : duration(candidate.total)}</span>
      </div>
      {!excluded && (
        <div className="sharebar" role="img" aria-label={spans(candidate).map((span, index) => `${PARTS[index]?.name ?? ""} ${duration(span)}`).join(", ")}>
          {spans(candidate).map((span, index) => span / longest < 0.003 ? null : <i key={PARTS[index]?.name} title={`${PARTS[index]?.name ?? ""}: ${duration(span)}`} style={{ width: `${(span / longest) * 100}%`, background: `var(${PARTS[index]?.color ?? "--series-1"})` }} />)}
        </div>
      )}
      <div className="small muted">{sentence(candidate.excluded ?? candidate.verdict)} <span className="faint">Round trip {duration(candidate.latency.rtt)}, {SOURCES[candidate.latency.source]}.{(candidate.toll ?? 0) >= 0.01 && ` Each call would make the others wait ${duration(candidate.toll)} longer in all, which counts like its own time.`}</span></div>
    </div>
  );
}
