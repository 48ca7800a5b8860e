// Somebody is invited, and chooses a password by the link, which is good once.
import assert from "node:assert/strict";
import { axe, settled, signIn } from "../browser.js";

const PASSWORD = "chosen-by-nobody-else-1";

async function invite(page) {
  await page.goto("/access?tab=users");
  await page.getByRole("button", { name: "Invite a user" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Name", { exact: true }).fill("ivan");
  await dialog.getByLabel("In the network").selectOption("operator");
  await dialog.getByRole("button", { name: "Make the link" }).click();
  const link = await dialog.getByRole("region", { name: "link of the invitation" }).innerText();
  const command = await dialog.getByRole("region", { name: "command that accepts it" }).innerText();
  assert.ok(command.startsWith("fdn login ") && !command.includes("fdn-invite"), command);
  await dialog.getByRole("button", { name: "I have copied it" }).click();
  await page.getByRole("row", { name: /ivan/ }).getByText("invited", { exact: true }).waitFor();
  return new URL(link.trim());
}

export async function run({ page, browser }) {
  const { pathname, hash } = await invite(page);
  const link = pathname + hash;
  const context = await browser.context({ viewport: { width: 360, height: 740 }, colorScheme: "dark", reducedMotion: "reduce" });
  const one = await context.newPage();
  const asked = [];
  one.on("request", (request) => {
    const { pathname: path, search } = new URL(request.url());
    asked.push(`${path}${search} ${JSON.stringify(request.headers())}`);
  });
  const judge = async () => assert.deepEqual(await axe(one), []);
  // A link that was cut on its way.
  await one.goto(link.slice(0, -1));
  await one.getByText("This link is not whole").waitFor();
  await judge();
  await one.goto("about:blank");
  await one.goto(link);
  await one.getByRole("heading", { name: "Welcome, ivan" }).waitFor();
  await judge();
  const choose = one.getByRole("button", { name: "Choose it and sign in" });
  await one.getByLabel("Password", { exact: true }).fill("short");
  await one.getByLabel("Password again").fill("shorter");
  await one.getByText("This is not the same.").waitFor();
  assert.ok(await choose.isDisabled());
  await one.getByLabel("Password again").fill("short");
  await browser.expecting(/^\/v1\/invitations\/accept$/, async () => {
    await choose.click();
    await one.getByRole("alert").getByText("FDN-2017").waitFor();
  });
  await one.getByLabel("Password", { exact: true }).fill(PASSWORD);
  await one.getByLabel("Password again").fill(PASSWORD);
  await choose.click();
  await one.waitForURL((url) => url.pathname === "/" && url.hash === "");
  await settled(one);
  await one.getByRole("button", { name: "Account of ivan" }).waitFor();
  assert.ok(asked.every((line) => !line.includes(hash.slice(1))), "no address and no header of a request has the invitation in it");
  // Good once, and the password is there.
  await one.goto(link);
  await one.getByLabel("Password", { exact: true }).fill(PASSWORD);
  await one.getByLabel("Password again").fill(PASSWORD);
  await browser.expecting(/^\/v1\/invitations\/accept$/, async () => {
    await choose.click();
    await one.getByText("The invitation has ended").waitFor();
  });
  await judge();
  await signIn(one, PASSWORD, "/", "ivan");
  await context.close();
  await page.goto("/access?tab=users");
  await page.getByRole("button", { name: "Set a password for ivan" }).waitFor();
}
