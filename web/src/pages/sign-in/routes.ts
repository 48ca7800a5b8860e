/** The route of the page "Sign in". */
import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { rootRoute } from "@/app/root";

const index = createRoute({
  getParentRoute: () => rootRoute,
  path: "/sign-in",
  component: lazyRouteComponent(() => import("./index"), "SignInPage"),
});

export const signInRoutes = [index] as const;
