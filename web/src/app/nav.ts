/** The pages in the side navigation, with the right that each needs. */
import type { Right } from "@/api/session";
import type { IconName } from "@/components/Icon";

export interface NavItem {
  to: string;
  label: string;
  icon: IconName;
  right?: Right;
}

export interface NavGroup {
  title: string | null;
  items: readonly NavItem[];
}

export const NAV: readonly NavGroup[] = [
  {
    title: null,
    items: [
      { to: "/", label: "Overview", icon: "overview" },
      { to: "/functions", label: "Functions", icon: "functions", right: "look" },
      { to: "/workflows", label: "Workflows", icon: "workflows", right: "look" },
      { to: "/jobs", label: "Jobs", icon: "jobs", right: "look" },
    ],
  },
  {
    title: "Network",
    items: [
      { to: "/network", label: "Clusters and nodes", icon: "network" },
      { to: "/dns", label: "DNS", icon: "dns" },
    ],
  },
  {
    title: "Organisation",
    items: [
      { to: "/billing", label: "Billing", icon: "billing", right: "read-billing" },
      { to: "/access", label: "Access", icon: "access", right: "look" },
      { to: "/audit", label: "Audit log", icon: "audit", right: "read-audit" },
    ],
  },
];
