/** Who is signed in, and what that person may do. */
import { queryOptions, useSuspenseQuery } from "@tanstack/react-query";
import { api, body, setSession, type Schemas } from "./client";
import { ApiError } from "./problem";

export type WhoAmI = Schemas["WhoAmI"];
export type LoginInfo = Schemas["LoginInfo"];
export type Right = Schemas["Right"];
export type TenantRole = Schemas["TenantRole"];

/** How one can sign in, and who has: answered to everybody, so that a page which does not know yet who opened it asks for nothing that is refused. */
export const loginQuery = queryOptions({
  queryKey: ["login"],
  queryFn: () => body(api.GET("/v1/login")),
  staleTime: 60_000,
});

/** Who that is; for nobody the error that a request without a session gets. */
export function signedIn(info: LoginInfo): WhoAmI {
  if (info.session === null || info.session === undefined) throw new ApiError(401, { title: "Not signed in", detail: "Nobody is signed in here." });
  return info.session;
}

export const sessionQuery = queryOptions({
  queryKey: ["session"],
  queryFn: async ({ client }): Promise<WhoAmI> => {
    const info = await body(api.GET("/v1/login"));
    // The sign-in page, if it comes to that, knows then what it can offer.
    client.setQueryData(loginQuery.queryKey, info);
    const who = signedIn(info);
    setSession(who);
    return who;
  },
  staleTime: 5 * 60_000,
  retry: false,
});

/** The session. Pages inside the shell always have one. */
export function useSession(): WhoAmI {
  return useSuspenseQuery(sessionQuery).data;
}

const DEVELOPER: readonly Right[] = ["look", "deploy", "run-jobs", "manage-secrets", "manage-records"];
const OWNER: readonly Right[] = [...DEVELOPER, "manage-members", "manage-signing", "read-billing", "manage-budgets", "read-audit"];

/** The rights that a role gives in a tenant (docs/accounts.md). */
export const ROLE_RIGHTS: Readonly<Record<TenantRole, readonly Right[]>> = {
  viewer: ["look"],
  developer: DEVELOPER,
  owner: OWNER,
};

/** Whether somebody has a right: in the tenant of that id or name, or, without one, in any. */
export function may(who: WhoAmI, right: Right, tenant?: string): boolean {
  if (right === "own-account" || right === "look-network") return true;
  if (who.network_role === "admin") return true;
  if (right === "manage-records" && who.network_role === "operator") return true;
  if (right === "look-machines" || right === "operate-machines") return who.network_role === "operator";
  return who.tenants.some(
    (member) =>
      (tenant === undefined || member.tenant === tenant || member.id === tenant) &&
      ROLE_RIGHTS[member.role].includes(right),
  );
}

/** The same as a hook. */
export function useMay(right: Right, tenant?: string): boolean {
  return may(useSession(), right, tenant);
}
