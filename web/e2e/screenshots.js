// Pictures of every page, light at both sizes and dark at the large one, into docs/console; into another folder (PICTURES) also dark at the small
// size and light at 4K, which are to be looked at and not kept.
import { mkdir } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { settled } from "./browser.js";
import { INVITATION, leave, PAGES, visit } from "./pages.js";

const ELSEWHERE = process.env.PICTURES;
const FOLDER = ELSEWHERE === undefined ? fileURLToPath(new URL("../../docs/console/", import.meta.url)) : `${ELSEWHERE}/`;
const KINDS = [
  { suffix: "", colorScheme: "light", viewport: { width: 1440, height: 900 } },
  { suffix: "-dark", colorScheme: "dark", viewport: { width: 1440, height: 900 } },
  { suffix: "-small", colorScheme: "light", viewport: { width: 390, height: 844 } },
  ...(ELSEWHERE === undefined ? [] : [
    { suffix: "-small-dark", colorScheme: "dark", viewport: { width: 390, height: 844 } },
    { suffix: "-huge", colorScheme: "light", viewport: { width: 3840, height: 2160 } },
  ]),
];

export async function pictures({ page, browser }) {
  await mkdir(FOLDER, { recursive: true });
  const state = await page.context().storageState();
  for (const { suffix, ...options } of KINDS) {
    const context = await browser.context({ ...options, storageState: state, reducedMotion: "reduce" });
    const one = await context.newPage();
    for (const entry of PAGES) {
      const [name, , prepare] = entry;
      await visit(one, entry);
      await prepare?.(one);
      // Charts measure their place, the map comes after the rest.
      await one.waitForTimeout(700);
      await one.screenshot({ path: `${FOLDER}${name}${suffix}.png` });
      await leave(one);
    }
    await context.close();
    const stranger = await (await browser.context(options)).newPage();
    for (const [name, path] of [["sign-in", "/sign-in"], ["invitation", INVITATION]]) {
      await stranger.goto(path);
      await settled(stranger);
      await stranger.screenshot({ path: `${FOLDER}${name}${suffix}.png` });
    }
    await stranger.context().close();
  }
}
