/** The map of all pages. Each page's code is a part of its own, loaded when it is opened or a link to it is about to be followed. */
import { createRouter } from "@tanstack/react-router";
import { QueryCache, QueryClient } from "@tanstack/react-query";
import { ApiError } from "@/api/problem";
import { sessionQuery } from "@/api/session";
import { Failed } from "@/components/States";
import { accessRoutes } from "@/pages/access/routes";
import { accountRoutes } from "@/pages/account/routes";
import { auditRoutes } from "@/pages/audit/routes";
import { billingRoutes } from "@/pages/billing/routes";
import { dnsRoutes } from "@/pages/dns/routes";
import { functionsRoutes } from "@/pages/functions/routes";
import { invitationRoutes } from "@/pages/invitation/routes";
import { jobsRoutes } from "@/pages/jobs/routes";
import { networkRoutes } from "@/pages/network/routes";
import { overviewRoutes } from "@/pages/overview/routes";
import { signInRoutes } from "@/pages/sign-in/routes";
import { workflowsRoutes } from "@/pages/workflows/routes";
import { notFoundRoute, rootRoute, shellRoute } from "./root";
import { parseSearch, stringifySearch } from "./search";

export const queries = new QueryClient({
  queryCache: new QueryCache({ onError: onQueryError }),
  defaultOptions: {
    queries: {
      staleTime: 5000,
      retry: (failures, error) => error instanceof ApiError && error.retriable && failures < 2,
    },
  },
});

/** A session that ended leads to the sign-in page, and from there back to where one was. */
function onQueryError(error: Error): void {
  if (!(error instanceof ApiError) || error.status !== 401) return;
  if (router.state.location.pathname === "/sign-in") return;
  const to = router.state.location.href;
  queries.removeQueries({ queryKey: sessionQuery.queryKey });
  void router.navigate({ to: "/sign-in", search: { to } });
}

const tree = rootRoute.addChildren([
  ...signInRoutes,
  ...invitationRoutes,
  shellRoute.addChildren([
    ...overviewRoutes,
    ...functionsRoutes,
    ...workflowsRoutes,
    ...jobsRoutes,
    ...networkRoutes,
    ...dnsRoutes,
    ...billingRoutes,
    ...accountRoutes,
    ...accessRoutes,
    ...auditRoutes,
    notFoundRoute,
  ]),
]);

export const router = createRouter({
  routeTree: tree,
  context: { queries },
  parseSearch,
  stringifySearch,
  defaultPreload: "intent",
  scrollRestoration: true,
  defaultErrorComponent: ({ error, reset }) => <Failed error={error} onRetry={reset} />,
});

/** Fetches the code of the page that is opened first while it is still asked who is there. Should that fail, the page says so itself. */
export function preloadFirstPage(): void {
  const [matched] = router.getMatchedRoutes(router.latestLocation.pathname);
  for (const route of matched) router.loadRouteChunk(route)?.catch(() => undefined);
}
