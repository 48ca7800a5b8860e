import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { allPages, api, body, type Schemas } from "@/api/client";
import { useNow } from "@/app/zone";
import { useSession, type Right } from "@/api/session";
import { Ago, Badge, Button, Card, Check, Code, Confirm, Dialog, Empty, ErrorNotice, Loaded, Notice, SelectField, Table, TextField, useToast, type Column } from "@/components";
import { GRANTABLE } from "./scopes";

type Token = Schemas["ApiTokenInfo"];

export function TokensCard() {
  const tokens = useQuery({ queryKey: ["tokens"], queryFn: () => allPages((cursor) => api.GET("/v1/tokens", { params: { query: { cursor } } })) });
  const [making, setMaking] = useState(false);
  const [revoking, setRevoking] = useState<Token | null>(null);
  const queries = useQueryClient();
  const who = useSession();
  const say = useToast();
  const now = useNow();
  const revoke = async (token: Token) => {
    await body(api.DELETE("/v1/tokens/{api_token}", { params: { path: { api_token: token.id } } }));
    await queries.invalidateQueries({ queryKey: ["tokens"] });
    say(`${token.name} counts no longer`);
  };
  const columns: Column<Token>[] = [
    { id: "name", header: "Name", width: "minmax(8rem, 1fr)", cell: (each) => <b>{each.name}</b>, sort: (each) => each.name },
    { id: "scopes", header: "May", width: "minmax(8rem, 2fr)", cell: (each) => each.scopes.join(", "), from: 620 },
    { id: "tenant", header: "Tenant", width: "8rem", cell: (each) => who.tenants.find((member) => member.id === each.tenant)?.tenant ?? each.tenant ?? "all", from: 860 },
    { id: "used", header: "Last used", width: "7rem", cell: (each) => <Ago at={each.last_used_at} />, sort: (each) => each.last_used_at, from: 480 },
    { id: "state", header: "Ends", width: "8rem", sort: (each) => each.expires_at, cell: (each) => (each.revoked_at !== null && each.revoked_at !== undefined ? <Badge tone="bad" dot>revoked</Badge> : each.expires_at < now ? <Badge>over</Badge> : <Ago at={each.expires_at} />) },
    { id: "act", header: "", width: "5.5rem", number: true, cell: (each) => (each.revoked_at !== null && each.revoked_at !== undefined ? null : <Button small kind="danger" onClick={() => setRevoking(each)} aria-label={`Revoke ${each.name}`}>Revoke</Button>) },
  ];
  return (
    <Card title="API tokens" flush actions={<Button small icon="plus" onClick={() => setMaking(true)}>Make a token</Button>} foot="For machines and scripts. A token never allows more than you may do yourself.">
      <Loaded query={tokens} empty={<Empty title="No tokens" icon="lock">Make one for a build or a script; it is shown once.</Empty>}>
        {(rows) => <Table label="API tokens" rows={rows} columns={columns} rowKey={(each) => each.id} sortParam="tokens" />}
      </Loaded>
      {making && <MakeToken onClose={() => setMaking(false)} />}
      {revoking !== null && <Confirm title={`Revoke ${revoking.name}?`} action="Revoke" onConfirm={() => revoke(revoking)} onClose={() => setRevoking(null)}><p>Whatever uses it is refused at once. This cannot be undone.</p></Confirm>}
    </Card>
  );
}

const LIVES = [["24h", "a day"], ["168h", "a week"], ["720h", "30 days"], ["2160h", "90 days"], ["8760h", "a year"]] as const;

function MakeToken({ onClose }: { onClose: () => void }) {
  const who = useSession();
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState<ReadonlySet<Right>>(new Set<Right>(["look"]));
  const [tenant, setTenant] = useState("");
  const [ttl, setTtl] = useState("720h");
  const queries = useQueryClient();
  const make = useMutation({
    mutationFn: () => body(api.POST("/v1/tokens", { body: { name, scopes: [...scopes], ttl, ...(tenant === "" ? {} : { tenant }) } })),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["tokens"] }),
  });
  if (make.data !== undefined) {
    return (
      <Dialog title={`Token ${make.data.info.name}`} onClose={onClose} foot={<Button kind="primary" onClick={onClose}>I have copied it</Button>}>
        <Notice tone="warn">It is shown once, here and now. Only its hash is kept.</Notice>
        <Code text={make.data.token} label="token" wrap />
      </Dialog>
    );
  }
  const toggle = (right: Right, on: boolean) => setScopes(new Set(on ? [...scopes, right] : [...scopes].filter((each) => each !== right)));
  return (
    <Dialog title="Make an API token" onClose={onClose} onSubmit={() => make.mutate()}
      foot={<><Button onClick={onClose}>Cancel</Button><Button type="submit" kind="primary" busy={make.isPending} disabled={name === "" || scopes.size === 0}>Make it</Button></>}>
      <TextField label="What it is for" value={name} maxLength={63} autoComplete="off" placeholder="deploys from CI" onChange={(event) => setName(event.target.value)} />
      <fieldset className="fieldset"><legend>It may</legend>
        <div className="halves small-halves">{GRANTABLE.map(([right, words]) => <Check key={right} label={words} checked={scopes.has(right)} onChange={(event) => toggle(right, event.target.checked)} />)}</div>
      </fieldset>
      <div className="halves small-halves">
        <SelectField label="In the tenant" value={tenant} options={[{ value: "", label: "all of mine" }, ...who.tenants.map((member) => ({ value: member.tenant, label: member.tenant }))]} onChange={(event) => setTenant(event.target.value)} />
        <SelectField label="For" value={ttl} options={LIVES.map(([value, label]) => ({ value, label }))} onChange={(event) => setTtl(event.target.value)} />
      </div>
      <ErrorNotice error={make.error} />
    </Dialog>
  );
}
