import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, body, type Schemas } from "@/api/client";
import { may, ROLE_RIGHTS, useSession } from "@/api/session";
import { useParam } from "@/app/search";
import { Ago, Badge, Button, Card, Dialog, Empty, ErrorNotice, Loaded, matches, SearchBox, SelectField, Table, TextField, useToast, useToastError, type Column } from "@/components";
import { membersQuery, type Member } from "./queries";

type Role = Schemas["TenantRole"];

const ROLES: readonly { value: Role; label: string }[] = [
  { value: "viewer", label: "Viewer: looks" },
  { value: "developer", label: "Developer: deploys and looks" },
  { value: "owner", label: "Owner: everything" },
];

/** What a role gives, in words. */
const MAY: Readonly<Record<Role, string>> = {
  viewer: "look",
  developer: "look, deploy, call, run jobs, set secrets",
  owner: "everything in the tenant",
};

export function Members({ tenant }: { tenant: string }) {
  const who = useSession();
  const manages = may(who, "manage-members", tenant);
  const members = useQuery(membersQuery(tenant));
  const [filter] = useParam("q");
  const [adding, setAdding] = useState(false);
  const change = useMemberChange(tenant);
  const columns: Column<Member>[] = [
    { id: "user", header: "User", width: "minmax(7rem, 1fr)", cell: (each) => <span className="row-tight"><b>{each.user}</b>{each.user === who.user && <Badge tone="accent">you</Badge>}</span>, sort: (each) => each.user },
    {
      id: "role", header: "Role", width: "minmax(8.5rem, 11rem)", sort: (each) => each.role,
      cell: (each) => (manages ? (
        <select className="input compact" aria-label={`Role of ${each.user}`} value={each.role} onChange={(event) => change.mutate({ user: each.user, role: event.target.value as Role, before: each.role })}>
          {ROLES.map((role) => <option key={role.value} value={role.value}>{role.value}</option>)}
        </select>
      ) : each.role),
    },
    { id: "rights", header: "May", width: "minmax(8rem, 2fr)", cell: (each) => <span className="muted" title={ROLE_RIGHTS[each.role].join(", ")}>{MAY[each.role]}</span>, from: 900 },
    { id: "since", header: "Since", width: "7rem", cell: (each) => <Ago at={each.created_at} />, sort: (each) => each.created_at, from: 560 },
    { id: "by", header: "Added by", width: "8rem", cell: (each) => each.created_by, sort: (each) => each.created_by, from: 720 },
    { id: "act", header: "", width: "5.5rem", number: true, cell: (each) => (manages ? <Button small kind="danger" aria-label={`Remove ${each.user}`} onClick={() => change.mutate({ user: each.user, role: null, before: each.role })}>Remove</Button> : null) },
  ];
  return (
    <Card flush>
      <Loaded query={members} empty={<Empty title="No members" icon="access" action={manages ? <Button kind="primary" onClick={() => setAdding(true)}>Add a member</Button> : undefined}>Only admins of the network reach this tenant.</Empty>}>
        {(rows) => {
          const found = rows.filter((each) => matches(filter, each.user, each.role));
          return (
            <>
              <div className="toolbar"><SearchBox label="Filter by user or role" found={found.length} /><span className="end" />{manages && <Button icon="plus" kind="primary" onClick={() => setAdding(true)}>Add a member</Button>}</div>
              <Table label="Members" rows={found} columns={columns} rowKey={(each) => each.user} defaultSort="user" />
            </>
          );
        }}
      </Loaded>
      {adding && <Add tenant={tenant} onClose={() => setAdding(false)} />}
    </Card>
  );
}

/** Gives a role, or takes the membership away (`role` null); the toast takes that back. */
function useMemberChange(tenant: string) {
  const queries = useQueryClient();
  const say = useToast();
  const failed = useToastError();
  const put = async (user: string, role: Role | null) => {
    const path = { tenant, user };
    if (role === null) await body(api.DELETE("/v1/tenants/{tenant}/members/{user}", { params: { path } }));
    else await body(api.PUT("/v1/tenants/{tenant}/members/{user}", { params: { path }, body: { role } }));
    await queries.invalidateQueries({ queryKey: ["members", tenant] });
  };
  return useMutation({
    mutationFn: ({ user, role }: { user: string; role: Role | null; before: Role }) => put(user, role),
    onSuccess: (_, { user, role, before }) => say({ text: role === null ? `${user} is no member any more` : `${user} is ${role} now`, undo: () => put(user, before) }),
    onError: failed,
  });
}

function Add({ tenant, onClose }: { tenant: string; onClose: () => void }) {
  const [user, setUser] = useState("");
  const [role, setRole] = useState<Role>("developer");
  const queries = useQueryClient();
  const say = useToast();
  const add = useMutation({
    mutationFn: () => body(api.PUT("/v1/tenants/{tenant}/members/{user}", { params: { path: { tenant, user } }, body: { role } })),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: ["members", tenant] });
      say(`${user} is ${role} of ${tenant}`);
      onClose();
    },
  });
  return (
    <Dialog title={`Add a member to ${tenant}`} onClose={onClose} onSubmit={() => add.mutate()}
      foot={<><Button onClick={onClose}>Cancel</Button><Button type="submit" kind="primary" busy={add.isPending} disabled={user === ""}>Add</Button></>}>
      <TextField label="User" value={user} autoComplete="off" autoCapitalize="none" spellCheck={false} hint="The name of a user that exists; admins of the network make users." onChange={(event) => setUser(event.target.value.trim())} />
      <SelectField label="Role" value={role} options={ROLES} onChange={(event) => setRole(event.target.value as Role)} />
      <ErrorNotice error={add.error} />
    </Dialog>
  );
}
