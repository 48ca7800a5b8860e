// Every page in light and dark: nothing serious for axe, nothing in the browser's console, nothing wider than the screen.
import { axe } from "./browser.js";
import { leave, PAGES, visit } from "./pages.js";

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
          const wide = await one.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
          if (wide > 0) found.push(`${name}: the page is ${wide} px wider than the screen`);
          await leave(one);
        }
        if (found.length > 0) throw new Error(found.join("\n"));
      });
      await context.close();
    }
  }
  await step("the first view", () => quick(page, browser));
}

// Told and not judged: the machine that runs tests may be busy. From the beginning of the navigation until the heading is there; the
// number of requests after each other that it takes is judged, since it does not depend on the machine: the page, its scripts, who is
// there and the page's own code at once.
async function quick(page, browser) {
  const context = await browser.context({ viewport: { width: 1440, height: 900 }, storageState: await page.context().storageState() });
  const times = [];
  for (let visit = 0; visit < 5; visit += 1) {
    const one = await context.newPage();
    await one.goto("/functions", { waitUntil: "commit" });
    await one.getByRole("heading", { level: 1 }).waitFor();
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
  console.log(`      first view after ${times.map((time) => `${Math.round(time)} ms`).join(", ")}`);
}
