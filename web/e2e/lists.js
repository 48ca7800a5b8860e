// Long lists: with 10,000 rows only those in sight are in the page, and scrolling comes to the last one. The answers are real ones, their
// first row repeated under other names.
import assert from "node:assert/strict";
import { settled } from "./browser.js";

export const ROWS = 10_000;
// A screen of 900 pixels has room for about 20; the rest is what is kept ready above and below.
const MOST = 80;

const name = (index) => `row-${String(index).padStart(5, "0")}`;
const address = (index) => `10.${(index >> 8) & 255}.${index & 255}.0/24`;
const rename = (key, text = name) => (rows) => Array.from({ length: ROWS }, (_, index) => ({ ...rows[0], [key]: text(index) }));

// Rows of lists that are empty in the network of the tests.
const NOW = Date.UTC(2026, 0, 15);
const money = (micros) => ({ micros, currency: "EUR" });
export const SAMPLES = {
  schedule: { app: "hello", name: "nightly", schedule: { cron: "0 3 * * *" }, next_at: NOW, updated_at: NOW, updated_by: "admin" },
  txt: { name: "_acme-challenge.hello.fn.test", values: ["proof"], ttl: "1m", app: "hello", revision: 1, updated_at: NOW, updated_by: "admin" },
  key: { name: "release", algorithm: "ed25519", fingerprint: `sha256:${"0".repeat(64)}`, public_key: "", created_at: NOW, created_by: "admin" },
  token: { id: "tok_1", name: "ci", user: "admin", scopes: ["look"], created_at: NOW, expires_at: NOW },
  alert: { budget: "all", month: "2026-01", threshold: 80, spent: money(8_000_000), limit: money(10_000_000), at: NOW },
  statement: { month: "2026-01", state: "issued", at: NOW, total: money(8_000_000) },
  secret: { name: "KEY", revision: 1, updated_at: NOW, updated_by: "admin", used: true },
  domain: { host: "api.example.org", app: "hello", state: "verified", records: [{ kind: "TXT", name: "_fdn.api.example.org", value: "proof", purpose: "proves it" }], created_at: NOW, created_by: "admin" },
  device: { id: "GPU-1", kind: "simulated", model: "A100", memory_mib: 40_960, bound_mib: 1024, state: "in_service", slices: [] },
};
const sampled = (sample, key, text) => () => rename(key, text)([sample]);

