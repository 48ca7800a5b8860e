// A member who may only look: pages are shown without what may not be done, or say that they may not be looked at; nothing is refused.
import assert from "node:assert/strict";
import { settled, signIn } from "../browser.js";
import { addressOf, PAGES } from "../pages.js";

const PASSWORD = "to-look-and-nothing-else-1";

// Pages that take more than a viewer has.
const CLOSED = new Set([
  "functions-upload", "function-try", "workflow-new", "workflow-run", "network-cluster", "network-nodes", "network-node", "network-devices", "network-join",
  "dns-latencies", "billing", "billing-statements", "billing-statement", "billing-budgets", "access-tenants", "access-users", "audit",
]);

// What is done with these takes more too, wherever they stand.
const DEEDS = /^(Deploy|Upload a function|New version|Roll back|Make current|Set the split|Set a secret|Add a variable|Set|Add|Add a domain|New workflow|Remove the stage|Set text records|Change|Submit a job|New schedule|Send|Run|New cluster|Join a node|Make the token|Drain|Uncordon|Remove|New budget|New price list|Add a member|Add a key|Make a tenant|Make a user|Invite a user|Suspend)$/;

export async function run({ page, browser }) {
  await page.goto("/access?tab=users");
  await page.getByRole("button", { name: "Make a user" }).click();
  let dialog = page.getByRole("dialog");
  assert.equal(await page.evaluate(() => document.activeElement?.tagName), "INPUT", "a dialog begins at its first field");
  await dialog.getByLabel("Name", { exact: true }).fill("vera");
  await dialog.getByLabel("First password").fill(PASSWORD);
  await dialog.getByRole("button", { name: "Make it" }).click();
  await page.getByText("The user vera is made").waitFor();
  await page.goto("/access");
  await page.getByRole("button", { name: "Add a member" }).click();
  dialog = page.getByRole("dialog");
  await dialog.getByLabel("User").fill("vera");
  await dialog.getByLabel("Role").selectOption("viewer");
  await dialog.getByRole("button", { name: "Add", exact: true }).click();
  await page.getByText("vera is viewer of default").waitFor();

  const context = await browser.context({ viewport: { width: 1440, height: 900 }, colorScheme: "light" });
  const one = await context.newPage();
  await signIn(one, PASSWORD, "/", "vera");
  const refused = [];
  one.on("response", (answer) => {
    if (answer.status() >= 400) refused.push(`${answer.status()} ${new URL(answer.url()).pathname}`);
  });
  const wrong = [];
  for (const [name, path] of PAGES) {
    await one.goto(await addressOf(one, path));
    await settled(one);
    const main = one.getByRole("main");
    const closed = (await main.getByText("You may not look at this").count()) > 0;
    if (closed !== CLOSED.has(name)) wrong.push(`${name}: ${closed ? "says that it may not be looked at" : "does not say that it may not be looked at"}`);
    const deeds = [...await main.getByRole("button").allInnerTexts(), ...await main.locator("a.button").allInnerTexts()].map((text) => text.trim()).filter((text) => DEEDS.test(text));
    if (deeds.length > 0) wrong.push(`${name}: offers ${deeds.join(", ")}`);
    if (refused.length > 0) wrong.push(`${name}: asked for what it may not have: ${refused.splice(0).join(", ")}`);
  }
  await one.goto("/");
  const pages = await one.getByRole("navigation", { name: "Pages" }).getByRole("link").allInnerTexts();
  assert.ok(!pages.includes("Billing") && !pages.includes("Audit log"), `the navigation has ${pages.join(", ")}`);
  await context.close();
  assert.deepEqual(wrong, []);
}
