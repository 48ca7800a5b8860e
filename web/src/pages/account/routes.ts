/** Routes of the page "Account". */
import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { shellRoute } from "@/app/root";

const index = createRoute({
  getParentRoute: () => shellRoute,
  path: "/account",
  component: lazyRouteComponent(() => import("./index"), "AccountPage"),
});

export const accountRoutes = [index] as const;
