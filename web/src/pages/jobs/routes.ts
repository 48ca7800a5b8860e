/** Routes of the page "Jobs". */
import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { shellRoute } from "@/app/root";

const list = createRoute({
  getParentRoute: () => shellRoute,
  path: "/jobs",
  component: lazyRouteComponent(() => import("./index"), "JobsPage"),
});

const schedules = createRoute({
  getParentRoute: () => shellRoute,
  path: "/jobs/schedules",
  component: lazyRouteComponent(() => import("./SchedulesPage"), "SchedulesPage"),
});

const job = createRoute({
  getParentRoute: () => shellRoute,
  path: "/jobs/$job",
  component: lazyRouteComponent(() => import("./JobPage"), "JobPage"),
});

export const jobsRoutes = [list, schedules, job] as const;
