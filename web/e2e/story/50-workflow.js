// A workflow of three stages is drawn, is told what is wrong with it, is deployed, runs, and shows where each stage ran.
import assert from "node:assert/strict";

export async function run({ page }) {
  await page.goto("/workflows");
  await page.getByRole("link", { name: "New workflow" }).first().click();
  await page.getByLabel("Name of the workflow").fill("chain");
  await page.getByLabel("Add the entry, running").selectOption("hello");
  await page.getByRole("button", { name: "Add", exact: true }).click();
  for (const before of ["hello", "hello-2"]) {
    await page.getByLabel(`Add a stage behind ${before}, running`).selectOption("hello");
    await page.getByRole("button", { name: "Add", exact: true }).click();
  }
  const edges = page.locator(".react-flow__edge");
  await page.getByText("The network finds nothing wrong with it.").waitFor();
  assert.equal(await edges.count(), 2);
  await byKeyboard(page);

  await page.getByRole("button", { name: "Take in hello-2 no longer" }).click();
  await page.getByRole("button", { name: /Stage hello-3 is an entry, and so is hello/ }).waitFor();
  assert.ok(await page.getByRole("button", { name: "Deploy" }).isDisabled(), "what is wrong cannot be deployed");
  await draw(page, "hello-2", "hello-3");
  await page.getByText("The network finds nothing wrong with it.").waitFor();

  await inStepWithTheFile(page);
  await page.getByRole("button", { name: "Deploy" }).click();
  await page.getByText("chain is now v1, 3 stages").waitFor();
  await page.waitForURL(/\/workflows\/chain/);
  await runs(page);
}

// A stage is chosen, removed, and comes back, without a mouse.
async function byKeyboard(page) {
  const stage = (name) => page.locator(`.react-flow__node[data-id="${name}"]`);
  await stage("hello-2").focus();
  await page.keyboard.press("Enter");
  await page.waitForURL(/stage=hello-2/);
  await page.keyboard.press("Delete");
  await page.getByText("Removed hello-2", { exact: true }).waitFor();
  assert.equal(await stage("hello-2").count(), 0);
  await page.keyboard.press("Control+z");
  await stage("hello-2").waitFor();
  await stage("hello-3").focus();
  await page.keyboard.press("Enter");
  await page.waitForURL(/stage=hello-3/);
}

// The canvas is arranged and fitted anew some frames after what is drawn has changed; a hand, too, waits until it stands still.
async function still(page) {
  await page.locator(".react-flow").evaluate((canvas) => new Promise((resolve) => {
    const places = () => [...canvas.querySelectorAll(".react-flow__handle")].map((handle) => Object.values(handle.getBoundingClientRect().toJSON()).join()).join(";");
    let [before, same] = ["", 0];
    const look = () => {
      const now = places();
      same = now === before ? same + 1 : 0;
      before = now;
      if (same === 20) resolve();
      else window.requestAnimationFrame(look);
    };
    look();
  }));
}

// Draws an edge with the mouse, from one stage's end to another one's beginning.
async function draw(page, from, to) {
  await still(page);
  const [begin, end] = await Promise.all([
    page.locator(`.react-flow__node[data-id="${from}"] .react-flow__handle.source`).boundingBox(),
    page.locator(`.react-flow__node[data-id="${to}"] .react-flow__handle.target`).boundingBox(),
  ]);
  await page.mouse.move(begin.x + 5, begin.y + 5);
  await page.mouse.down();
  await page.mouse.move(end.x + 5, end.y + 5, { steps: 8 });
  await page.mouse.up();
}

async function inStepWithTheFile(page) {
  await page.getByRole("tab", { name: "YAML" }).click();
  const file = page.getByLabel("The workflow as a file");
  const text = await file.inputValue();
  await file.fill(`# drawn\n${text.replace("name: hello-3", "nam: last")}`);
  await page.getByText(/Line \d+: A stage has no key nam/).waitFor();
  await file.fill(`# drawn\n${text.replace("name: hello-3", "name: last")}`);
  await page.locator('.react-flow__node[data-id="last"]').click();
  await page.getByRole("tab", { name: "Stages" }).click();
  await page.getByLabel("Timeout of one attempt").fill("5s");
  await page.getByLabel("Timeout of one attempt").press("Enter");
  await page.getByRole("tab", { name: "YAML" }).click();
  const after = await file.inputValue();
  assert.match(after, /^# drawn\n/);
  assert.match(after, /name: last\n {4}function: hello\n {4}needs: \[ hello-2 \]\n {4}timeout: 5s\n/);
}

// Until all nodes have it, a call may be refused; then it runs to its end.
async function runs(page) {
  await page.goto("/functions/chain");
  await page.getByText("ready", { exact: true }).first().waitFor();
  await page.goto("/workflows/chain/run");
  await page.getByLabel("Body as text").fill("conference");
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await page.getByText("hello, hello, hello, conference").waitFor();
  const canvas = page.getByRole("region", { name: "Stages of the run" });
  await canvas.getByRole("group", { name: /Stage last, .*, done/ }).waitFor();
  for (const stage of ["hello", "hello-2", "last"]) {
    assert.match(await canvas.locator(`.react-flow__node[data-id="${stage}"]`).innerText(), /s\b[\s\S]*done[\s\S]*(eu-west|us-east|ap-south)/);
  }
  await page.getByRole("img", { name: /Time line of the run/ }).waitFor();
  await page.getByRole("link", { name: "History" }).first().click();
  await page.getByRole("row", { name: /answered/ }).first().waitFor();
}
