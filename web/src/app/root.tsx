/** The routes that all others hang below: the root, and the shell for those who are signed in. */
import { createRootRouteWithContext, createRoute, Outlet, redirect, retainSearchParams } from "@tanstack/react-router";
import type { QueryClient } from "@tanstack/react-query";
import { ApiError } from "@/api/problem";
import { sessionQuery } from "@/api/session";
import { Failed } from "@/components/States";
import { NotFound } from "./NotFound";
import type { Search } from "./search";
import { Shell } from "./Shell";

export interface Context {
  queries: QueryClient;
}

export const rootRoute = createRootRouteWithContext<Context>()({
  component: Outlet,
  validateSearch: (search: Record<string, unknown>): Search => search as Search,
  search: { middlewares: [retainSearchParams(["tenant"])] },
});

/** Everything inside it needs a session. */
export const shellRoute = createRoute({
  getParentRoute: () => rootRoute,
  id: "shell",
  component: Shell,
  errorComponent: ({ error, reset }) => <main className="main"><Failed error={error} onRetry={reset} /></main>,
  beforeLoad: async ({ context, location }) => {
    try {
      await context.queries.query({ ...sessionQuery, staleTime: "static" });
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) {
        throw redirect({ to: "/sign-in", search: location.href === "/" ? {} : { to: location.href } });
      }
      throw error;
    }
  },
});

/** Any other address. It has the shell too, so that the way on is one click. */
export const notFoundRoute = createRoute({ getParentRoute: () => shellRoute, path: "$", component: NotFound });
