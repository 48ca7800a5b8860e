import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, body, type Schemas } from "@/api/client";
import { Ago, Badge, Button, Card, Confirm, Dialog, Empty, ErrorNotice, Loaded, NoPermission, Table, TextArea, TextField, useToast, type Column } from "@/components";
import type { AppDetail } from "../queries";
import { useMayHere } from "./useApp";

/** A secret that is set, or one that the manifest names and nobody has set. */
interface Row {
  name: string;
  secret: Schemas["SecretInfo"] | null;
}

export function SecretsCard({ app }: { app: AppDetail }) {
  const may = useMayHere("manage-secrets");
  const secrets = useQuery({ queryKey: ["app", app.app, "secrets"], queryFn: () => body(api.GET("/v1/apps/{app}/secrets", { params: { path: { app: app.app } } })) });
  const [setting, setSetting] = useState<string | null>(null);
  const [removing, setRemoving] = useState<string | null>(null);
  const queries = useQueryClient();
  const say = useToast();
  const named = app.versions.find((each) => each.version === app.version)?.manifest.secrets ?? [];
  const missing = named.filter((name) => secrets.data !== undefined && !secrets.data.some((secret) => secret.name === name));
  const remove = async (name: string) => {
    await body(api.DELETE("/v1/apps/{app}/secrets/{secret}", { params: { path: { app: app.app, secret: name } } }));
    await queries.invalidateQueries({ queryKey: ["app", app.app, "secrets"] });
    say(`The secret ${name} is removed`);
  };
  const columns: readonly Column<Row>[] = [
    { id: "name", header: "Name", width: "minmax(8rem, 1.4fr)", sort: (row) => row.name, cell: ({ name, secret }) => (
      <span className="row"><span className="mono">{name}</span>{secret === null ? <Badge tone="warn" dot title="The manifest names it">not set</Badge> : !secret.used && <Badge>not used by v{app.version}</Badge>}</span>
    ) },
    { id: "set", header: "Set", width: "6.5rem", sort: (row) => row.secret?.updated_at, cell: ({ secret }) => (secret === null ? <span className="faint">–</span> : <Ago at={secret.updated_at} />) },
    { id: "by", header: "By", width: "minmax(5rem, 1fr)", sort: (row) => row.secret?.updated_by, cell: ({ secret }) => secret?.updated_by ?? <span className="faint">–</span>, from: 420 },
    ...(may ? [{ id: "act", header: "", width: "9.5rem", number: true, cell: ({ name, secret }: Row) => (secret === null ? <Button small onClick={() => setSetting(name)} aria-label={`Set ${name}`}>Set</Button> : (
      <span className="row-tight">
        <Button small onClick={() => setSetting(name)} aria-label={`Replace the value of ${name}`}>Replace</Button>
        <Button small kind="danger" icon="trash" aria-label={`Remove ${name}`} onClick={() => setRemoving(name)} />
      </span>
    )) }] : []),
  ];
  return (
    <Card title="Secrets" flush actions={may ? <Button small icon="plus" onClick={() => setSetting("")}>Set a secret</Button> : undefined} foot="Values are sealed and never shown again. Functions find those that their manifest names, in the environment.">
      <Loaded query={secrets}>
        {(rows) => (rows.length === 0 && missing.length === 0
          ? <Empty slim title="No secrets are set">What a function must know and nobody may read, such as a key of another service, is set here.</Empty>
          : <Table label="Secrets" rows={[...missing.map((name): Row => ({ name, secret: null })), ...rows.map((secret): Row => ({ name: secret.name, secret }))]} columns={columns} rowKey={(row) => row.name} defaultSort="name" sortParam="secrets" />)}
      </Loaded>
      {!may && secrets.error !== null && <NoPermission />}
      {setting !== null && <SetSecret app={app.app} name={setting} onClose={() => setSetting(null)} />}
      {removing !== null && (
        <Confirm title={`Remove ${removing}?`} action="Remove" word={removing} onConfirm={() => remove(removing)} onClose={() => setRemoving(null)}>
          <p>Its value is destroyed. Calls of a version that names it fail or go without it.</p>
        </Confirm>
      )}
    </Card>
  );
}

function SetSecret({ app, name, onClose }: { app: string; name: string; onClose: () => void }) {
  const [typed, setTyped] = useState(name);
  const [value, setValue] = useState("");
  const queries = useQueryClient();
  const say = useToast();
  const put = useMutation({
    mutationFn: () => body(api.PUT("/v1/apps/{app}/secrets/{secret}", { params: { path: { app, secret: typed } }, body: { value } })),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: ["app", app, "secrets"] });
      say(`${typed} is set; calls have it as soon as nodes hear of it`);
      onClose();
    },
  });
  const wrong = typed !== "" && !/^[A-Za-z_][A-Za-z0-9_]*$/.test(typed) ? "Letters, digits and underscores, no digit first." : null;
  return (
    <Dialog title={name === "" ? "Set a secret" : `Replace ${name}`} onClose={onClose} onSubmit={() => { if (wrong === null) put.mutate(); }}
      foot={<><Button onClick={onClose}>Cancel</Button><Button type="submit" kind="primary" busy={put.isPending} disabled={typed === "" || wrong !== null || value === ""}>Set</Button></>}>
      <TextField label="Name" className="mono" value={typed} error={wrong} readOnly={name !== ""} spellCheck={false} autoComplete="off" onChange={(event) => setTyped(event.target.value)} />
      <TextArea label="Value" className="mono" rows={4} value={value} spellCheck={false} autoComplete="off" hint="It is never shown again, to nobody." onChange={(event) => setValue(event.target.value)} />
      <ErrorNotice error={put.error} />
    </Dialog>
  );
}
