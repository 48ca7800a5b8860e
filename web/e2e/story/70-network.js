// A join token is made and taken back; a cluster says how far the others are; a node is drained and serves again; removing one asks for its name.
import assert from "node:assert/strict";

export async function run({ page }) {
  await page.goto("/network");
  await page.getByRole("row", { name: /eu-west/ }).waitFor();
  await page.getByRole("link", { name: "Join a node" }).last().click();
  await page.getByRole("heading", { name: "Join a node", level: 1 }).waitFor();
  await page.getByLabel("Cluster").selectOption("eu-west");
  await page.getByRole("button", { name: "Make the token" }).click();
  const command = page.getByRole("region", { name: "command that joins" });
  await command.waitFor();
  const token = await page.getByRole("region", { name: "join token" }).innerText();
  assert.match(token, /^fdn-join\./);
  assert.ok((await command.innerText()).includes(`printf %s ${token.trim()} | fdn-edge-agent join ${new URL(page.url()).origin} --token-file - --cluster eu-west`));
  await page.getByRole("button", { name: /^Take back / }).first().click();
  await page.getByRole("button", { name: "Take it back" }).click();
  await page.getByText("taken back", { exact: true }).waitFor();

  await page.goto("/network/clusters/eu-west");
  const around = page.getByRole("table", { name: "Clusters around eu-west" });
  await around.getByRole("row", { name: /us-east/ }).getByText(/ms$/).waitFor();
  assert.equal(await around.getByText("the distance", { exact: true }).count(), 2, "nodes of one machine measure nothing");

  await page.goto("/network/nodes/us-east-2");
  await page.getByRole("button", { name: "Drain" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Drain" }).click();
  await page.getByText("drained", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Uncordon" }).click();
  await page.getByText("alive", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Remove", exact: true }).click();
  assert.ok(await page.getByRole("button", { name: "Remove the node" }).isDisabled(), "its name has to be typed");
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
}
