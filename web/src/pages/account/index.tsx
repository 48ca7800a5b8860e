import { PageHead, Pairs, Card, Badge } from "@/components";
import { useSession } from "@/api/session";
import { At } from "@/components";
import { PasswordCard } from "./PasswordCard";
import { SessionsCard } from "./SessionsCard";
import { TokensCard } from "./TokensCard";

/** One's own account: who one is, password, sessions, API tokens. */
export function AccountPage() {
  const who = useSession();
  return (
    <>
      <PageHead title="Account" lead="You, your sessions and your tokens." />
      <div className="halves even">
        <Card title="Profile">
          <Pairs items={[
            ["User", <b key="u">{who.user}</b>],
            ["In the network", who.network_role ?? "no role"],
            ["Tenants", who.tenants.length === 0 ? "none" : <span key="t" className="row">{who.tenants.map((member) => <Badge key={member.id} tone={member.suspended ? "warn" : "neutral"}>{member.tenant}: {member.role}{member.suspended && ", suspended"}</Badge>)}</span>],
            ["This session ends", <At key="e" at={who.expires_at} />],
          ]} />
        </Card>
        <PasswordCard />
      </div>
      <TokensCard />
      <SessionsCard />
    </>
  );
}
