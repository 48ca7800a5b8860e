/** What the billing pages ask for. */
import { queryOptions } from "@tanstack/react-query";
import { allPages, api, body, nextCursor, type Schemas } from "@/api/client";

const PAGE = 1000;

export const usageQuery = (month: string | undefined, by: Schemas["UsageBy"], tenant: string | undefined) => queryOptions({
  queryKey: ["billing", "usage", month, by, tenant],
  queryFn: async (): Promise<Schemas["UsageView"]> => {
    const rows: Schemas["UsageRow"][] = [];
    for (let cursor: string | undefined; ; ) {
      const { data, response } = await api.GET("/v1/billing/usage", { params: { query: { month, by, tenant, limit: PAGE, cursor } } });
      const view = data as Schemas["UsageView"];
      rows.push(...view.rows);
      const next = nextCursor(response.headers.get("link"));
      if (next === null) return { ...view, rows };
      cursor = next;
    }
  },
  refetchInterval: 60_000,
});

/** A statement with the lines of its first page only, for what stands above them. */
export const headQuery = (month: string, tenant: string | undefined) => queryOptions({
  queryKey: ["billing", "statement-head", month, tenant],
  queryFn: () => body(api.GET("/v1/billing/statements/{month}", { params: { path: { month }, query: { tenant, limit: 1 } } })),
  refetchInterval: 60_000,
});

/** A statement whole. */
export async function wholeStatement(month: string, tenant: string | undefined): Promise<Schemas["Statement"]> {
  const lines: Schemas["StatementLine"][] = [];
  for (let cursor: string | undefined; ; ) {
    const { data, response } = await api.GET("/v1/billing/statements/{month}", { params: { path: { month }, query: { tenant, limit: PAGE, cursor } } });
    const part = data as Schemas["Statement"];
    lines.push(...part.lines);
    const next = nextCursor(response.headers.get("link"));
    if (next === null) return { ...part, lines };
    cursor = next;
  }
}

export const statementQuery = (month: string, tenant: string | undefined) => queryOptions({
  queryKey: ["billing", "statement", month, tenant],
  queryFn: () => wholeStatement(month, tenant),
});

export const statementsQuery = (tenant: string | undefined) => queryOptions({
  queryKey: ["billing", "statements", tenant],
  queryFn: () => allPages((cursor) => api.GET("/v1/billing/statements", { params: { query: { cursor, tenant } } })),
});

export const budgetsQuery = (tenant: string | undefined) => queryOptions({
  queryKey: ["billing", "budgets", tenant],
  queryFn: () => body(api.GET("/v1/billing/budgets", { params: { query: { tenant } } })),
});

export const alertsQuery = (tenant: string | undefined) => queryOptions({
  queryKey: ["billing", "alerts", tenant],
  queryFn: () => allPages((cursor) => api.GET("/v1/billing/alerts", { params: { query: { cursor, tenant } } })),
});

export const pricesQuery = queryOptions({ queryKey: ["billing", "prices"], queryFn: () => body(api.GET("/v1/billing/prices")) });
