// Calling a function from the page, and its line arriving in the log.
import assert from "node:assert/strict";

export async function run({ page }) {
  await page.goto("/functions/hello");
  await page.getByText("ready", { exact: true }).first().waitFor();
  await page.getByRole("link", { name: "Try it" }).click();
  await page.getByRole("textbox", { name: "Body" }).fill("conference");
  await page.getByRole("button", { name: "Send" }).click();
  await page.getByText("hello, conference").waitFor();
  assert.match(await page.getByText("Time by phase").locator("..").innerText(), /total/);

  await page.getByRole("link", { name: "Logs" }).click();
  await page.getByRole("log").getByText("answered / with 18 octets").first().waitFor();
  await page.getByRole("button", { name: "Pause" }).click();
  await page.getByLabel("Filter by text").fill("no such line");
  await page.getByText("Nothing matches").waitFor();
  await page.getByLabel("Filter by text").fill("octets");
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Download" }).click()]);
  assert.match(download.suggestedFilename(), /^hello-.*\.ndjson$/);
}
