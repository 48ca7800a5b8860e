// A second version by changed variables, half of the traffic to the first one, and back; a third one while somebody else edits.
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
  await deployedMeanwhile(page);
}

// Somebody else deploys while variables are edited: what was typed stays until one chooses. At the end the first version is current again.
async function deployedMeanwhile(page) {
  await page.goto("/functions/hello/settings");
  const value = page.getByLabel("Value of GREETING");
  const added = page.getByLabel("Value of LEVEL");
  await value.fill("good night");
  const other = await page.context().newPage();
  await other.goto("/functions/hello/settings");
  await other.getByLabel("Value of GREETING").waitFor();
  await other.getByRole("button", { name: "Add a variable" }).click();
  await other.getByLabel(/^Name of variable/).last().fill("LEVEL");
  await other.getByLabel("Value of LEVEL").fill("1");
  await other.getByRole("button", { name: "Save 1 change" }).click();
  await other.getByText("v3 has the new variables").waitFor();
  await page.bringToFront();
  await page.getByText("Version 3 was deployed meanwhile. Your changes are based on version 1.").waitFor();
  assert.equal(await value.inputValue(), "good night");
  assert.equal(await added.count(), 0);
  await page.getByRole("button", { name: "Keep my changes" }).click();
  await added.waitFor();
  assert.equal(await value.inputValue(), "good night");
  await page.getByRole("button", { name: "Save 1 change" }).waitFor();

  await other.getByRole("button", { name: "Roll back" }).click();
  await other.getByText("v1 is current now").waitFor();
  await other.close();
  await page.getByRole("button", { name: "Load version 1" }).click();
  await page.getByText("was deployed meanwhile").waitFor({ state: "detached" });
  assert.equal(await value.inputValue(), "hello");
}
