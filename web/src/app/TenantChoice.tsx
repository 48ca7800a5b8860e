/** Which tenant the pages are about. The choice is part of the address. Admins can look at every tenant. */
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { allPages, api } from "@/api/client";
import { useSession } from "@/api/session";
import { useTenant, type Search } from "./search";

export function TenantChoice() {
  const who = useSession();
  const navigate = useNavigate();
  const chosen = useTenant();
  const admin = who.network_role === "admin";
  const all = useQuery({
    queryKey: ["tenants"],
    queryFn: () => allPages((cursor) => api.GET("/v1/tenants", { params: { query: { cursor } } })),
    enabled: admin,
    staleTime: 60_000,
  });
  const names = admin && all.data !== undefined ? all.data.map((tenant) => tenant.name) : who.tenants.map((member) => member.tenant);
  const listed = chosen !== undefined && !names.includes(chosen) ? [...names, chosen] : names;
  const choose = (tenant: string) => {
    void navigate({ to: ".", search: (before: Search) => ({ ...before, tenant: tenant === "" ? undefined : tenant }) });
  };
  if (listed.length === 0) return null;
  return (
    <select className="input compact" aria-label="Tenant" value={chosen ?? ""} onChange={(event) => choose(event.target.value)}>
      <option value="">{listed.length === 1 ? listed[0] : "All tenants"}</option>
      {listed.length > 1 && listed.map((name) => <option key={name} value={name}>{name}</option>)}
    </select>
  );
}
