/** The route of the page that an invitation's link opens. Whoever comes there is not signed in yet. */
import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { rootRoute } from "@/app/root";

const index = createRoute({
  getParentRoute: () => rootRoute,
  path: "/invitation",
  component: lazyRouteComponent(() => import("./index"), "InvitationPage"),
});

export const invitationRoutes = [index] as const;
