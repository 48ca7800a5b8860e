// Clients of three places look a function up; the map shows where they are sent.
import assert from "node:assert/strict";
import { ask } from "../dns.js";

const CLIENTS = ["192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"];

export async function run({ page }) {
  const { dns, zone } = await page.evaluate(async () => (await fetch("/v1/network")).json());
  for (const client of CLIENTS) for (let times = 0; times < 3; times += 1) assert.equal(await ask(dns, `hello.${zone}`, client), 0, `${client} gets an answer`);
  await page.goto("/");
  const map = page.getByRole("group", { name: /Map of 3 clusters and \d+ places? of clients/ });
  await map.waitFor();
  for (const client of CLIENTS) await map.locator("title", { hasText: client }).first().waitFor({ state: "attached" });
  await page.getByText("Lines lead from clients to the cluster").waitFor();
  const marker = map.getByRole("img", { name: /^ap-south / });
  await marker.focus();
  assert.match(await marker.getAttribute("aria-label"), /client prefix(es)? with .* % of the demand/);
}
