// Everything in the console that opens: dialogs, the drawer, the menu, what unfolds. `openers.test.js` holds this list against the sources, so that
// none is forgotten; `dialogs.js` opens each in a browser. `file` is the source below `src` and `title` what the thing is called there.
import { withDevices } from "./pages.js";
import { SAMPLES } from "./lists.js";

const DAY = 86_400_000;
const json = (body, status = 200) => ({ status, contentType: "application/json", body: JSON.stringify(body) });

// What is answered instead of rows that the network of the tests does not have.
const shows = (path, make) => (page) => page.route((url) => path.test(url.pathname), async (route) => {
  if (route.request().method() !== "GET") return route.fallback();
  const answer = await route.fetch({ maxRetries: 3 });
  return route.fulfill({ response: answer, json: make(await answer.json()) });
});

// A change that the network never hears of is answered like this.
const answers = (method, path, body, status) => (page) => page.route((url) => path.test(url.pathname) && !url.searchParams.has("dry_run"), (route) => (route.request().method() === method ? route.fulfill(json(body, status)) : route.fallback()));

// Opens by a button, with a key; what is opened gives the focus back to it.
const by = (name, scope = "main") => async (page) => {
  const button = page.locator(scope).getByRole("button", { name, exact: true }).first();
  await press(button);
  return button;
};

async function press(opener) {
  await opener.focus();
  await opener.press("Enter");
}

// Opens by a button, then goes on inside the dialog to the one that follows it.
const then = (name, next) => async (page) => {
  const opener = await by(name)(page);
  await next(page.getByRole("dialog"));
  return opener;
};

const inside = async (dialog, name) => press(dialog.getByRole("button", { name, exact: true }));

const secrets = shows(/^\/v1\/apps\/hello\/secrets$/, () => [{ ...SAMPLES.secret, app: "hello" }]);
const schedules = shows(/^\/v1\/schedules$/, () => [SAMPLES.schedule]);
const invited = shows(/^\/v1\/users$/, (rows) => rows.map((user) => (user.name === "vera" ? { ...user, invited_until: Date.now() + DAY } : user)));
const tokens = shows(/^\/v1\/tokens$/, () => [{ ...SAMPLES.token, created_at: Date.now(), expires_at: Date.now() + DAY }]);

// A time is typed into the last stage, so that what is drawn differs from what is deployed.
async function draws(page) {
  const field = page.getByLabel("Timeout of one attempt");
  await field.fill("7s");
  await field.press("Enter");
  await page.getByText("Not deployed", { exact: true }).waitFor();
}

