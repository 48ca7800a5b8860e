// A name is looked up as a client somewhere else; its app's bindings and the latency map are shown; text records are set, taken away and brought back.
import assert from "node:assert/strict";

export async function run({ page, browser }) {
  await page.goto("/dns");
  await page.getByLabel("Name", { exact: true }).fill("hello");
  await page.getByLabel("Client", { exact: true }).fill("203.0.113.7");
  await page.getByRole("button", { name: "Look up" }).click();
  await page.waitForURL(/name=hello\.fn\.test/);
  await page.getByRole("heading", { name: "Why" }).waitFor();
  await page.getByText("203.0.113.0/24").first().waitFor();
  assert.match(await page.locator("main").innerText(), /127\.0\.[123]\.[12][\s\S]*TTL/);
  await page.getByRole("link", { name: "Bindings" }).click();
  await page.getByLabel("App").selectOption("hello");
  await page.getByRole("table", { name: "Bindings of hello" }).or(page.getByText("No binding yet")).waitFor();
  await page.getByRole("link", { name: "Latencies" }).click();
  await page.getByRole("table", { name: "Latencies" }).or(page.getByText("No prefix is known yet")).waitFor();

  await page.getByRole("link", { name: "Text records" }).click();
  await page.getByRole("button", { name: "Set text records" }).first().click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name").fill("hello");
  await dialog.getByLabel("Values").fill("one");
  await browser.expecting(/^\/v1\/dns\/txt\/hello\./, async () => {
    await dialog.getByRole("button", { name: "Set them" }).click();
    await dialog.getByText("it is an app's own name").waitFor();
  });
  await dialog.getByLabel("Name").fill("_acme-challenge.hello");
  await dialog.getByLabel("Values").fill("one\ntwo words");
  await dialog.getByRole("button", { name: "Set them" }).click();
  await page.getByRole("row", { name: /_acme-challenge\.hello\.fn\.test "one" "two words"/ }).waitFor();
  await page.getByRole("button", { name: "Remove _acme-challenge.hello.fn.test" }).click();
  await page.getByRole("button", { name: "Take them away" }).click();
  await page.getByText("No text record yet").waitFor();
  await page.getByRole("button", { name: "Undo" }).click();
  await page.getByRole("row", { name: /_acme-challenge\.hello\.fn\.test/ }).waitFor();
}
