/** Routes of the page "Workflows". */
import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { shellRoute } from "@/app/root";

const list = createRoute({
  getParentRoute: () => shellRoute,
  path: "/workflows",
  component: lazyRouteComponent(() => import("./index"), "WorkflowsPage"),
});

const fresh = createRoute({
  getParentRoute: () => shellRoute,
  path: "/workflows/new",
  component: lazyRouteComponent(() => import("./editor/EditorPage"), "NewWorkflowPage"),
});

const draw = createRoute({
  getParentRoute: () => shellRoute,
  path: "/workflows/$app",
  component: lazyRouteComponent(() => import("./editor/EditorPage"), "WorkflowPage"),
});

const run = createRoute({
  getParentRoute: () => shellRoute,
  path: "/workflows/$app/run",
  component: lazyRouteComponent(() => import("./runs/RunPage"), "RunPage"),
});

const runs = createRoute({
  getParentRoute: () => shellRoute,
  path: "/workflows/$app/runs",
  component: lazyRouteComponent(() => import("./runs/RunsPage"), "RunsPage"),
});

const one = createRoute({
  getParentRoute: () => shellRoute,
  path: "/workflows/$app/runs/$run",
  component: lazyRouteComponent(() => import("./runs/OneRunPage"), "OneRunPage"),
});

export const workflowsRoutes = [list, fresh, draw, run, runs, one] as const;
