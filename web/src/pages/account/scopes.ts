/** The rights that a token can have, in words. `own-account` is none of them: tokens never manage accounts. */
import type { Right } from "@/api/session";

export const GRANTABLE: readonly (readonly [Right, string])[] = [
  ["look", "look at apps and logs"],
  ["deploy", "deploy and change apps"],
  ["run-jobs", "run jobs"],
  ["manage-secrets", "set secrets"],
  ["manage-records", "set records in the DNS"],
  ["look-network", "look at the network"],
  ["read-billing", "read bills"],
  ["manage-budgets", "set budgets"],
  ["read-audit", "read the audit log"],
  ["manage-members", "manage members"],
  ["manage-signing", "manage signing keys"],
  ["look-machines", "look at machines"],
  ["operate-machines", "operate machines"],
  ["administer", "administer the network"],
];
