/** Routes of the page "Access". */
import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { shellRoute } from "@/app/root";

const index = createRoute({
  getParentRoute: () => shellRoute,
  path: "/access",
  component: lazyRouteComponent(() => import("./index"), "AccessPage"),
});

export const accessRoutes = [index] as const;
