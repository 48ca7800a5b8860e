import { useSession } from "@/api/session";
import { useParam, useTenant } from "@/app/search";
import { Card, Empty, NoPermission, PageHead, Tabs } from "@/components";
import { Members } from "./Members";
import { SigningKeys } from "./SigningKeys";
import { Tenants } from "./Tenants";
import { Users } from "./Users";

/** Who may do what: members of a tenant, and for admins tenants and users. */
export function AccessPage() {
  const who = useSession();
  const chosen = useTenant();
  const [tab, setTab] = useParam("tab", "members", true);
  const admin = who.network_role === "admin";
  const tenant = chosen ?? who.tenants[0]?.tenant ?? "";
  const items = [
    { value: "members", label: "Members" },
    { value: "signing", label: "Signing keys" },
    ...(admin ? [{ value: "tenants", label: "Tenants" }, { value: "users", label: "Users" }] : []),
  ];
  const about = tab === "members" || tab === "signing";
  return (
    <>
      <PageHead title="Access" lead={about && tenant !== "" ? <>In the tenant <b>{tenant}</b>.</> : "In the whole network."} documentTitle="Access" />
      <div>
        <Tabs label="Parts of Access" value={tab} items={items} onChange={setTab}>
          <div style={{ paddingBlockStart: "var(--s5)" }}>
            {about && tenant === "" && <Card><Empty title="You are a member of no tenant" icon="access">Ask an owner of a tenant to add you.</Empty></Card>}
            {tab === "members" && tenant !== "" && <Members key={tenant} tenant={tenant} />}
            {tab === "signing" && tenant !== "" && <SigningKeys key={tenant} tenant={tenant} />}
            {tab === "tenants" && admin && <Tenants />}
            {tab === "users" && admin && <Users />}
            {!about && !admin && <Card><NoPermission detail="Tenants and users are for admins of the network." /></Card>}
          </div>
        </Tabs>
      </div>
    </>
  );
}
