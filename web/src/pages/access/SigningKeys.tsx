import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { allPages, api, body, type Schemas } from "@/api/client";
import { may, useSession } from "@/api/session";
import { Ago, Button, Card, Confirm, Copyable, Dialog, Empty, ErrorNotice, Loaded, Segmented, Table, TextArea, TextField, useToast, useToastError, type Column } from "@/components";
import { shortDigest } from "@/format";

type Key = Schemas["SigningKeyInfo"];

/** Whose signatures count in a tenant, and whether uploads need one. */
export function SigningKeys({ tenant }: { tenant: string }) {
  const manages = may(useSession(), "manage-signing", tenant);
  const keys = useQuery({ queryKey: ["tenants", tenant, "keys"], queryFn: () => allPages((cursor) => api.GET("/v1/tenants/{tenant}/signing-keys", { params: { path: { tenant }, query: { cursor } } })) });
  const [adding, setAdding] = useState(false);
  const [removing, setRemoving] = useState<Key | null>(null);
  const queries = useQueryClient();
  const say = useToast();
  const remove = async (key: Key) => {
    await body(api.DELETE("/v1/tenants/{tenant}/signing-keys/{name}", { params: { path: { tenant, name: key.name } } }));
    await queries.invalidateQueries({ queryKey: ["tenants", tenant, "keys"] });
    say({
      text: `Signatures of ${key.name} count no longer`,
      undo: async () => {
        await body(api.PUT("/v1/tenants/{tenant}/signing-keys/{name}", { params: { path: { tenant, name: key.name } }, body: { public_key: key.public_key } }));
        await queries.invalidateQueries({ queryKey: ["tenants", tenant, "keys"] });
      },
    });
  };
  const columns: Column<Key>[] = [
    { id: "name", header: "Name", cell: (each) => <b>{each.name}</b>, sort: (each) => each.name },
    { id: "algorithm", header: "Kind", width: "8rem", cell: (each) => each.algorithm, sort: (each) => each.algorithm, from: 560 },
    { id: "fingerprint", header: "Fingerprint", width: "11rem", cell: (each) => <Copyable text={each.fingerprint} shown={shortDigest(each.fingerprint)} what={`fingerprint of ${each.name}`} />, from: 480 },
    { id: "added", header: "Added", width: "7rem", cell: (each) => <Ago at={each.created_at} />, sort: (each) => each.created_at },
    { id: "act", header: "", width: "5.5rem", number: true, cell: (each) => (manages ? <Button small kind="danger" aria-label={`Remove ${each.name}`} onClick={() => setRemoving(each)}>Remove</Button> : null) },
  ];
  return (
    <div className="stack">
      <Policy tenant={tenant} manages={manages} />
      <Card title="Keys" flush actions={manages ? <Button small icon="plus" onClick={() => setAdding(true)}>Add a key</Button> : undefined}>
        <Loaded query={keys} empty={<Empty title="No signing keys" icon="lock">Add the public key that your builds sign with; uploads can then be refused unless they are signed.</Empty>}>
          {(rows) => <Table label="Signing keys" rows={rows} columns={columns} rowKey={(each) => each.name} defaultSort="name" />}
        </Loaded>
      </Card>
      {adding && <Add tenant={tenant} onClose={() => setAdding(false)} />}
      {removing !== null && <Confirm title={`Remove ${removing.name}?`} action="Remove" onConfirm={() => remove(removing)} onClose={() => setRemoving(null)}><p>Uploads signed with it are refused from now on. What is deployed stays.</p></Confirm>}
    </div>
  );
}

function Policy({ tenant, manages }: { tenant: string; manages: boolean }) {
  const one = useQuery({ queryKey: ["tenants", tenant], queryFn: () => body(api.GET("/v1/tenants/{tenant}", { params: { path: { tenant } } })) });
  const queries = useQueryClient();
  const failed = useToastError();
  const say = useToast();
  const put = async (policy: Schemas["SignaturePolicy"]) => {
    await body(api.PUT("/v1/tenants/{tenant}/signature-policy", { params: { path: { tenant } }, body: { policy } }));
    await queries.invalidateQueries({ queryKey: ["tenants", tenant] });
  };
  const set = useMutation({
    mutationFn: put,
    onSuccess: (_, policy) => say({ text: `Signatures are ${policy} now`, undo: () => put(policy === "required" ? "optional" : "required") }),
    onError: failed,
  });
  return (
    <Card title="Uploads">
      <Loaded query={one} lines={1}>
        {(data) => (
          <div className="row between">
            <span className="muted">{data.signature_policy === "required" ? "Uploads without a signature by one of the keys are refused." : "Uploads need no signature."}</span>
            {manages && <Segmented label="Signatures" value={data.signature_policy} onChange={(policy) => set.mutate(policy)} options={[{ value: "optional", label: "Optional" }, { value: "required", label: "Required" }]} />}
          </div>
        )}
      </Loaded>
    </Card>
  );
}

function Add({ tenant, onClose }: { tenant: string; onClose: () => void }) {
  const [name, setName] = useState("");
  const [pem, setPem] = useState("");
  const queries = useQueryClient();
  const add = useMutation({
    mutationFn: () => body(api.PUT("/v1/tenants/{tenant}/signing-keys/{name}", { params: { path: { tenant, name } }, body: { public_key: pem } })),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: ["tenants", tenant, "keys"] });
      onClose();
    },
  });
  return (
    <Dialog title="Add a signing key" onClose={onClose} onSubmit={() => add.mutate()} foot={<><Button onClick={onClose}>Cancel</Button><Button type="submit" kind="primary" busy={add.isPending} disabled={name === "" || pem === ""}>Add</Button></>}>
      <TextField label="Name" value={name} autoComplete="off" spellCheck={false} onChange={(event) => setName(event.target.value.trim())} />
      <TextArea label="Public key (PEM)" className="mono" rows={6} value={pem} spellCheck={false} placeholder={"-----BEGIN PUBLIC KEY-----\n…"} hint="ECDSA on P-256, as cosign makes it, or Ed25519. Never a private key." onChange={(event) => setPem(event.target.value)} />
      <ErrorNotice error={add.error} />
    </Dialog>
  );
}
