/** Routes of the page "Functions": the list, the upload, the catalogue, and one function with its tabs. */
import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { shellRoute } from "@/app/root";

const list = createRoute({
  getParentRoute: () => shellRoute,
  path: "/functions",
  component: lazyRouteComponent(() => import("./index"), "FunctionsPage"),
});

const upload = createRoute({
  getParentRoute: () => shellRoute,
  path: "/functions/new",
  component: lazyRouteComponent(() => import("./upload/UploadPage"), "UploadPage"),
});

const catalogue = createRoute({
  getParentRoute: () => shellRoute,
  path: "/functions/catalogue",
  component: lazyRouteComponent(() => import("./CataloguePage"), "CataloguePage"),
});

const one = createRoute({
  getParentRoute: () => shellRoute,
  path: "/functions/$app",
  component: lazyRouteComponent(() => import("./detail/Detail"), "Detail"),
});

const summary = createRoute({ getParentRoute: () => one, path: "/", component: lazyRouteComponent(() => import("./detail/Summary"), "Summary") });
const versions = createRoute({ getParentRoute: () => one, path: "/versions", component: lazyRouteComponent(() => import("./detail/Versions"), "Versions") });
const tryIt = createRoute({ getParentRoute: () => one, path: "/try", component: lazyRouteComponent(() => import("./detail/TryIt"), "TryIt") });
const logs = createRoute({ getParentRoute: () => one, path: "/logs", component: lazyRouteComponent(() => import("./detail/Logs"), "Logs") });
const calls = createRoute({ getParentRoute: () => one, path: "/calls", component: lazyRouteComponent(() => import("./detail/Calls"), "Calls") });
const metrics = createRoute({ getParentRoute: () => one, path: "/metrics", component: lazyRouteComponent(() => import("./detail/Metrics"), "Metrics") });
const settings = createRoute({ getParentRoute: () => one, path: "/settings", component: lazyRouteComponent(() => import("./detail/Settings"), "Settings") });
const domains = createRoute({ getParentRoute: () => one, path: "/domains", component: lazyRouteComponent(() => import("./detail/Domains"), "Domains") });
const explain = createRoute({ getParentRoute: () => one, path: "/explain", component: lazyRouteComponent(() => import("./detail/Explain"), "Explain") });

export const functionsRoutes = [
  list,
  upload,
  catalogue,
  one.addChildren([summary, versions, tryIt, calls, logs, metrics, settings, domains, explain]),
] as const;
