// Prices are set, a budget is made and removed and comes back, the bill is read and saved.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";

export async function run({ page }) {
  await page.goto("/billing/prices");
  await page.getByRole("button", { name: "New price list" }).first().click();
  await page.getByRole("dialog").getByLabel("Name").fill("first");
  await page.getByLabel("Calls: price").fill("0.20");
  await page.getByRole("button", { name: "Add the list" }).click();
  await page.getByRole("heading", { name: /first/ }).waitFor();

  // Budgets are those of the tenant that one looks at.
  const whose = [];
  page.on("request", (request) => {
    const { pathname, search } = new URL(request.url());
    if (pathname.startsWith("/v1/billing/budgets")) whose.push(`${request.method()} ${search}`);
  });
  await page.goto("/billing/budgets?tenant=default");
  await page.getByRole("button", { name: "New budget" }).first().click();
  await page.getByRole("dialog").getByLabel("Name").fill("all");
  await page.getByLabel(/Limit a month/).fill("12.50");
  await page.getByRole("button", { name: "Set the budget" }).click();
  await page.getByRole("cell", { name: "12.50 EUR", exact: true }).waitFor();
  await page.getByRole("button", { name: "Remove all" }).click();
  await page.getByRole("button", { name: "Remove it" }).click();
  await page.getByText("Budget all was removed").waitFor();
  await page.getByRole("button", { name: "Undo" }).last().click();
  await page.getByRole("button", { name: "Remove all" }).waitFor();
  assert.deepEqual([...new Set(whose)].sort(), ["DELETE ?tenant=default", "GET ?tenant=default", "PUT ?tenant=default"]);

  await page.goto("/billing");
  await page.getByText("So far").waitFor();
  const [csv] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "Export CSV" }).click()]);
  assert.match(await readFile(await csv.path(), "utf8"), /^month,/);
  const [json] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export JSON" }).click()]);
  assert.equal(JSON.parse(await readFile(await json.path(), "utf8")).state, "open");
  await page.goto("/billing/statements/current");
  await page.getByRole("heading", { name: /Statement \d{4}-\d\d/ }).waitFor();
}
