/** What the job pages ask for: the jobs of one app, or of all. */
import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { allPages, api, body, page, type Page, type Schemas } from "@/api/client";
import { ended, type Job, type JobState } from "./course";

const SOON = 2000;
const LATER = 15_000;
/** Jobs of one page of the API. */
const ROWS = 200;

export const appsQuery = (tenant: string | undefined) => queryOptions({
  queryKey: ["apps", tenant],
  queryFn: () => allPages((cursor) => api.GET("/v1/apps", { params: { query: { tenant, cursor } } })),
});

export function jobsQuery(tenant: string | undefined, app: string, state: JobState | undefined) {
  return infiniteQueryOptions({
    queryKey: ["jobs", tenant, app, state],
    queryFn: ({ pageParam: cursor }): Promise<Page<Job>> => (app === ""
      ? page(api.GET("/v1/jobs", { params: { query: { tenant, state, limit: ROWS, cursor } } }))
      : page(api.GET("/v1/apps/{app}/jobs", { params: { path: { app }, query: { state, limit: ROWS, cursor } } }))),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (last) => last.next ?? undefined,
    // A page that could not be had is asked for again by a person; what follows a successful look at the others would do it for ever.
    refetchInterval: (query) => (query.state.error !== null && query.state.fetchMeta?.fetchMore !== undefined ? false : query.state.data?.pages.some(({ rows }) => rows.some((job) => !ended(job.state))) === true ? SOON : LATER),
  });
}

export const jobQuery = (job: string) => queryOptions({
  queryKey: ["jobs", "one", job],
  queryFn: () => body(api.GET("/v1/jobs/{job}", { params: { path: { job } } })),
  refetchInterval: (query) => (query.state.data !== undefined && ended(query.state.data.state) ? false : SOON / 2),
});

export const resultQuery = (job: string) => queryOptions({
  queryKey: ["jobs", "result", job],
  queryFn: async () => {
    const { data, response } = await api.GET("/v1/jobs/{job}/result", { params: { path: { job } }, parseAs: "arrayBuffer" });
    return { bytes: data ?? new ArrayBuffer(0), type: response.headers.get("content-type") ?? "application/octet-stream" };
  },
  staleTime: Infinity,
});

/** How many of the app's last lines those of a job are looked for in. */
const LINES = 10_000;

interface JobLog {
  lines: Schemas["LogLine"][];
  /** When it was asked for. */
  asked: number;
}

/** How long the last lines of a job may take to its nodes' logs. */
const WRITTEN = 1000;

/** Whether lines may be missing yet: those that it wrote at its end come only after the page has seen it ended, at `seen`. */
export function logOpen(running: boolean, seen: number, log: { data?: Pick<JobLog, "asked"> | undefined; error: Error | null }): boolean {
  return running || (log.error === null && (log.data === undefined || log.data.asked < seen + WRITTEN));
}

export const logsQuery = (job: string, running: boolean, seen: number) => queryOptions({
  queryKey: ["jobs", "logs", job],
  queryFn: async (): Promise<JobLog> => {
    const asked = Date.now();
    const { data } = await api.GET("/v1/jobs/{job}/logs", { params: { path: { job }, query: { tail: LINES } }, parseAs: "text" });
    return { lines: (data ?? "").split("\n").filter((line) => line.trim() !== "").map((line) => JSON.parse(line) as Schemas["LogLine"]), asked };
  },
  select: ({ lines }) => lines,
  refetchInterval: (query) => (logOpen(running, seen, query.state) ? SOON : false),
});

export const schedulesQuery = (tenant: string | undefined, app: string) => queryOptions({
  queryKey: ["jobs", "schedules", tenant, app],
  queryFn: () => allPages((cursor) => (app === ""
    ? api.GET("/v1/schedules", { params: { query: { tenant, cursor } } })
    : api.GET("/v1/apps/{app}/schedules", { params: { path: { app }, query: { cursor } } }))),
  refetchInterval: LATER,
});
