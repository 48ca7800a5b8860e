import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, body, type Schemas } from "@/api/client";
import { useSession } from "@/api/session";
import { useParam } from "@/app/search";
import { useNow } from "@/app/zone";
import { Ago, Badge, Button, Card, Check, Confirm, Dialog, Empty, ErrorNotice, Loaded, matches, SearchBox, SelectField, Table, TextField, useToast, useToastError, type Column } from "@/components";
import { Invite } from "./Invite";
import { usersQuery, type User } from "./queries";

type NewRole = Schemas["NewNetworkRole"];

const ROLES: readonly { value: NewRole; label: string }[] = [
  { value: "none", label: "No role in the network" },
  { value: "operator", label: "Operator: runs the machines" },
  { value: "admin", label: "Admin: everything" },
];

/** All users of the network, for admins. */
export function Users() {
  const who = useSession();
  const users = useQuery(usersQuery);
  const [filter] = useParam("q");
  const [adding, setAdding] = useState(false);
  // Somebody new, or one of those who were invited before.
  const [inviting, setInviting] = useState<User | "new" | null>(null);
  const [deleting, setDeleting] = useState<User | null>(null);
  const [resetting, setResetting] = useState<User | null>(null);
  const queries = useQueryClient();
  const say = useToast();
  const now = useNow();
  const change = useUserChange();
  const remove = async (user: User) => {
    await body(api.DELETE("/v1/users/{user}", { params: { path: { user: user.name } } }));
    await queries.invalidateQueries({ queryKey: ["users"] });
    say(`${user.name} is deleted`);
  };
  const columns: Column<User>[] = [
    { id: "name", header: "User", width: "minmax(7rem, 1fr)", sort: (each) => each.name, cell: (each) => <span className="row-tight"><b>{each.name}</b>{each.name === who.user && <Badge tone="accent">you</Badge>}{isOff(each) ? <Badge tone="warn" dot>disabled</Badge> : isInvited(each) && <Badge>{each.invited_until > now ? "invited" : "invitation over"}</Badge>}</span> },
    {
      id: "role", header: "In the network", width: "minmax(8rem, 11rem)", sort: (each) => each.network_role,
      cell: (each) => (
        <select className="input compact" aria-label={`Network role of ${each.name}`} value={each.network_role ?? "none"} onChange={(event) => change.mutate({ user: each.name, next: { network_role: event.target.value as NewRole }, before: { network_role: each.network_role ?? "none" } })}>
          {ROLES.map((role) => <option key={role.value} value={role.value}>{role.value}</option>)}
        </select>
      ),
    },
    { id: "since", header: "Since", width: "7rem", sort: (each) => each.created_at, cell: (each) => <Ago at={each.created_at} />, from: 640 },
    { id: "password", header: "Password set", width: "8rem", sort: (each) => each.password_changed_at, cell: (each) => (isInvited(each) ? "none yet" : <Ago at={each.password_changed_at} />), from: 760 },
    {
      id: "act", header: "", width: "14rem", number: true,
      cell: (each) => (
        <span className="row-tight">
          {isInvited(each)
            ? <Button small onClick={() => setInviting(each)} aria-label={`Invite ${each.name} again`} disabled={isOff(each)}>Invite</Button>
            : <Button small onClick={() => setResetting(each)} aria-label={`Set a password for ${each.name}`}>Password</Button>}
          <Button small onClick={() => change.mutate({ user: each.name, next: { disabled: !isOff(each) }, before: { disabled: isOff(each) } })}>{isOff(each) ? "Enable" : "Disable"}</Button>
          <Button small kind="danger" icon="trash" aria-label={`Delete ${each.name}`} onClick={() => setDeleting(each)} />
        </span>
      ),
    },
  ];
  return (
    <Card flush>
      <Loaded query={users} empty={<Empty title="No users" icon="access" />}>
        {(rows) => {
          const found = rows.filter((each) => matches(filter, each.name, each.network_role ?? ""));
          return (
            <>
              <div className="toolbar"><SearchBox label="Filter by name or role" found={found.length} /><span className="end" /><Button icon="plus" onClick={() => setAdding(true)}>Make a user</Button><Button icon="plus" kind="primary" onClick={() => setInviting("new")}>Invite a user</Button></div>
              <Table label="Users" rows={found} columns={columns} rowKey={(each) => each.name} defaultSort="name" />
            </>
          );
        }}
      </Loaded>
      {inviting !== null && <Invite {...(inviting === "new" ? {} : { name: inviting.name })} roles={ROLES} onClose={() => setInviting(null)} />}
      {adding && <Add onClose={() => setAdding(false)} />}
      {resetting !== null && <SetPassword user={resetting.name} onClose={() => setResetting(null)} />}
      {deleting !== null && <Confirm title={`Delete ${deleting.name}?`} action="Delete for ever" word={deleting.name} onConfirm={() => remove(deleting)} onClose={() => setDeleting(null)}><p>Memberships, sessions and tokens go too. The audit log keeps the name. This cannot be undone.</p></Confirm>}
    </Card>
  );
}

