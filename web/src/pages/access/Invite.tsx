import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, body, type Schemas } from "@/api/client";
import { At, Button, Code, Dialog, ErrorNotice, Notice, SelectField, TextField } from "@/components";
import { linkOf } from "@/pages/invitation/link";

type Role = Schemas["NewNetworkRole"];

const TTLS = [["24h", "a day"], ["72h", "three days"], ["168h", "a week"], ["720h", "30 days"]] as const;

/** Invites somebody: a new user, or again the one of `name`. The link is shown once, in the place of the form. */
export function Invite({ name: known, roles, onClose }: { name?: string; roles: readonly { value: Role; label: string }[]; onClose: () => void }) {
  const [name, setName] = useState(known ?? "");
  const [role, setRole] = useState<Role>("none");
  const [ttl, setTtl] = useState("72h");
  const queries = useQueryClient();
  const invite = useMutation({
    mutationFn: () => body(api.POST("/v1/invitations", { body: { name, ttl, ...(role === "none" ? {} : { network_role: role }) } })),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["users"] }),
  });
  if (invite.data !== undefined) {
    const { token, info } = invite.data;
    return (
      <Dialog title={`Invitation for ${info.user}`} onClose={onClose} foot={<Button kind="primary" onClick={onClose}>I have copied it</Button>}>
        <Notice tone="warn">The link is shown this once. Whoever has it chooses the password of {info.user}, once, until <At at={info.expires_at} />: send it on a way that nobody else reads.</Notice>
        <Code text={linkOf(window.location.origin, token)} label="link of the invitation" wrap />
        <p className="small muted">Without a browser, with the link in FILE:</p>
        <Code text={`fdn login ${window.location.origin} --invitation-file FILE`} label="command that accepts it" wrap />
      </Dialog>
    );
  }
  return (
    <Dialog title={known === undefined ? "Invite a user" : `Invite ${known} again`} onClose={onClose} onSubmit={() => invite.mutate()} foot={<><Button onClick={onClose}>Cancel</Button><Button type="submit" kind="primary" busy={invite.isPending} disabled={name === ""}>Make the link</Button></>}>
      {known === undefined && <TextField label="Name" value={name} autoComplete="off" autoCapitalize="none" spellCheck={false} onChange={(event) => setName(event.target.value.trim())} />}
      {known === undefined && <SelectField label="In the network" value={role} options={roles} onChange={(event) => setRole(event.target.value as Role)} />}
      <SelectField label="Good for" hint={known === undefined ? "Whoever is invited chooses the password." : "The last invitation ends at once."} value={ttl} options={TTLS.map(([value, label]) => ({ value, label }))} onChange={(event) => setTtl(event.target.value)} />
      <ErrorNotice error={invite.error} />
    </Dialog>
  );
}