// The page, the name of its table, what is answered instead, what is made of the answer, and what else the rows ask for.
const LISTS = [
  ["/functions", "Functions", "/v1/apps", rename("app")],
  ["/functions/hello", "State on each node", "/v1/apps/hello", (app) => ({ ...app, nodes: rename("node")(app.nodes) })],
  ["/functions/hello/versions", "Versions", "/v1/apps/hello", (app) => ({ ...app, versions: [...app.versions, ...rename("version", (index) => index + 100)(app.versions)].slice(-ROWS) })],
  ["/functions/hello/explain", "Where clients are sent", "/v1/apps/hello", (app) => ({ ...app, bindings: rename("prefix", address)([{ cluster: "eu-west", revision: 1 }]) })],
  ["/functions/hello/settings", "Secrets", "/v1/apps/hello/secrets", sampled(SAMPLES.secret, "name")],
  ["/workflows", "Workflows", "/v1/apps", (apps) => rename("app")(apps.filter((app) => app.functions !== undefined)), { asked: /^\/v1\/apps\/row-\d+\/workflow$/, instead: "/v1/apps/chain/workflow" }],
  ["/workflows/chain/runs", "Runs", "/v1/apps/chain/runs", rename("run")],
  ["/jobs", "Jobs", "/v1/jobs", rename("id", (index) => `job_${name(index)}`)],
  ["/jobs/schedules", "Schedules", "/v1/schedules", sampled(SAMPLES.schedule, "name")],
  ["/network", "Clusters", "/v1/clusters", rename("cluster")],
  ["/network/clusters/eu-west", "Clusters around eu-west", "/v1/clusters/eu-west", (detail) => ({ ...detail, links: rename("cluster")(detail.links) })],
  ["/network/clusters/eu-west", "Nodes of eu-west", "/v1/clusters/eu-west", (detail) => ({ ...detail, nodes: rename("node")(detail.nodes) })],
  ["/network/nodes", "Nodes", "/v1/nodes", rename("node")],
  ["/network/nodes/eu-west-1", "Apps on eu-west-1", "/v1/nodes/eu-west-1", (detail) => ({ ...detail, info: { ...detail.info, apps: rename("app")(detail.info.apps) } })],
  ["/network/join", "Join tokens", "/v1/join-tokens", rename("id")],
  ["/dns/bindings?app=hello", "Bindings of hello", "/v1/apps/hello/bindings", rename("prefix", address)],
  ["/dns/records", "Text records", "/v1/dns/txt", sampled(SAMPLES.txt, "name")],
  ["/dns/latencies", "Latencies", "/v1/latencies", rename("prefix", address)],
  ["/billing", "Usage by function", "/v1/billing/usage", (view) => ({ ...view, rows: rename("name")(view.rows) })],
  ["/billing/statements", "Statements", "/v1/billing/statements", sampled(SAMPLES.statement, "month")],
  ["/billing/statements/current", "Lines of the statement", "/v1/billing/statements/current", (statement) => ({ ...statement, line_count: ROWS, lines: rename("function")(statement.lines) })],
  ["/billing/budgets", "Budgets", "/v1/billing/budgets", rename("name")],
  ["/billing/budgets", "Alerts", "/v1/billing/alerts", sampled(SAMPLES.alert, "budget")],
  ["/account", "API tokens", "/v1/tokens", sampled(SAMPLES.token, "id")],
  ["/account", "Sessions", "/v1/sessions", rename("id")],
  ["/access", "Members", "/v1/tenants/default/members", rename("user")],
  ["/access?tab=signing", "Signing keys", "/v1/tenants/default/signing-keys", sampled(SAMPLES.key, "name")],
  ["/access?tab=tenants", "Tenants", "/v1/tenants", rename("name")],
  ["/access?tab=users", "Users", "/v1/users", rename("name")],
  ["/audit", "Audit log", "/v1/audit", rename("id")],
];

// Lists that are no tables.
const PLAIN = [
  ["/functions/hello/domains", "Domains", "/v1/apps/hello/domains", sampled(SAMPLES.domain, "host")],
  ["/functions/hello/explain?client=203.0.113.7", "Candidates", "/v1/apps/hello/explain", (answer) => ({ ...answer, candidates: rename("cluster")(answer.candidates) })],
  ["/network/devices", "Devices by node", "/v1/clusters/eu-west", (detail) => ({ ...detail, statuses: rename("node")(detail.statuses.map((status) => ({ ...status, devices: [SAMPLES.device] }))) })],
  ["/network/clusters/eu-west", "Devices", "/v1/clusters/eu-west", (detail) => ({ ...detail, statuses: rename("node")(detail.statuses.map((status) => ({ ...status, devices: [SAMPLES.device] }))) })],
  ["/dns?name=hello.fn.test&client=203.0.113.7", "Clusters, nearest first", "/v1/dns/lookup", (answer) => ({ ...answer, clusters: rename("cluster")(answer.clusters) })],
];

export async function lists({ page, browser }, step) {
  const context = await browser.context({ viewport: { width: 1440, height: 900 }, colorScheme: "light", storageState: await page.context().storageState(), reducedMotion: "reduce" });
  const one = await context.newPage();
  const all = async (entries, judge) => {
    const wrong = [];
    for (const [path, label, api, make, more] of entries) {
      const before = browser.faults.length;
      await one.route((url) => url.pathname === api, async (route) => {
        const answer = await route.fetch();
        await route.fulfill({ status: answer.status(), contentType: "application/json", body: JSON.stringify(make(await answer.json())) });
      });
      if (more !== undefined) await one.route((url) => more.asked.test(url.pathname), async (route) => route.fulfill({ response: await route.fetch({ url: new URL(more.instead, route.request().url()).href }) }));
      try {
        await one.goto(path);
        await settled(one);
        await judge(one, label);
      } catch (error) {
        wrong.push(`${path}, ${label}: ${error.message}`);
      }
      wrong.push(...browser.faults.slice(before).map((fault) => `${path}, ${label}: ${fault}`));
      // What rows still ask for ends with the page, and is not asked of the network itself.
      await one.goto("about:blank");
      await one.unrouteAll({ behavior: "ignoreErrors" });
    }
    if (wrong.length > 0) throw new Error(wrong.join("\n"));
  };
  await step(`tables of ${ROWS.toLocaleString("en")} rows`, () => all(LISTS, look));
  await step(`lists of ${ROWS.toLocaleString("en")} rows`, () => all(PLAIN, lookAtList));
  await step("a log of 10,000 lines", () => log(one));
  await step("a job's log of 10,000 lines", () => jobLog(one));
  await context.close();
}

