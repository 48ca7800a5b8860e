// Every page in light and dark: nothing serious for axe, nothing in the browser's console, nothing wider than the screen.
import assert from "node:assert/strict";
import { axe, settled } from "./browser.js";
import { INVITATION, leave, PAGES, visit } from "./pages.js";

const wider = (page) => page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);

export async function look({ page, browser }, step) {
  const state = await page.context().storageState();
  for (const colorScheme of ["light", "dark"]) {
    for (const viewport of [{ width: 1440, height: 900 }, { width: 360, height: 740 }, { width: 3840, height: 2160 }]) {
      const context = await browser.context({ colorScheme, viewport, storageState: state, reducedMotion: "reduce" });
      const one = await context.newPage();
      await step(`every page, ${colorScheme}, ${viewport.width} wide`, async () => {
        const found = [];
        for (const entry of PAGES) {
          const [name] = entry;
          const before = browser.faults.length;
          try {
            await visit(one, entry);
          } catch (error) {
            found.push(`${name}: ${error.message}`);
            continue;
          }
          found.push(...browser.faults.slice(before).map((fault) => `${name}: ${fault}`));
          found.push(...(await axe(one)).map((fault) => `${name}: ${fault}`));
          const wide = await wider(one);
          if (wide > 0) found.push(`${name}: the page is ${wide} px wider than the screen`);
          await leave(one);
        }
        if (found.length > 0) throw new Error(found.join("\n"));
      });
      await context.close();
      await step(`the sign-in page, ${colorScheme}, ${viewport.width} wide`, () => signedOut(browser, { colorScheme, viewport, reducedMotion: "reduce" }));
    }
  }
  await step("the first view", () => quick(page, browser));
}

// What somebody sees who is not signed in: the page, with an identity provider too, after a password that is wrong, and with an invitation.
async function signedOut(browser, options) {
  const context = await browser.context(options);
  const page = await context.newPage();
  const found = [];
  const before = browser.faults.length;
  const judge = async (when) => {
    found.push(...(await axe(page)).map((fault) => `${when}: ${fault}`));
    const wide = await wider(page);
    if (wide > 0) found.push(`${when}: the page is ${wide} px wider than the screen`);
  };
  await page.route((url) => url.pathname === "/v1/login", async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, json: { ...(await answer.json()), oidc: true } });
  });
  await page.goto("/sign-in");
  await settled(page);
  await page.getByRole("link", { name: "Sign in with your organisation" }).waitFor();
  await judge("at first");
  await page.getByLabel("Password").fill("not the password");
  await browser.expecting(/^\/v1\/session$/, async () => {
    await page.getByLabel("Password").press("Enter");
    await page.getByRole("alert").waitFor();
  });
  await judge("after a wrong password");
  await page.goto(INVITATION);
  await page.getByRole("heading", { name: "Welcome, ann" }).waitFor();
  await judge("with an invitation");
  await context.close();
  assert.deepEqual([...found, ...browser.faults.slice(before)], []);
}

// Usable within a second on this machine, by the middle one of five visits: from the beginning of the navigation until the heading is there and
// nothing is loading. Requests follow each other no more often than they must, however fast the machine: the page, its scripts, who is there and the
// page's own code at once.
const FIRST_VIEW = 1000;

async function quick(page, browser) {
  const context = await browser.context({ viewport: { width: 1440, height: 900 }, storageState: await page.context().storageState() });
  const times = [];
  for (let visit = 0; visit < 5; visit += 1) {
    const one = await context.newPage();
    await one.goto("/functions", { waitUntil: "commit" });
    await settled(one);
    times.push(await one.evaluate(() => performance.now()));
    const late = await one.evaluate(() => {
      const parts = performance.getEntriesByType("resource");
      const session = parts.find((part) => new URL(part.name).pathname === "/v1/login");
      return parts.filter((part) => part.name.endsWith(".js") && session !== undefined && part.startTime > session.responseEnd).map((part) => part.name);
    });
    if (late.length > 0) throw new Error(`code of the first view is asked for only after the session is there: ${late.join(", ")}`);
    await one.close();
  }
  await context.close();
  const middle = [...times].sort((a, b) => a - b)[2];
  console.log(`      first view after ${times.map((time) => `${Math.round(time)} ms`).join(", ")}`);
  assert.ok(middle < FIRST_VIEW, `the first view is usable after ${Math.round(middle)} ms, later than ${FIRST_VIEW} ms`);
}