export const OPENERS = [
  { file: "app/AccountMenu.tsx", title: "Account of admin", kind: "menu", at: "/", open: by("Account of admin", "header") },
  { file: "app/Shell.tsx", title: "Navigation", narrow: true, at: "/", open: by("Open the navigation", "header") },
  { file: "pages/sign-in/index.tsx", title: "The first time?", kind: "details", stranger: true, at: "/sign-in", open: async (page) => {
    const summary = page.getByText("The first time?");
    await press(summary);
    return summary;
  } },
  { file: "pages/access/Invite.tsx", title: "Invite a user", at: "/access?tab=users", open: by("Invite a user") },
  { file: "pages/access/Invite.tsx", title: "Invite vera again", at: "/access?tab=users", with: invited, open: by("Invite vera again") },
  { file: "pages/access/Invite.tsx", title: "Invitation for ann", at: "/access?tab=users",
    with: answers("POST", /^\/v1\/invitations$/, { token: `fdn-invite.616e6e.${"0123456789abcdef".repeat(4)}`, info: { user: "ann", created_at: Date.now(), created_by: "admin", expires_at: Date.now() + DAY } }),
    open: then("Invite a user", async (dialog) => {
      await dialog.getByLabel("Name", { exact: true }).fill("ann");
      await inside(dialog, "Make the link");
    }) },
  { file: "pages/access/Members.tsx", title: "Add a member to default", at: "/access", open: by("Add a member") },
  { file: "pages/access/SigningKeys.tsx", title: "Add a signing key", at: "/access?tab=signing", open: by("Add a key") },
  { file: "pages/access/SigningKeys.tsx", title: "Remove release?", at: "/access?tab=signing", with: shows(/\/signing-keys$/, () => [SAMPLES.key]), open: by("Remove release") },
  { file: "pages/access/Tenants.tsx", title: "Make a tenant", at: "/access?tab=tenants", open: by("Make a tenant") },
  { file: "pages/access/Tenants.tsx", title: "Delete default?", at: "/access?tab=tenants", open: by("Delete default") },
  { file: "pages/access/Users.tsx", title: "Make a user", at: "/access?tab=users", open: by("Make a user") },
  { file: "pages/access/Users.tsx", title: "Set a password for vera", at: "/access?tab=users", open: by("Set a password for vera") },
  { file: "pages/access/Users.tsx", title: "Delete vera?", at: "/access?tab=users", open: by("Delete vera") },
  { file: "pages/account/TokensCard.tsx", title: "Make an API token", at: "/account", open: by("Make a token") },
  { file: "pages/account/TokensCard.tsx", title: "Token ci", at: "/account", with: answers("POST", /^\/v1\/tokens$/, { info: SAMPLES.token, token: `fdn_${"0123456789".repeat(5)}` }),
    open: then("Make a token", async (dialog) => {
      await dialog.getByLabel("What it is for").fill("ci");
      await inside(dialog, "Make it");
    }) },
  { file: "pages/account/TokensCard.tsx", title: "Revoke ci?", at: "/account", with: tokens, open: by("Revoke ci") },
  { file: "pages/audit/index.tsx", title: "deploy app/hello", at: "/audit",
    with: shows(/^\/v1\/audit$/, (rows) => [{ ...rows[0], action: "deploy", subject: "app/hello", before: { version: 1 }, after: { version: 2 } }]),
    open: async (page) => {
      const row = page.getByRole("table", { name: "Audit log" }).getByRole("row", { name: /deploy/ });
      await press(row);
      return row;
    } },
  { file: "pages/billing/BudgetsPage.tsx", title: "New budget", at: "/billing/budgets", open: by("New budget") },
  { file: "pages/billing/BudgetsPage.tsx", title: "Budget all", at: "/billing/budgets", open: by("Change all") },
  { file: "pages/billing/BudgetsPage.tsx", title: "Budget all is set", at: "/billing/budgets",
    with: answers("PUT", /^\/v1\/billing\/budgets\/all$/, { name: "all", limit: { micros: 12_500_000, currency: "EUR" }, thresholds: [80], webhook: "https://example.org/bills", webhook_secret: "whsec_0123456789" }),
    open: then("Change all", (dialog) => inside(dialog, "Set the budget")) },
  { file: "pages/billing/BudgetsPage.tsx", title: "Remove budget all?", at: "/billing/budgets", open: by("Remove all") },
  { file: "pages/billing/PricesPage.tsx", title: "New price list", at: "/billing/prices", open: by("New price list") },
  { file: "pages/billing/PricesPage.tsx", title: "Remove price list first?", at: "/billing/prices", open: by("Remove price list first") },
  { file: "pages/dns/RecordsPage.tsx", title: "Set text records", at: "/dns/records", open: by("Set text records") },
  { file: "pages/dns/RecordsPage.tsx", title: "Text records of _acme-challenge.hello.fn.test", at: "/dns/records", open: by("Change _acme-challenge.hello.fn.test") },
  { file: "pages/dns/RecordsPage.tsx", title: "Take the text records of _acme-challenge.hello.fn.test away?", at: "/dns/records", open: by("Remove _acme-challenge.hello.fn.test") },
  { file: "pages/functions/CataloguePage.tsx", title: "Deploy image", at: "/functions/catalogue", open: by("Deploy image") },
  { file: "pages/functions/detail/Detail.tsx", title: "Delete hello?", at: "/functions/hello", open: by("Delete hello") },
  { file: "pages/functions/detail/Domains.tsx", title: "Remove api.example.org?", at: "/functions/hello/domains", with: shows(/^\/v1\/apps\/hello\/domains$/, () => [SAMPLES.domain]), open: by("Remove api.example.org") },
  { file: "pages/functions/detail/SecretsCard.tsx", title: "Set a secret", at: "/functions/hello/settings", open: by("Set a secret") },
  { file: "pages/functions/detail/SecretsCard.tsx", title: "Replace KEY", at: "/functions/hello/settings", with: secrets, open: by("Replace the value of KEY") },
  { file: "pages/functions/detail/SecretsCard.tsx", title: "Remove KEY?", at: "/functions/hello/settings", with: secrets, open: by("Remove KEY") },
  { file: "pages/functions/detail/Versions.tsx", title: "v1", kind: "unfolds", at: "/functions/hello/versions", open: by("v1") },
  { file: "pages/jobs/JobPage.tsx", title: "Cancel the job?", at: "/jobs/JOB", with: shows(/^\/v1\/jobs\/job_[^/]+$/, (job) => ({ ...job, state: "running", ended_at: null })), open: by("Cancel the job") },
  { file: "pages/jobs/SchedulesPage.tsx", title: "New schedule", at: "/jobs/schedules", open: by("New schedule") },
  { file: "pages/jobs/SchedulesPage.tsx", title: "Schedule nightly", at: "/jobs/schedules", with: schedules, open: by("Change nightly") },
  { file: "pages/jobs/SchedulesPage.tsx", title: "Remove schedule nightly?", at: "/jobs/schedules", with: schedules, open: by("Remove nightly") },
  { file: "pages/jobs/SubmitDialog.tsx", title: "Submit a job", at: "/jobs", open: by("Submit a job") },
  { file: "pages/jobs/SubmitDialog.tsx", title: "The job was accepted", at: "/jobs", with: answers("POST", /^\/v1\/apps\/[^/]+\/jobs$/, { id: "job_1", state: "submitted", webhook_secret: "whsec_0123456789" }, 202),
    open: then("Submit a job", (dialog) => inside(dialog, "Submit")) },
  { file: "pages/jobs/index.tsx", title: "Send all dead letters of hello again?", at: "/jobs?app=hello", with: shows(/^\/v1\/apps\/hello\/jobs$/, (jobs) => [{ ...jobs[0], state: "dead", ended_at: Date.now() }]), open: by("Send dead letters again") },
  { file: "pages/network/Devices.tsx", title: "Put the device back into service?", at: "/network/devices", with: shows(withDevices.path, withDevices.make), open: by("Put back into service") },
  { file: "pages/network/JoinPage.tsx", title: "Take the token back?", at: "/network/join", with: shows(/^\/v1\/join-tokens$/, (rows) => [{ ...rows[0], id: "jtk_1", revoked_at: null, expires_at: Date.now() + DAY }]), open: by("Take back jtk_1") },
  { file: "pages/network/NewCluster.tsx", title: "New cluster", at: "/network", open: by("New cluster") },
  { file: "pages/network/NodePage.tsx", title: "Drain eu-west-1?", at: "/network/nodes/eu-west-1", open: by("Drain") },
  { file: "pages/network/NodePage.tsx", title: "Remove eu-west-1?", at: "/network/nodes/eu-west-1", open: by("Remove") },
  { file: "pages/workflows/editor/DesignView.tsx", title: "Leave the drawing?", at: "/workflows/chain?stage=last", open: async (page) => {
    await draws(page);
    const link = page.locator(".crumbs").getByRole("link", { name: "Workflows" });
    await press(link);
    return link;
  } },
  { file: "pages/workflows/editor/DeployButton.tsx", title: "Not deployed", at: "/workflows/chain?stage=last", refused: /\/workflow$/,
    with: answers("PUT", /^\/v1\/apps\/chain\/workflow$/, { type: "/docs/errors#fdn-2004", title: "refused for a test", status: 409, code: "FDN-2004", detail: "it is refused for a test", request_id: "test-1" }, 409),
    open: async (page) => {
      await draws(page);
      return by("Deploy")(page);
    } },
];
