// The console in a real browser, against a network of its own: `node e2e/run.js`; with `story` only what an administrator does with it, without the
// looks at every page, with `look`, `dialogs`, `lists` or `states` one of these only; with `screenshots` it takes a picture of every page.
import { readdirSync } from "node:fs";
import { axe, open } from "./browser.js";
import { serve } from "./console.js";
import { dialogs } from "./dialogs.js";
import { start } from "./network.js";
import { lists } from "./lists.js";
import { look } from "./look.js";
import { pictures } from "./screenshots.js";
import { states } from "./states.js";

const stories = readdirSync(new URL("story/", import.meta.url)).filter((name) => name.endsWith(".js")).sort();
const LOOKS = { look, dialogs, lists, states };
const wanted = process.argv[2];
if (wanted !== undefined && !["story", "screenshots", ...Object.keys(LOOKS)].includes(wanted)) throw new Error(`${wanted} is no part of it`);
let failed = 0;
let passed = 0;

async function step(name, run) {
  const begin = Date.now();
  try {
    await run();
    passed += 1;
    console.log(`ok    ${name} (${((Date.now() - begin) / 1000).toFixed(1)} s)`);
    return true;
  } catch (error) {
    failed += 1;
    console.log(`FAIL  ${name}\n${error.stack ?? error}`);
    return false;
  }
}

// Each page that a story stands on is looked at once for faults of accessibility, when it is left.
function lookedAt(page) {
  const seen = new Set();
  const found = [];
  let spent = 0;
  const look = async () => {
    const where = new URL(page.url());
    if (!where.protocol.startsWith("http") || seen.has(where.pathname)) return;
    seen.add(where.pathname);
    const begin = Date.now();
    found.push(...(await axe(page)).map((fault) => `${where.pathname}: ${fault}`));
    spent += Date.now() - begin;
  };
  const { goto } = page;
  page.goto = async (...to) => {
    await look();
    return goto.apply(page, to);
  };
  return { look, faults: () => found.splice(0), told: () => `${seen.size} pages looked at in ${(spent / 1000).toFixed(1)} s` };
}

async function story(world) {
  const looked = lookedAt(world.page);
  for (const name of stories) {
    const { run } = await import(new URL(`story/${name}`, import.meta.url).href);
    const before = world.browser.faults.length;
    const good = await step(name.replace(/\.js$/, ""), async () => {
      await run(world);
      await looked.look();
      const faults = [...world.browser.faults.slice(before), ...looked.faults()];
      if (faults.length > 0) throw new Error(faults.join("\n"));
    });
    // What comes later builds on what came before.
    if (!good) {
      await world.page.screenshot({ path: "e2e-failed.png", fullPage: true });
      console.log(`      the page as it was: web/e2e-failed.png, ${world.page.url()}`);
      return false;
    }
  }
  console.log(`      ${looked.told()}`);
  return true;
}

const network = await start();
const served = await serve(network.url);
const browser = await open(served.url);
try {
  const context = await browser.context({ viewport: { width: 1440, height: 900 }, colorScheme: "light", reducedMotion: "reduce" });
  const page = await context.newPage();
  const world = { page, browser, password: network.password, url: served.url };
  const whole = await story(world);
  if (whole && wanted === "screenshots") await step("screenshots", () => pictures(world));
  else if (whole && wanted !== "story") {
    for (const [name, part] of Object.entries(LOOKS)) if (wanted === undefined || wanted === name) await part(world, step);
  }
} finally {
  await browser.close();
  await served.stop();
  await network.stop();
}
console.log(`test result: ${failed === 0 ? "ok" : "FAILED"}. ${passed} passed; ${failed} failed; 0 ignored;`);
process.exitCode = failed === 0 && passed > 0 ? 0 : 1;
