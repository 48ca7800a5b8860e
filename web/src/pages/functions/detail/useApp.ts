import { useQuery, type UseQueryResult } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import type { Tagged } from "@/api/client";
import { may, useSession, type Right } from "@/api/session";
import { appQuery, type AppDetail } from "../queries";

/** The name in the address. */
export function useAppName(): string {
  const params: Record<string, string | undefined> = useParams({ strict: false });
  return params["app"] ?? "";
}

/** The app that the page is about. */
export function useApp(): UseQueryResult<Tagged<AppDetail>> {
  return useQuery(appQuery(useAppName()));
}

/** Whether the person has a right in the tenant of the app. */
export function useMayHere(right: Right): boolean {
  const who = useSession();
  const tenant = useApp().data?.value.tenant;
  return tenant !== undefined && may(who, right, tenant);
}
