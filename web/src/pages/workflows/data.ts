/** What the workflow pages ask the controller for. */
import { queryOptions, useQuery, type UseQueryResult } from "@tanstack/react-query";
import { useMemo } from "react";
import { allPages, api, body, tagged, type Schemas } from "@/api/client";
import type { Known } from "./model/judge";

export type AppSummary = Schemas["AppSummary"];

export function useApps(tenant: string | undefined): UseQueryResult<AppSummary[]> {
  return useQuery({ queryKey: ["apps", tenant], queryFn: () => allPages((cursor) => api.GET("/v1/apps", { params: { query: { tenant, cursor } } })) });
}

/** A workflow with its tag, so that a deploy can say what it was drawn for. */
export const workflowQuery = (app: string) => queryOptions({
  queryKey: ["workflows", app],
  queryFn: () => tagged(api.GET("/v1/apps/{app}/workflow", { params: { path: { app } } })),
});

/** What the stages of an app run; empty for a plain function. */
export function functionsOf(app: AppSummary): readonly string[] {
  return app.functions ?? [];
}

/** Whether an app is a workflow and no plain function. */
export function isWorkflow(app: AppSummary): boolean {
  return functionsOf(app).length > 0;
}

/** The DAG of a workflow, which is the same for ever at one revision. */
export const shapeQuery = (app: AppSummary) => queryOptions({
  queryKey: ["workflow-shape", app.app, app.revision],
  queryFn: () => body(api.GET("/v1/apps/{app}/workflow", { params: { path: { app: app.app } } })),
  staleTime: Infinity,
});

/** The functions that stages can run, as far as they are known. */
export function useFunctions(apps: readonly AppSummary[] | undefined): ReadonlyMap<string, Known> | undefined {
  return useMemo(() => (apps === undefined ? undefined : new Map(apps.map((app) => [app.app, { current: app.version, workflow: isWorkflow(app) }]))), [apps]);
}
