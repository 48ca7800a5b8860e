/** Asks the Smart DNS as a client anywhere would, and shows why the answer is as it is. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { allPages, api, body, type Schemas } from "@/api/client";
import { notOffered } from "@/api/offered";
import { useParam, useSetParams, useTenant } from "@/app/search";
import { Badge, Bar, Button, Card, Empty, Field, Loaded, LongList, Pairs, SelectField, Stat, Stats, TextField, type Tone } from "@/components";
import { NotOffered } from "@/components/NotOffered";
import { count, duration, withGroups } from "@/format";
import { hostOf, isClient } from "./addresses";
import { DnsFrame, Source } from "./parts";
import styles from "./Dns.module.css";

type Answer = Schemas["DnsLookup"];

const WHY: Readonly<Record<Answer["why"], { word: string; tone: Tone; says: string }>> = {
  bound: { word: "bound", tone: "good", says: "A plan binds the client's prefix to this cluster." },
  nearest: { word: "nearest", tone: "info", says: "No binding matches, so the nearest cluster is told." },
  bound_is_dead: { word: "bound cluster is dead", tone: "warn", says: "The cluster that the binding names is not there, so the nearest living one is told." },
  all_dead: { word: "none is alive", tone: "bad", says: "No cluster is known to be alive; the answer is a guess." },
  no_address: { word: "no address", tone: "bad", says: "There is no gateway with an address of this kind." },
};

/** `/dns` */
export function DnsPage() {
  const tenant = useTenant();
  const network = useQuery({ queryKey: ["network"], queryFn: () => body(api.GET("/v1/network")), staleTime: 3_600_000 });
  const apps = useQuery({ queryKey: ["apps", tenant], queryFn: () => allPages((cursor) => api.GET("/v1/apps", { params: { query: { tenant, cursor } } })) });
  const [name] = useParam("name");
  const [client] = useParam("client");
  const [kind] = useParam("type", "A");
  return (
    <DnsFrame lead="Every client is told the cluster that answers it soonest. Ask as one of them.">
      <Card title="Look up" actions={network.data === undefined ? undefined : <span className="muted small">Zone <span className="mono">{network.data.zone}</span>{network.data.dns == null ? "" : <>, served at <span className="mono">{network.data.dns}</span></>}</span>}>
        <LookUp key={`${name} ${client}`} zone={network.data?.zone ?? ""} hosts={apps.data?.map((app) => app.host) ?? []} />
      </Card>
      {name === "" ? <Card><Empty title="Nothing was asked yet" icon="dns">Give the name of an app, and the address of a client if it is not yours.</Empty></Card> : <Result name={name} client={client} kind={kind === "AAAA" ? "AAAA" : "A"} />}
    </DnsFrame>
  );
}

function LookUp({ zone, hosts }: { zone: string; hosts: readonly string[] }) {
  const [name] = useParam("name");
  const [client] = useParam("client");
  const set = useSetParams(true);
  const [kind, setKind] = useParam("type", "A");
  const [typedName, typeName] = useState(name);
  const [typedClient, typeClient] = useState(client);
  const wrong = typedClient.trim() !== "" && !isClient(typedClient.trim()) ? "An address or a prefix, such as 203.0.113.7 or 2001:db8::/48." : undefined;
  const ask = () => set({ name: hostOf(typedName, zone), client: typedClient.trim() });
  return (
    <form className={styles.ask} onSubmit={(event) => { event.preventDefault(); ask(); }}>
      <Field label="Name" hint="The host name of an app; without the zone is enough.">
        {(control) => (
          <>
            <input {...control} className="input" list="hosts" value={typedName} onChange={(event) => typeName(event.target.value)} placeholder={hosts[0] ?? `hello.${zone}`} spellCheck={false} autoComplete="off" />
            <datalist id="hosts">{hosts.map((host) => <option key={host} value={host} />)}</datalist>
          </>
        )}
      </Field>
      <TextField label="Client" hint="Its address; empty for your own." value={typedClient} error={wrong} onChange={(event) => typeClient(event.target.value)} placeholder="203.0.113.7" spellCheck={false} autoComplete="off" />
      <SelectField label="Record" value={kind} onChange={(event) => setKind(event.target.value)} options={[{ value: "A", label: "A (IPv4)" }, { value: "AAAA", label: "AAAA (IPv6)" }]} />
      <Button type="submit" kind="primary" icon="search" disabled={typedName.trim() === "" || wrong !== undefined}>Look up</Button>
    </form>
  );
}

