/** Letting a machine in: a token, and the command that is typed there. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { allPages, api, body, type Schemas } from "@/api/client";
import { useMay } from "@/api/session";
import { useParam } from "@/app/search";
import { useNow } from "@/app/zone";
import { Ago, At, Badge, Button, Card, Code, Confirm, Empty, ErrorNotice, Loaded, NoPermission, Notice, SelectField, Table, TextField, useToast, type Column } from "@/components";
import { count, plural } from "@/format";
import { joinCommand } from "./figures";
import styles from "./Network.module.css";
import { NetworkFrame } from "./parts";
import { clustersQuery } from "./queries";

type Token = Schemas["JoinTokenInfo"];

/** `/network/join` */
export function JoinPage() {
  const operate = useMay("operate-machines");
  const clusters = useQuery(clustersQuery);
  if (!operate) return <NetworkFrame title="Join a node"><Card><NoPermission detail="Letting machines in takes the right to operate them." /></Card></NetworkFrame>;
  return (
    <NetworkFrame title="Join a node" lead="A token lets machines into one cluster: as many as you say, for as long as you say.">
      <Card title="Let a machine in">
        <Loaded query={clusters} empty={<Empty title="No cluster yet" icon="network" action={<Link to="/network" className="button primary">To the clusters</Link>}>Make a cluster first; machines are let into one.</Empty>}>
          {(rows) => <Steps clusters={rows.map((cluster) => cluster.cluster).sort()} />}
        </Loaded>
      </Card>
      <Tokens />
    </NetworkFrame>
  );
}

const TTLS = [["15m", "15 minutes"], ["1h", "an hour"], ["24h", "a day"], ["168h", "a week"]] as const;

function Steps({ clusters }: { clusters: readonly string[] }) {
  const [cluster, setCluster] = useParam("cluster", clusters[0] ?? "");
  const [ttl, setTtl] = useState("1h");
  const [uses, setUses] = useState("1");
  const [node, setNode] = useState("");
  const queries = useQueryClient();
  const amount = Number(uses);
  const fits = Number.isInteger(amount) && amount >= 1;
  const create = useMutation({
    mutationFn: () => body(api.POST("/v1/join-tokens", { params: { header: { "idempotency-key": crypto.randomUUID() } }, body: { cluster, ttl, uses: amount } })),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["join-tokens"] }),
  });
  const made = create.data;
  return (
    <ol className={styles.steps}>
      <li>
        <form className="stack" onSubmit={(event) => { event.preventDefault(); create.mutate(); }}>
          <h3>Make a token</h3>
          <div className="cards">
            <SelectField label="Cluster" value={cluster} onChange={(event) => setCluster(event.target.value)} options={(clusters.includes(cluster) ? clusters : [cluster, ...clusters]).map((value) => ({ value, label: value }))} />
            <SelectField label="Good for" value={ttl} onChange={(event) => setTtl(event.target.value)} options={TTLS.map(([value, label]) => ({ value, label }))} />
            <TextField label="Machines" type="number" min={1} max={1000} value={uses} onChange={(event) => setUses(event.target.value)} error={fits ? undefined : "A whole number from 1 up."} />
          </div>
          <div><Button type="submit" kind="primary" busy={create.isPending} disabled={!fits}>{made === undefined ? "Make the token" : "Make another one"}</Button></div>
          <ErrorNotice error={create.error} />
        </form>
      </li>
      <li>
        <div className="stack">
          <h3>Type this on the machine</h3>
          {made === undefined ? <p className="muted">The command stands here when the token is made.</p> : (
            <>
              <Notice tone="warn">The token is shown this once. It lets {plural(made.info.uses, "machine")} into {made.info.cluster} until <At at={made.info.expires_at} />.</Notice>
              <TextField label="Name of the node" hint="Empty: the machine's host name." value={node} onChange={(event) => setNode(event.target.value)} placeholder={`${made.info.cluster}-3`} spellCheck={false} />
              <Code text={made.token} label="join token" wrap />
              <Code text={joinCommand(window.location.origin, made.token, made.info.cluster, node.trim())} label="command that joins" wrap />
            </>
          )}
        </div>
      </li>
      <li>
        <div className="stack-s">
          <h3>See it come</h3>
          <p className="muted">It appears among the <Link to="/network/nodes">nodes</Link> as joined, and as alive as soon as its agent runs.</p>
        </div>
      </li>
    </ol>
  );
}

function Tokens() {
  const list = useQuery({ queryKey: ["join-tokens"], queryFn: () => allPages((cursor) => api.GET("/v1/join-tokens", { params: { query: { cursor } } })) });
  const [revoking, revoke] = useState<Token | null>(null);
  const queries = useQueryClient();
  const say = useToast();
  const now = useNow();
  const columns: readonly Column<Token>[] = [
    { id: "id", header: "Token", width: "minmax(8rem, 1.6fr)", cell: (token) => <span className="mono" title={token.id}>{token.id}</span>, sort: (token) => token.id },
    { id: "cluster", header: "Cluster", cell: (token) => token.cluster, sort: (token) => token.cluster, from: 420 },
    { id: "uses", header: "Uses left", cell: (token) => `${count(token.uses_left)} of ${count(token.uses)}`, sort: (token) => token.uses_left, width: "6.5rem", from: 480 },
    { id: "state", header: "State", cell: (token) => <TokenState token={token} now={now} />, sort: (token) => stateOf(token, now), width: "6.5rem" },
    { id: "by", header: "Made by", cell: (token) => token.created_by, sort: (token) => token.created_by, from: 760 },
    { id: "expires", header: "Ends", cell: (token) => <Ago at={token.expires_at} />, sort: (token) => token.expires_at, width: "7rem", from: 620 },
    { id: "act", header: "", cell: (token) => (stateOf(token, now) === "good" ? <Button small kind="danger" aria-label={`Take back ${token.id}`} onClick={() => revoke(token)}>Take back</Button> : null), width: "6rem", number: true },
  ];
  return (
    <Card title="Tokens" flush>
      <Loaded query={list} empty={<Empty title="No token was made yet" icon="lock">Make the first one above.</Empty>}>
        {(rows) => <Table label="Join tokens" rows={rows} columns={columns} rowKey={(token) => token.id} defaultSort="-expires" />}
      </Loaded>
      {revoking !== null && (
        <Confirm title="Take the token back?" action="Take it back" onClose={() => revoke(null)} onConfirm={async () => {
          await api.DELETE("/v1/join-tokens/{token}", { params: { path: { token: revoking.id } } });
          say("The token lets nobody in any more");
          await queries.invalidateQueries({ queryKey: ["join-tokens"] });
        }}>
          <p>It lets no machine into {revoking.cluster} any more. Nodes that came with it stay.</p>
        </Confirm>
      )}
    </Card>
  );
}

function stateOf(token: Token, now: number): "good" | "taken back" | "ended" | "used up" {
  if (token.revoked_at != null) return "taken back";
  if (token.expires_at <= now) return "ended";
  return token.uses_left === 0 ? "used up" : "good";
}

function TokenState({ token, now }: { token: Token; now: number }) {
  const state = stateOf(token, now);
  return <Badge tone={state === "good" ? "good" : "neutral"}>{state}</Badge>;
}
