import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, body } from "@/api/client";
import { Ago, Badge, Button, Card, Confirm, CopyButton, Empty, ErrorNotice, Loaded, LongList, Notice, TextField, useToast, useToastError } from "@/components";
import { broughtBack, verified, type Domain } from "./domain";
import { useApp, useAppName, useMayHere } from "./useApp";

export function Domains() {
  const name = useAppName();
  const may = useMayHere("deploy");
  const domains = useQuery({ queryKey: ["app", name, "domains"], queryFn: () => body(api.GET("/v1/apps/{app}/domains", { params: { path: { app: name } } })) });
  return (
    <div className="stack">
      {may && <Add app={name} />}
      <Loaded query={domains} empty={<Card><Empty title="No domains of your own" icon="dns">The function answers at its name in the network’s zone. Add a host name that you own, prove it with a DNS record, and it answers there too.</Empty></Card>}>
        {(rows) => <LongList label="Domains" className="stack" rows={rows} rowKey={(domain) => domain.host} rowHeight={230}>{(domain) => <One domain={domain} may={may} />}</LongList>}
      </Loaded>
    </div>
  );
}

function Add({ app }: { app: string }) {
  const [host, setHost] = useState("");
  const queries = useQueryClient();
  const say = useToast();
  const zone = useApp().data?.value.host;
  const add = useMutation({
    mutationFn: () => body(api.POST("/v1/apps/{app}/domains", { params: { path: { app } }, body: { host } })),
    onSuccess: async (domain) => {
      setHost("");
      await queries.invalidateQueries({ queryKey: ["app", app, "domains"] });
      say(`${domain.host} is asked for; set the records to prove it`);
    },
  });
  return (
    <Card title="Add a domain">
      <form className="stack narrow" onSubmit={(event) => { event.preventDefault(); if (host !== "") add.mutate(); }}>
        <TextField label="Host name" value={host} placeholder="api.example.org" spellCheck={false} autoComplete="off" autoCapitalize="none" hint={zone === undefined ? undefined : `It will answer as ${zone} does.`} onChange={(event) => setHost(event.target.value.trim())} />
        <ErrorNotice error={add.error} />
        <div><Button type="submit" kind="primary" busy={add.isPending} disabled={host === ""}>Add</Button></div>
      </form>
    </Card>
  );
}

const STATES = {
  pending: { tone: "warn", words: "waits for its proof" },
  verified: { tone: "good", words: "proven" },
  failing: { tone: "bad", words: "proof is gone" },
} as const;

function One({ domain, may }: { domain: Domain; may: boolean }) {
  const queries = useQueryClient();
  const say = useToast();
  const failed = useToastError();
  const [removing, setRemoving] = useState(false);
  const again = () => queries.invalidateQueries({ queryKey: ["app", domain.app, "domains"] });
  const verify = useMutation({
    mutationFn: () => verified(domain),
    onSuccess: async (found) => {
      await again();
      say(found.state === "verified" ? `${found.host} is proven` : { text: found.problem ?? "The proof was not found yet.", bad: true });
    },
    onError: failed,
  });
  const remove = async () => {
    await body(api.DELETE("/v1/apps/{app}/domains/{host}", { params: { path: { app: domain.app, host: domain.host } } }));
    await again();
    say({ text: `${domain.host} is removed`, undo: async () => {
      try {
        await broughtBack(domain);
      } finally {
        await again();
      }
    } });
  };
  const state = STATES[domain.state];
  return (
    <Card title={domain.host} actions={<><Badge tone={state.tone} dot>{state.words}</Badge>{may && <><Button small icon="refresh" busy={verify.isPending} onClick={() => verify.mutate()}>Check now</Button><Button small kind="danger" icon="trash" aria-label={`Remove ${domain.host}`} onClick={() => setRemoving(true)} /></>}</>}
      flush foot={<>Asked for <Ago at={domain.created_at} /> by {domain.created_by}; looked at <Ago at={domain.checked_at} />.{domain.ends_at !== null && domain.ends_at !== undefined && <> Answers until <Ago at={domain.ends_at} /> without a proof.</>}</>}>
      {domain.problem !== null && domain.problem !== undefined && <div className="card-body"><Notice tone="warn">{domain.problem}</Notice></div>}
      <div className="scroll-x" tabIndex={0} role="region" aria-label={`Records for ${domain.host}`}>
        <table className="plain-table">
          <thead><tr><th>Record</th><th>Name</th><th>Value</th><th>For</th></tr></thead>
          <tbody>{domain.records.map((record) => (
            <tr key={`${record.kind} ${record.name}`}>
              <td className="mono">{record.kind}</td>
              <td className="mono nowrap">{record.name} <CopyButton text={record.name} what="name of the record" /></td>
              <td className="mono break">{record.value} <CopyButton text={record.value} what="value of the record" /></td>
              <td className="muted">{record.purpose}</td>
            </tr>
          ))}</tbody>
        </table>
      </div>
      {removing && <Confirm title={`Remove ${domain.host}?`} action="Remove" onConfirm={remove} onClose={() => setRemoving(false)}><p>The function stops answering there at once.</p></Confirm>}
    </Card>
  );
}