/** Whether somebody was invited and has chosen no password yet. */
function isInvited(user: User): user is User & { invited_until: number } {
  return user.invited_until !== null && user.invited_until !== undefined;
}

function isOff(user: User): boolean {
  return user.disabled_at !== null && user.disabled_at !== undefined;
}

type Change = Schemas["UpdateUser"];

function useUserChange() {
  const queries = useQueryClient();
  const say = useToast();
  const failed = useToastError();
  const patch = async (user: string, change: Change) => {
    await body(api.PATCH("/v1/users/{user}", { params: { path: { user } }, body: change }));
    await queries.invalidateQueries({ queryKey: ["users"] });
  };
  return useMutation({
    mutationFn: ({ user, next }: { user: string; next: Change; before: Change }) => patch(user, next),
    onSuccess: (_, { user, next, before }) => say({ text: words(user, next), undo: () => patch(user, before) }),
    onError: failed,
  });
}

function words(user: string, change: Change): string {
  if (change.disabled === true) return `${user} is disabled; all sessions and tokens have ended`;
  if (change.disabled === false) return `${user} may sign in again`;
  return change.network_role === "none" ? `${user} has no role in the network now` : `${user} is ${change.network_role ?? ""} of the network now`;
}

function Add({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [oidc, setOidc] = useState(false);
  const [role, setRole] = useState<NewRole>("none");
  const queries = useQueryClient();
  const say = useToast();
  const add = useMutation({
    mutationFn: () => body(api.POST("/v1/users", { body: { name, ...(oidc ? { oidc } : { password }), ...(role === "none" ? {} : { network_role: role }) } })),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: ["users"] });
      say(`The user ${name} is made`);
      onClose();
    },
  });
  return (
    <Dialog title="Make a user" onClose={onClose} onSubmit={() => add.mutate()} foot={<><Button onClick={onClose}>Cancel</Button><Button type="submit" kind="primary" busy={add.isPending} disabled={name === "" || (!oidc && password === "")}>Make it</Button></>}>
      <TextField label="Name" value={name} autoComplete="off" autoCapitalize="none" spellCheck={false} onChange={(event) => setName(event.target.value.trim())} />
      <Check label="Signs in with the identity provider" hint="The first login there under this name is this user." checked={oidc} onChange={(event) => setOidc(event.target.checked)} />
      {!oidc && <TextField label="First password" type="password" autoComplete="new-password" value={password} onChange={(event) => setPassword(event.target.value)} />}
      <SelectField label="In the network" value={role} options={ROLES} onChange={(event) => setRole(event.target.value as NewRole)} />
      <ErrorNotice error={add.error} />
    </Dialog>
  );
}

function SetPassword({ user, onClose }: { user: string; onClose: () => void }) {
  const [password, setPassword] = useState("");
  const say = useToast();
  const set = useMutation({
    mutationFn: () => body(api.PUT("/v1/users/{user}/password", { params: { path: { user } }, body: { password } })),
    onSuccess: () => {
      say(`${user} has a new password; all sessions have ended`);
      onClose();
    },
  });
  return (
    <Dialog title={`Set a password for ${user}`} onClose={onClose} onSubmit={() => set.mutate()} foot={<><Button onClick={onClose}>Cancel</Button><Button type="submit" kind="primary" busy={set.isPending} disabled={password === ""}>Set it</Button></>}>
      <TextField label="New password" type="password" autoComplete="new-password" value={password} onChange={(event) => setPassword(event.target.value)} />
      <ErrorNotice error={set.error} />
    </Dialog>
  );
}
