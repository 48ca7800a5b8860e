/** Routes of the page "Network". */
import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { shellRoute } from "@/app/root";

const clusters = createRoute({
  getParentRoute: () => shellRoute,
  path: "/network",
  component: lazyRouteComponent(() => import("./index"), "NetworkPage"),
});

const cluster = createRoute({
  getParentRoute: () => shellRoute,
  path: "/network/clusters/$cluster",
  component: lazyRouteComponent(() => import("./ClusterPage"), "ClusterPage"),
});

const nodes = createRoute({
  getParentRoute: () => shellRoute,
  path: "/network/nodes",
  component: lazyRouteComponent(() => import("./NodesPage"), "NodesPage"),
});

const node = createRoute({
  getParentRoute: () => shellRoute,
  path: "/network/nodes/$node",
  component: lazyRouteComponent(() => import("./NodePage"), "NodePage"),
});

const devices = createRoute({
  getParentRoute: () => shellRoute,
  path: "/network/devices",
  component: lazyRouteComponent(() => import("./DevicesPage"), "DevicesPage"),
});

const join = createRoute({
  getParentRoute: () => shellRoute,
  path: "/network/join",
  component: lazyRouteComponent(() => import("./JoinPage"), "JoinPage"),
});

export const networkRoutes = [clusters, cluster, nodes, node, devices, join] as const;