async function look(page, label) {
  const table = page.getByRole("table", { name: label, exact: true });
  await table.waitFor();
  await page.waitForFunction(([wanted, least]) => Number(document.querySelector(`[role=table][aria-label="${wanted}"]`)?.getAttribute("aria-rowcount")) >= least, [label, ROWS]);
  const rows = table.locator(".tbody > .tr");
  const all = Number(await table.getAttribute("aria-rowcount"));
  const few = async (where) => {
    const there = await rows.count();
    assert.ok(there > 0 && there <= MOST, `${there} rows are in the page ${where}`);
  };
  await few("at the beginning");
  await page.evaluate(() => window.scrollTo(0, document.documentElement.scrollHeight / 2));
  await page.waitForFunction((wanted) => Number(document.querySelector(`[role=table][aria-label="${wanted}"] .tbody > .tr`)?.getAttribute("aria-rowindex")) > 1000, label);
  await few("in the middle");
  // Rows are measured when they come into sight, so the end may move on while one comes to it.
  await page.waitForFunction(([wanted, last]) => {
    window.scrollTo(0, document.documentElement.scrollHeight);
    return document.querySelector(`[role=table][aria-label="${wanted}"] .tr[aria-rowindex="${last}"]`) !== null;
  }, [label, all], { polling: 100 });
  await few("at the end");
}

// The same for a list: its rows say how many there are, and which they are.
async function lookAtList(page, label) {
  const list = page.getByRole("list", { name: label, exact: true });
  const rows = list.locator("> li");
  await list.locator(`> li[aria-setsize="${ROWS}"]`).first().waitFor();
  const few = async (where) => {
    const there = await rows.count();
    assert.ok(there > 0 && there <= MOST, `${there} rows are in the page ${where}`);
  };
  await few("at the beginning");
  await page.waitForFunction(([wanted, last]) => {
    window.scrollTo(0, document.documentElement.scrollHeight);
    return document.querySelector(`ul[aria-label="${wanted}"] > li[aria-posinset="${last}"]`) !== null;
  }, [label, ROWS], { polling: 100 });
  await few("at the end");
}

const lines = () => `${Array.from({ length: ROWS }, (_, index) => JSON.stringify({ at: NOW + index, node: "eu-west-1", cluster: "eu-west", app: "hello", function: "hello", version: 1, instance: "i", request: name(index), stream: "stdout", text: `line ${index}` })).join("\n")}\n`;

async function log(page) {
  await page.route((url) => url.pathname === "/v1/apps/hello/logs", (route) => route.fulfill({ contentType: "application/x-ndjson", body: lines() }));
  await page.goto("/functions/hello/logs");
  await page.getByText(`${ROWS.toLocaleString("en")} lines`).waitFor();
  await newest(page);
}

async function jobLog(page) {
  await page.goto("/jobs?app=hello&state=succeeded");
  const { pathname } = new URL(await page.getByRole("table", { name: "Jobs", exact: true }).getByRole("link").first().evaluate((link) => link.href));
  await page.route((url) => url.pathname === `/v1${pathname}/logs`, (route) => route.fulfill({ contentType: "application/x-ndjson", body: lines() }));
  await page.goto(pathname);
  await newest(page);
}

// The newest line is in sight, and few others are in the page.
async function newest(page) {
  const shown = page.getByRole("log").locator("[data-index]");
  await page.getByRole("log").locator(`[data-index="${ROWS - 1}"]`).waitFor();
  const there = await shown.count();
  assert.ok(there <= MOST, `${there} lines are in the page`);
  await page.unrouteAll({ behavior: "ignoreErrors" });
}
