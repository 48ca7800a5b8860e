// A second version by changed variables, half of the traffic to the first one, and back.
import assert from "node:assert/strict";

export async function run({ page }) {
  await page.goto("/functions/hello/settings");
  await page.getByLabel("Value of GREETING").fill("good day");
  await page.getByRole("button", { name: "Save 1 change" }).click();
  await page.getByText("v2 has the new variables").waitFor();

  await page.getByRole("link", { name: "Versions", exact: true }).click();
  const diff = page.getByRole("row", { name: /env\.GREETING/ });
  assert.match(await diff.innerText(), /hello[\s\S]*good day/);

  await page.getByRole("button", { name: "50 %" }).click();
  await page.getByRole("button", { name: "Set the split" }).click();
  await page.getByText("50 % of calls go to v1").waitFor();
  const shares = page.getByRole("group", { name: "Shares of hello" });
  await shares.getByText("v1").waitFor();
  assert.match(await shares.innerText(), /50 %[\s\S]*50 %/);

  await page.getByRole("button", { name: "Roll back" }).click();
  await page.getByText("v1 is current now").waitFor();
}
