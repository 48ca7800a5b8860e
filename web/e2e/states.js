// What pages show while they have nothing to show: as long as nothing is answered, when what is asked for is refused, and when there is nothing.
import assert from "node:assert/strict";
import { settled } from "./browser.js";
import { addressOf, PAGES } from "./pages.js";

// These are there at once: nothing that they ask for is needed for what they show.
const AT_ONCE = new Set(["functions-upload", "not-found"]);

// Pages of lists, and what each says when its list is empty.
const EMPTY = {
  overview: "First steps",
  functions: "Nothing is deployed yet",
  "functions-catalogue": "The catalogue is empty",
  "function-domains": "No domains of your own",
  "function-settings": "No secrets are set",
  workflows: "No workflow yet",
  "workflow-new": "No function is deployed yet",
  "workflow-history": "No run yet",
  jobs: "Nothing is deployed yet",
  "jobs-schedules": "No schedule yet",
  network: "No cluster yet",
  "network-nodes": "No node yet",
  "network-devices": "No node has a device",
  "network-join": "No cluster yet",
  "dns-bindings": "Nothing is deployed yet",
  "dns-records": "No text record yet",
  "dns-latencies": "No prefix is known yet",
  "billing-statements": "No statement yet",
  "billing-budgets": "No budget yet",
  "billing-prices": "No price list",
  account: "No tokens",
  "access-signing": "No signing keys",
  audit: "No entries",
};

const REFUSAL = { type: "/docs/errors#fdn-2004", title: "refused for a test", status: 409, code: "FDN-2004", detail: "it is refused for a test", request_id: "test-1" };

// Who is there, and the stream of events, are answered as ever.
const asks = (url) => url.pathname.startsWith("/v1/") && !["/v1/login", "/v1/events"].includes(url.pathname);

export async function states({ page, browser }, step) {
  const context = await browser.context({ viewport: { width: 1440, height: 900 }, colorScheme: "light", storageState: await page.context().storageState(), reducedMotion: "reduce" });
  const one = await context.newPage();
  const every = async (names, answer, judge) => {
    const wrong = [];
    for (const [name, path] of PAGES.filter(([each]) => names(each))) {
      const before = browser.faults.length;
      await one.route(asks, answer);
      try {
        await one.goto(await addressOf(one, path));
        await judge(name);
      } catch (error) {
        wrong.push(`${name}: ${error.message}`);
      }
      wrong.push(...browser.faults.slice(before).map((fault) => `${name}: ${fault}`));
      await one.goto("about:blank");
      await one.unrouteAll({ behavior: "ignoreErrors" });
    }
    assert.deepEqual(wrong, []);
  };
  const main = one.getByRole("main");
  await step("every page while it loads", () => every((name) => !AT_ONCE.has(name), () => undefined, async () => {
    await main.locator(".skeleton").first().waitFor();
  }));
  await step("every page that is refused", () => browser.expecting(/^\/v1\//, () => every((name) => !AT_ONCE.has(name), (route) => route.fulfill({ status: 409, contentType: "application/problem+json", body: JSON.stringify(REFUSAL) }), async () => {
    const told = main.getByRole("alert").filter({ hasText: /it is refused for a test/i }).first();
    await told.waitFor();
    // What happened, what to do, and by what the log knows it.
    assert.match(await told.innerText(), /Change what the message names, then try again\.[\s\S]*FDN-2004[\s\S]*test-1/);
  })));
  const nothing = async (route) => {
    // The server may just be closing the idle connection that is used again: what every browser asks once more.
    const answer = await route.fetch({ maxRetries: 3 });
    const body = await answer.json().catch(() => null);
    await route.fulfill(Array.isArray(body) ? { response: answer, json: [], headers: { "content-type": "application/json" } } : { response: answer });
  };
  await step("every list without rows", () => every((name) => name in EMPTY, nothing, async (name) => {
    const title = main.getByRole("heading", { name: EMPTY[name] });
    await title.waitFor();
    await settled(one);
    const next = await title.locator("xpath=..").locator("p, a, ol, button").allInnerTexts();
    const around = await title.locator("xpath=../..").locator("p, a, ol, button").allInnerTexts();
    assert.ok([...next, ...around].some((text) => text.length > 10), "it says what to do next");
  }));
  await context.close();
}
