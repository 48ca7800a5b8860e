import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, body } from "@/api/client";
import { useParam, type Search } from "@/app/search";
import { Ago, Badge, Bar, Button, Card, Check, Confirm, Dialog, Empty, ErrorNotice, Loaded, matches, SearchBox, Table, TextField, useToast, useToastError, type Column } from "@/components";
import { bytes, count, percent, plural } from "@/format";
import { tenantsQuery, type Tenant } from "./queries";

/** All tenants of the network, for admins. */
export function Tenants() {
  const tenants = useQuery(tenantsQuery);
  const [filter] = useParam("q");
  const [adding, setAdding] = useState(false);
  const [deleting, setDeleting] = useState<Tenant | null>(null);
  const navigate = useNavigate();
  const suspend = useSuspend();
  const columns: Column<Tenant>[] = [
    { id: "name", header: "Tenant", width: "minmax(9rem, 1.4fr)", sort: (each) => each.name, cell: (each) => <span className="row-tight"><button type="button" className="link strong" onClick={() => void navigate({ to: ".", search: (before: Search) => ({ ...before, tenant: each.name, tab: undefined, q: undefined }) })}>{each.name}</button>{each.suspended_at !== null && each.suspended_at !== undefined && <Badge tone="warn" dot>suspended</Badge>}</span> },
    { id: "apps", header: "Apps", width: "5rem", number: true, sort: (each) => each.apps, cell: (each) => count(each.apps) },
    { id: "members", header: "Members", width: "6rem", number: true, sort: (each) => each.members, cell: (each) => count(each.members), from: 520 },
    { id: "storage", header: "Storage", width: "minmax(9rem, 1fr)", sort: (each) => each.storage.bytes, cell: (each) => <Storage tenant={each} />, from: 760 },
    { id: "since", header: "Since", width: "7rem", sort: (each) => each.created_at, cell: (each) => (each.created_at === 0 ? <span className="faint">the beginning</span> : <Ago at={each.created_at} />), from: 900 },
    {
      id: "act", header: "", width: "11rem", number: true,
      cell: (each) => {
        const suspended = each.suspended_at !== null && each.suspended_at !== undefined;
        return <span className="row-tight"><Button small onClick={() => suspend.mutate({ tenant: each.name, suspended: !suspended })}>{suspended ? "Resume" : "Suspend"}</Button><Button small kind="danger" icon="trash" aria-label={`Delete ${each.name}`} onClick={() => setDeleting(each)} /></span>;
      },
    },
  ];
  return (
    <Card flush>
      <Loaded query={tenants} empty={<Empty title="No tenants" icon="access" />}>
        {(rows) => {
          const found = rows.filter((each) => matches(filter, each.name, each.id));
          return (
            <>
              <div className="toolbar"><SearchBox label="Filter by name" found={found.length} /><span className="end" /><Button icon="plus" kind="primary" onClick={() => setAdding(true)}>Make a tenant</Button></div>
              <Table label="Tenants" rows={found} columns={columns} rowKey={(each) => each.id} defaultSort="name" />
            </>
          );
        }}
      </Loaded>
      {adding && <Add onClose={() => setAdding(false)} />}
      {deleting !== null && <Delete tenant={deleting} onClose={() => setDeleting(null)} />}
    </Card>
  );
}

function Storage({ tenant: { name, storage } }: { tenant: Tenant }) {
  const share = storage.bytes_limit === 0 ? 0 : storage.bytes / storage.bytes_limit;
  return <div className="stack-s" style={{ gap: 4 }}><span className="small">{bytes(storage.bytes)} of {bytes(storage.bytes_limit)}</span><Bar share={share} label={`${name} uses ${percent(share)} of its storage`} tone={share > 0.9 ? "bad" : "good"} /></div>;
}

function useSuspend() {
  const queries = useQueryClient();
  const say = useToast();
  const failed = useToastError();
  const put = async (tenant: string, suspended: boolean) => {
    await body(api.PATCH("/v1/tenants/{tenant}", { params: { path: { tenant } }, body: { suspended } }));
    await queries.invalidateQueries({ queryKey: ["tenants"] });
  };
  return useMutation({
    mutationFn: ({ tenant, suspended }: { tenant: string; suspended: boolean }) => put(tenant, suspended),
    onSuccess: (_, { tenant, suspended }) => say({ text: suspended ? `${tenant} is suspended: calls of its apps are refused` : `${tenant} is served again`, undo: () => put(tenant, !suspended) }),
    onError: failed,
  });
}

function Add({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [owner, setOwner] = useState("");
  const queries = useQueryClient();
  const say = useToast();
  const add = useMutation({
    mutationFn: () => body(api.POST("/v1/tenants", { body: { name, ...(owner === "" ? {} : { owner }) } })),
    onSuccess: async (tenant) => {
      await queries.invalidateQueries({ queryKey: ["tenants"] });
      say(`The tenant ${tenant.name} is made`);
      onClose();
    },
  });
  return (
    <Dialog title="Make a tenant" onClose={onClose} onSubmit={() => add.mutate()} foot={<><Button onClick={onClose}>Cancel</Button><Button type="submit" kind="primary" busy={add.isPending} disabled={name === ""}>Make it</Button></>}>
      <TextField label="Name" value={name} autoComplete="off" spellCheck={false} onChange={(event) => setName(event.target.value.trim())} />
      <TextField label="Owner, if it has one already" value={owner} autoComplete="off" spellCheck={false} hint="The name of a user that exists." onChange={(event) => setOwner(event.target.value.trim())} />
      <ErrorNotice error={add.error} />
    </Dialog>
  );
}

function Delete({ tenant, onClose }: { tenant: Tenant; onClose: () => void }) {
  const [force, setForce] = useState(false);
  const queries = useQueryClient();
  const say = useToast();
  const remove = async () => {
    await body(api.DELETE("/v1/tenants/{tenant}", { params: { path: { tenant: tenant.name }, query: { force } } }));
    await queries.invalidateQueries({ queryKey: ["tenants"] });
    say(`${tenant.name} is deleted`);
  };
  return (
    <Confirm title={`Delete ${tenant.name}?`} action="Delete for ever" word={tenant.name} onConfirm={remove} onClose={onClose}>
      <p>Members, budgets, keys and tokens that counted there only go too. Its bills stay, for admins. This cannot be undone.</p>
      {tenant.apps > 0 && <Check label={`Also delete its ${plural(tenant.apps, "app")}, with all versions`} checked={force} onChange={(event) => setForce(event.target.checked)} />}
    </Confirm>
  );
}
