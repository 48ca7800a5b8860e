/** Routes of the page "Audit". */
import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { shellRoute } from "@/app/root";

const index = createRoute({
  getParentRoute: () => shellRoute,
  path: "/audit",
  component: lazyRouteComponent(() => import("./index"), "AuditPage"),
});

export const auditRoutes = [index] as const;
