// Everything that opens, in light and dark, wide and narrow: opened with a key, it has the focus and nothing serious for axe, fits, closes on Escape
// and gives the focus back to what opened it. With PICTURES=FOLDER it takes a picture of each, to be looked at and not kept.
import assert from "node:assert/strict";
import { axe, settled } from "./browser.js";
import { OPENERS } from "./openers.js";
import { addressOf } from "./pages.js";

const KINDS = [
  { colorScheme: "light", viewport: { width: 1440, height: 900 } },
  { colorScheme: "dark", viewport: { width: 360, height: 740 } },
];
const NARROW = { width: 360, height: 740 };

export async function dialogs({ page, browser }, step) {
  const storageState = await page.context().storageState();
  for (const kind of KINDS) {
    const contexts = await Promise.all([storageState, undefined].map((state) => browser.context({ ...kind, reducedMotion: "reduce", ...(state === undefined ? {} : { storageState: state }) })));
    const [member, stranger] = await Promise.all(contexts.map((context) => context.newPage()));
    for (const one of [member, stranger]) {
      one.setDefaultTimeout(30_000);
      // A drawing that is not deployed asks before it is left.
      one.on("dialog", (asked) => void asked.accept());
    }
    await step(`all ${OPENERS.length} that open, ${kind.colorScheme}, ${kind.viewport.width} wide`, async () => {
      const wrong = [];
      for (const [index, opener] of OPENERS.entries()) {
        const before = browser.faults.length;
        const one = opener.stranger === true ? stranger : member;
        const add = (faults) => wrong.push(...faults.map((fault) => `${opener.file}, ${opener.title}: ${fault}`));
        try {
          add(await browser.expecting(opener.refused ?? /^$/, () => visit(one, opener, kind, index)));
        } catch (error) {
          add([error.message]);
        }
        add(browser.faults.slice(before));
        await one.goto("about:blank");
        await one.unrouteAll({ behavior: "ignoreErrors" });
      }
      assert.deepEqual(wrong, []);
    });
    await Promise.all(contexts.map((context) => context.close()));
  }
}

// What is wrong with one of them.
async function visit(page, opener, { colorScheme, viewport }, index) {
  await page.setViewportSize(opener.narrow === true ? NARROW : viewport);
  await opener.with?.(page);
  await page.goto(await addressOf(page, opener.at));
  await settled(page);
  const by = await opener.open(page);
  const wrong = opener.kind === undefined ? await dialog(page, opener) : await unfolded(page, by);
  if (process.env.PICTURES !== undefined) await page.screenshot({ path: `${process.env.PICTURES}/opens-${String(index).padStart(2, "0")}-${colorScheme}.png` });
  if (opener.kind === "unfolds" || opener.kind === "details") await by.press("Enter");
  else await page.keyboard.press("Escape");
  await closed(page, opener, by);
  return wrong;
}

async function dialog(page, { title }) {
  const opened = page.getByRole("dialog", { name: title, exact: true });
  await opened.waitFor();
  assert.equal(await page.getByRole("dialog").count(), 1, "one at a time");
  await page.waitForFunction(() => document.querySelector("dialog[open]").contains(document.activeElement) && document.activeElement.matches(":not(dialog)"));
  const wide = await opened.evaluate((element) => element.scrollWidth - element.clientWidth);
  return [...(wide > 0 ? [`it is ${wide} px wider than there is room for`] : []), ...(await axe(page, "dialog[open]"))];
}

async function unfolded(page, by) {
  assert.ok(await by.evaluate((element) => element.getAttribute("aria-expanded") === "true" || element.parentElement.open === true), "it is unfolded");
  return axe(page);
}

async function closed(page, { kind }, by) {
  if (kind === undefined) await page.getByRole("dialog").waitFor({ state: "detached" });
  const opener = await by.elementHandle();
  await page.waitForFunction((element) => document.activeElement === element && element.getAttribute("aria-expanded") !== "true" && element.parentElement.open !== true, opener);
}
