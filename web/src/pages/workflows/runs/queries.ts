/** Runs of a workflow, as they are and as they go on. */
import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { api, body, page, type Page } from "@/api/client";
import { notOffered } from "@/api/offered";
import type { Run } from "../model/run";

const SOON = 1000;
const LATER = 10_000;

export const runQuery = (app: string, run: string) => queryOptions({
  queryKey: ["runs", app, run],
  queryFn: () => body(api.GET("/v1/apps/{app}/runs/{run}", { params: { path: { app, run } } })),
  refetchInterval: (query) => (query.state.data?.status === "running" ? SOON : false),
});

/** The newest run that is not among those that were there before. */
export async function newestRun(app: string, before: ReadonlySet<string>): Promise<Run | undefined> {
  const { rows } = await page(api.GET("/v1/apps/{app}/runs", { params: { path: { app }, query: { limit: 5 } } }));
  return rows.find((run) => !before.has(run.run));
}

export async function runOfRequest(app: string, request: string): Promise<Run | undefined> {
  const { rows } = await page(api.GET("/v1/apps/{app}/runs", { params: { path: { app }, query: { request, limit: 1 } } }));
  return rows[0];
}

export async function runsNow(app: string): Promise<ReadonlySet<string>> {
  const { rows } = await page(api.GET("/v1/apps/{app}/runs", { params: { path: { app }, query: { limit: 50 } } }));
  return new Set(rows.map((run) => run.run));
}

export const runsQuery = (app: string) => infiniteQueryOptions({
  queryKey: ["runs", app],
  queryFn: ({ pageParam }): Promise<Page<Run>> => page(api.GET("/v1/apps/{app}/runs", { params: { path: { app }, query: { limit: 100, cursor: pageParam } } })),
  initialPageParam: undefined as string | undefined,
  getNextPageParam: (last) => last.next ?? undefined,
  retry: (failures, error) => !notOffered(error) && failures < 2,
  refetchInterval: (query) => {
    if (query.state.error !== null) return false;
    const running = query.state.data?.pages[0]?.rows.some((run) => run.status === "running") === true;
    return running ? SOON : LATER;
  },
});
