/** Routes of the page "DNS". */
import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { shellRoute } from "@/app/root";

const lookup = createRoute({
  getParentRoute: () => shellRoute,
  path: "/dns",
  component: lazyRouteComponent(() => import("./index"), "DnsPage"),
});

const bindings = createRoute({
  getParentRoute: () => shellRoute,
  path: "/dns/bindings",
  component: lazyRouteComponent(() => import("./BindingsPage"), "BindingsPage"),
});

const records = createRoute({
  getParentRoute: () => shellRoute,
  path: "/dns/records",
  component: lazyRouteComponent(() => import("./RecordsPage"), "RecordsPage"),
});

const latencies = createRoute({
  getParentRoute: () => shellRoute,
  path: "/dns/latencies",
  component: lazyRouteComponent(() => import("./LatenciesPage"), "LatenciesPage"),
});

export const dnsRoutes = [lookup, bindings, records, latencies] as const;
