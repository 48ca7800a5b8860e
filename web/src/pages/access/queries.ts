/** What the pages about people and tenants ask for. */
import { queryOptions } from "@tanstack/react-query";
import { allPages, api, type Schemas } from "@/api/client";

export type Member = Schemas["MemberInfo"];
export type Tenant = Schemas["TenantInfo"];
export type User = Schemas["UserInfo"];

export const membersQuery = (tenant: string) =>
  queryOptions({
    queryKey: ["members", tenant],
    queryFn: () => allPages((cursor) => api.GET("/v1/tenants/{tenant}/members", { params: { path: { tenant }, query: { cursor } } })),
    enabled: tenant !== "",
  });

export const tenantsQuery = queryOptions({
  queryKey: ["tenants"],
  queryFn: () => allPages((cursor) => api.GET("/v1/tenants", { params: { query: { cursor } } })),
});

export const usersQuery = queryOptions({
  queryKey: ["users"],
  queryFn: () => allPages((cursor) => api.GET("/v1/users", { params: { query: { cursor } } })),
});
