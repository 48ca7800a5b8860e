/** Routes of the page "Billing". */
import { createRoute, lazyRouteComponent } from "@tanstack/react-router";
import { shellRoute } from "@/app/root";

const month = createRoute({
  getParentRoute: () => shellRoute,
  path: "/billing",
  component: lazyRouteComponent(() => import("./index"), "BillingPage"),
});

const statements = createRoute({
  getParentRoute: () => shellRoute,
  path: "/billing/statements",
  component: lazyRouteComponent(() => import("./StatementsPage"), "StatementsPage"),
});

const statement = createRoute({
  getParentRoute: () => shellRoute,
  path: "/billing/statements/$month",
  component: lazyRouteComponent(() => import("./StatementPage"), "StatementPage"),
});

const budgets = createRoute({
  getParentRoute: () => shellRoute,
  path: "/billing/budgets",
  component: lazyRouteComponent(() => import("./BudgetsPage"), "BudgetsPage"),
});

const prices = createRoute({
  getParentRoute: () => shellRoute,
  path: "/billing/prices",
  component: lazyRouteComponent(() => import("./PricesPage"), "PricesPage"),
});

export const billingRoutes = [month, statements, statement, budgets, prices] as const;
