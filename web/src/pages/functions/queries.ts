/** What the pages about functions ask for. */
import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { allPages, api, body, tagged, type Schemas } from "@/api/client";

export type App = Schemas["AppSummary"];
export type AppDetail = Schemas["AppDetail"];
export type Version = Schemas["VersionInfo"];

export const appsQuery = (tenant: string | undefined) =>
  queryOptions({
    queryKey: ["apps", tenant],
    queryFn: () => allPages((cursor) => api.GET("/v1/apps", { params: { query: { tenant, cursor } } })),
    refetchInterval: 15_000,
  });

/** An app with its tag, so that a change can say what it was made for. */
export const appQuery = (app: string) =>
  queryOptions({
    queryKey: ["app", app],
    queryFn: () => tagged(api.GET("/v1/apps/{app}", { params: { path: { app } } })),
    refetchInterval: (query) => (ready(query.state.data?.value) ? 15_000 : 1000),
  });

function ready(app: AppDetail | undefined): boolean {
  return app === undefined || app.nodes_ready >= app.nodes_total;
}

/** The split of an app's calls with its tag, so that a change can say what it was made for. */
export const trafficQuery = (app: string) =>
  queryOptions({
    queryKey: ["app", app, "traffic"],
    queryFn: () => tagged(api.GET("/v1/apps/{app}/traffic", { params: { path: { app } } })),
    refetchInterval: 15_000,
  });

export const explainQuery = (app: string, client: string) =>
  queryOptions({
    queryKey: ["app", app, "explain", client],
    queryFn: () => body(api.GET("/v1/apps/{app}/explain", { params: { path: { app }, query: client === "" ? {} : { client } } })),
    retry: false,
  });

/** The most calls that are shown at once. */
export const LIMIT = 500;

const SPANS: Readonly<Record<string, number>> = { "15m": 900_000, "24h": 86_400_000 };

/** The last calls of a time (an hour unless said), answered so. */
export const callsQuery = (app: string, span: string, status: string) =>
  queryOptions({
    queryKey: ["app", app, "calls", span, status],
    queryFn: () => {
      const since = Date.now() - (SPANS[span] ?? 3_600_000);
      return body(api.GET("/v1/apps/{app}/calls", { params: { path: { app }, query: { since, limit: LIMIT, ...(status === "" ? {} : { status }) } } }));
    },
    // Each asking makes every node search its log, so nothing is asked again by itself.
    placeholderData: keepPreviousData,
  });

export const catalogueQuery = queryOptions({
  queryKey: ["catalogue"],
  queryFn: () => allPages((cursor) => api.GET("/v1/catalogue", { params: { query: { cursor } } })),
  staleTime: 600_000,
});

export type Window = "15m" | "24h";

export const figuresQuery = (by: "total" | "app" | "cluster" | "region", window: Window, filter: { app?: string; tenant?: string | undefined } = {}) =>
  queryOptions({
    queryKey: ["figures", by, window, filter.app, filter.tenant],
    queryFn: () => body(api.GET("/v1/metrics", { params: { query: { by, window, app: filter.app, tenant: filter.tenant } } })),
    refetchInterval: window === "15m" ? 10_000 : 60_000,
  });
