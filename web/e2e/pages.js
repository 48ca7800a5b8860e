// Every page of the console, by its address; for some, what is done before a picture is taken, and what is answered instead of what the network
// of the tests has. `hello`, `image` and the workflow `chain` are made by the story before they are visited. `JOB` and `RUN` in an address stand
// for a job of `hello` and a run of `chain`.
import { settled } from "./browser.js";

const GIB = 1024;
const slice = (instance, app, memory, cores) => ({ instance: `ins_${instance}`, app, memory_mib: memory * GIB, cores });
const gpu = (id, slices, more = {}) => ({
  id: `GPU-${id}`, kind: "gpu", model: "NVIDIA H100 80GB HBM3", memory_mib: 80 * GIB, bound_mib: slices.reduce((sum, each) => sum + each.memory_mib, 0), slices, state: "in_service", ...more,
});
// GPUs, which the machine of the tests need not have.
const DEVICES = {
  "eu-west-1": [
    gpu("5a1d", [slice(1, "detect", 24, 50), slice(2, "caption", 20, 30), slice(3, "detect", 12, 20)]),
    gpu("77c0", [slice(4, "upscale", 40, 100)]),
  ],
  "eu-west-2": [
    gpu("b3f2", [], { state: "out_of_service", reason: "Xid 79: the GPU has fallen off the bus", since: Date.UTC(2026, 0, 15) }),
    gpu("e901", [slice(5, "caption", 10, 25)], { kind: "mig", id: "MIG-e901", model: "NVIDIA H100 MIG 3g.40gb", memory_mib: 40 * GIB }),
  ],
};
export const withDevices = {
  path: /^\/v1\/clusters\/eu-west$/,
  make: (detail) => ({ ...detail, statuses: detail.statuses.map((status) => ({ ...status, devices: DEVICES[status.node] ?? [] })) }),
};

// A run with something to see on its time line: those of the tests take less than the millisecond that times are told in. Its second stage is lost
// with its cluster and made again in another one.
const MS = { hello: [[0, 38]], "hello-2": [[41, 96], [104, 171]], last: [[176, 214]] };
const withTimes = {
  path: /^\/v1\/apps\/chain\/runs\/run_/,
  make: (run) => ({
    ...run,
    ended_at: run.started_at + 219,
    stages: run.stages.map(({ stage, attempts }) => ({
      stage,
      attempts: MS[stage].map(([from, to], index) => ({
        ...attempts[0], attempt: index + 1, started_at: run.started_at + from, ended_at: run.started_at + to,
        ...(index + 1 < MS[stage].length ? { outcome: "lost", cluster: "us-east", node: "us-east-1", reason: "its cluster went away", output_bytes: null } : { cluster: stage === "hello" ? "us-east" : "eu-west", node: stage === "hello" ? "us-east-2" : "eu-west-1" }),
      })),
    })),
  }),
};

export const PAGES = [
  ["overview", "/"],
  ["functions", "/functions"],
  ["functions-upload", "/functions/new"],
  ["functions-catalogue", "/functions/catalogue"],
  ["function-summary", "/functions/hello"],
  ["function-versions", "/functions/hello/versions"],
  ["function-try", "/functions/hello/try", async (page) => {
    await page.getByRole("button", { name: "Send" }).click();
    await page.getByText("Time by phase").waitFor();
  }],
  ["function-calls", "/functions/hello/calls"],
  ["function-logs", "/functions/hello/logs"],
  ["function-metrics", "/functions/hello/metrics"],
  ["function-settings", "/functions/hello/settings"],
  ["function-domains", "/functions/hello/domains"],
  ["function-explain", "/functions/hello/explain?client=203.0.113.7"],
  ["workflows", "/workflows"],
  ["workflow-new", "/workflows/new"],
  ["workflow-design", "/workflows/chain?stage=last"],
  ["workflow-yaml", "/workflows/chain?panel=yaml"],
  ["workflow-run", "/workflows/chain/run"],
  ["workflow-history", "/workflows/chain/runs"],
  ["workflow-one-run", "/workflows/chain/runs/RUN", undefined, withTimes],
  ["jobs", "/jobs"],
  ["job", "/jobs/JOB"],
  ["jobs-schedules", "/jobs/schedules"],
  ["network", "/network"],
  ["network-cluster", "/network/clusters/eu-west"],
  ["network-nodes", "/network/nodes"],
  ["network-node", "/network/nodes/eu-west-1"],
  ["network-devices", "/network/devices", undefined, withDevices],
  ["network-join", "/network/join"],
  ["dns", "/dns?name=hello.fn.test&client=203.0.113.7"],
  ["dns-bindings", "/dns/bindings?app=hello"],
  ["dns-records", "/dns/records"],
  ["dns-latencies", "/dns/latencies"],
  ["billing", "/billing"],
  ["billing-statements", "/billing/statements"],
  ["billing-statement", "/billing/statements/current"],
  ["billing-budgets", "/billing/budgets"],
  ["billing-prices", "/billing/prices"],
  ["account", "/account"],
  ["access-members", "/access"],
  ["access-signing", "/access?tab=signing"],
  ["access-tenants", "/access?tab=tenants"],
  ["access-users", "/access?tab=users"],
  ["audit", "/audit"],
  ["not-found", "/nowhere"],
];

// What the link of an invitation opens for somebody who is not signed in.
export const INVITATION = `/invitation#fdn-invite.616e6e.${"0123456789abcdef".repeat(4)}`;

// Opens a page, once nothing is loading any more.
export async function visit(page, [, path, , instead]) {
  if (instead !== undefined) {
    await page.route((url) => instead.path.test(url.pathname), async (route) => {
      const answer = await route.fetch();
      await route.fulfill({ response: answer, json: instead.make(await answer.json()) });
    });
  }
  await page.goto(await addressOf(page, path));
  await settled(page);
}

// Ends what `visit` answers instead.
export async function leave(page) {
  await page.unrouteAll({ behavior: "ignoreErrors" });
}

// The address with what `JOB` and `RUN` stand for in it. Asked for by the context and not by the page, which may be nowhere yet.
export async function addressOf(page, path) {
  const first = async (list, key) => {
    const answer = await page.context().request.get(list);
    const [row] = await answer.json();
    if (row === undefined) throw new Error(`${list} is empty`);
    return row[key];
  };
  if (path.endsWith("/JOB")) return path.replace("JOB", await first("/v1/apps/hello/jobs?limit=1", "id"));
  if (path.endsWith("/RUN")) return path.replace("RUN", await first("/v1/apps/chain/runs?limit=1", "run"));
  return path;
}
