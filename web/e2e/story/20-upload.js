// A file that cannot run is refused at the step that finds out; a component is taken, and answers.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import { image } from "../image.js";

const HELLO = fileURLToPath(new URL("../../../functions/hello/hello.wasm", import.meta.url));
const MANIFEST = fileURLToPath(new URL("../../../functions/hello/fdn.toml", import.meta.url));

// Files are dragged over the place for them, out of it again, beside it, and dropped on it.
async function dropped(page, paths) {
  const contents = paths.map((path) => [basename(path), readFileSync(path).toString("base64")]);
  const dataTransfer = await page.evaluateHandle((all) => {
    const transfer = new DataTransfer();
    for (const [name, text] of all) transfer.items.add(new File([Uint8Array.from(atob(text), (byte) => byte.charCodeAt(0))], name));
    return transfer;
  }, contents);
  const place = page.locator("[data-drop]");
  await place.dispatchEvent("dragover", { dataTransfer });
  assert.equal(await place.getAttribute("data-over"), "true", "it shows that files may be dropped");
  await place.dispatchEvent("dragleave", { dataTransfer });
  assert.equal(await place.getAttribute("data-over"), "false");
  const taken = await page.locator("h1").evaluate((title, data) => !title.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true })), dataTransfer);
  assert.ok(taken, "a file that is dropped beside the place does not take the browser away");
  await place.dispatchEvent("dragover", { dataTransfer });
  await place.dispatchEvent("drop", { dataTransfer });
  assert.equal(await place.getAttribute("data-over"), "false");
}

// An image of another processor passes the steps before the one that refuses it.
async function foreignImage(page, browser) {
  await page.getByLabel("Files to deploy").setInputFiles({ name: "foreign.tar", mimeType: "application/x-tar", buffer: image("s390x") });
  await page.getByLabel("Manifest (fdn.toml), if you have one").fill('runtime = "docker"');
  await browser.expecting(/\/versions$/, async () => {
    await page.getByRole("button", { name: "Deploy" }).click();
    await page.getByRole("alert").getByText("FDN-1020").waitFor();
  });
  const step = (state) => page.locator(`li[data-state=${state}]`);
  assert.match(await step("failed").innerText(), /Nodes have its processor[\s\S]*s390x/);
  assert.match((await step("passed").allInnerTexts()).join("\n"), /container image[\s\S]*configuration[\s\S]*digests/);
}

export async function run({ page, browser }) {
  await page.goto("/functions/new");
  const files = page.getByLabel("Files to deploy");
  await files.setInputFiles({ name: "notes.wasm", mimeType: "application/wasm", buffer: Buffer.from("this is no component") });
  await browser.expecting(/\/versions$/, async () => {
    await page.getByRole("button", { name: "Deploy" }).click();
    await page.getByRole("alert").getByText("FDN-1002").waitFor();
  });
  const refused = page.locator("li[data-state=failed]");
  assert.match(await refused.innerText(), /well-formed component/);
  await foreignImage(page, browser);

  await dropped(page, [HELLO, MANIFEST]);
  await page.getByText("hello.wasm").waitFor();
  assert.match(await page.getByLabel("Manifest (fdn.toml), if you have one").inputValue(), /memory/);
  await page.getByLabel("Name").fill("hello");
  await page.getByRole("button", { name: "Deploy" }).click();
  await page.getByText("hello v1 is deployed.").waitFor();
  assert.match(await page.locator("li[data-state=passed]").filter({ hasText: "answers a first call" }).innerText(), /answered 200/);

  await page.goto("/functions/catalogue");
  await page.getByRole("button", { name: "Deploy image" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Deploy", exact: true }).click();
  await page.waitForURL(/\/functions\/image$/);
}