function Result({ name, client, kind }: { name: string; client: string; kind: "A" | "AAAA" }) {
  const answer = useQuery({
    queryKey: ["bindings", "lookup", name, client, kind],
    queryFn: () => body(api.GET("/v1/dns/lookup", { params: { query: { name, type: kind, client: client === "" ? undefined : client } } })),
    staleTime: 0,
  });
  if (notOffered(answer.error)) return <Card><NotOffered what="Looking names up" instead={`dig ${name} ${kind}${client === "" ? "" : ` +subnet=${client}`}`} /></Card>;
  return <Loaded query={answer}>{(data) => <Shown answer={data} onAgain={() => void answer.refetch()} busy={answer.isFetching} />}</Loaded>;
}

function Shown({ answer, onAgain, busy }: { answer: Answer; onAgain: () => void; busy: boolean }) {
  const { word, tone, says } = WHY[answer.why];
  const far = answer.clusters.reduce((most, cluster) => Math.max(most, cluster.rtt_ms ?? 0), 1);
  return (
    <>
      <Stats>
        <Stat label="Cluster" value={answer.cluster} note={<Badge tone={tone} dot>{word}</Badge>} />
        <Stat label="Answer" value={answer.addresses[0] ?? "none"} note={answer.addresses.length > 1 ? answer.addresses.slice(1).join(", ") : `${answer.kind} record`} />
        <Stat label="Matched prefix" value={answer.matched ?? "none"} note={typeof answer.revision === "number" ? `revision ${count(answer.revision)}` : "no binding matches"} />
        <Stat label="Kept by resolvers (TTL)" value={count(answer.ttl_s)} unit="s" note={`for all clients of its /${answer.scope}`} />
      </Stats>
      <div className="halves">
        <Card title="Why" actions={<Button small icon="refresh" busy={busy} onClick={onAgain}>Ask again</Button>}>
          <div className="stack">
            <p><strong>{says}</strong></p>
            <p className="muted break">{withGroups(answer.reason)}</p>
            <Pairs items={[["Name", <span key="n" className="mono break">{answer.name}</span>], ["App", answer.app], ["Client", <span key="c" className="mono">{answer.client}</span>]]} />
          </div>
        </Card>
        <Card title="Clusters, nearest first">
          <LongList label="Clusters, nearest first" rows={answer.clusters} rowKey={(cluster) => cluster.cluster} rowHeight={60} className={styles.clusters} chosen={(cluster) => cluster.cluster === answer.cluster}>
            {(cluster) => (
              <>
                <span className="strong truncate">{cluster.cluster}{cluster.cluster === answer.cluster && <span className="visually-hidden"> (the answer)</span>}</span>
                <span className="num nowrap">{typeof cluster.rtt_ms === "number" ? duration(cluster.rtt_ms) : "–"}</span>
                <Source source={cluster.source} />
                <span className={cluster.gateways_live === 0 ? "bad nowrap" : "muted nowrap"}>{count(cluster.gateways_live ?? 0)} of {count(cluster.gateways ?? 0)} gateways</span>
                <Bar share={(cluster.rtt_ms ?? far) / far} label={`${cluster.cluster}: ${typeof cluster.rtt_ms === "number" ? duration(cluster.rtt_ms) : "not known"} there and back`} {...(cluster.cluster === answer.cluster ? { tone: "good" as const } : {})} />
              </>
            )}
          </LongList>
        </Card>
      </div>
    </>
  );
}
