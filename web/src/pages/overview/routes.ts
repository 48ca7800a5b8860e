/** Routes of the page "Overview". */
import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { shellRoute } from "@/app/root";

const index = createRoute({
  getParentRoute: () => shellRoute,
  path: "/",
  component: lazyRouteComponent(() => import("./index"), "OverviewPage"),
});

export const overviewRoutes = [index] as const;
