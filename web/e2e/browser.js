// A browser that fails the tests on anything that should not be: console errors and warnings, requests to other hosts, faults in scripts.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

function executable() {
  for (const name of ["chromium", "chromium-browser", "google-chrome"]) {
    try {
      return execFileSync("which", [name], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
    } catch {
      // Not this one.
    }
  }
  throw new Error("no chromium is installed; 'make install-test' installs Debian's");
}

export async function open(url) {
  const browser = await chromium.launch({ executablePath: executable(), args: ["--no-sandbox", "--disable-dev-shm-usage"] });
  const faults = [];
  // Answers that a step means to get; a browser logs each status from 400 on as an error.
  const expected = [];
  const allowed = (where) => expected.some(({ path }) => new URL(where, url).pathname.match(path));
  const context = async (options) => {
    const made = await browser.newContext({ baseURL: url, acceptDownloads: true, ...options });
    made.setDefaultTimeout(60_000);
    // The policy forbids scripts that the page does not send itself; axe is put in by the browser's own protocol.
    await made.addInitScript(AXE);
    made.on("console", (message) => {
      if (!["error", "warning"].includes(message.type())) return;
      const where = message.location().url;
      if (/^Failed to load resource/.test(message.text()) && allowed(where)) return;
      faults.push(`console ${message.type()} on ${message.page()?.url() ?? ""}: ${message.text()} (${where})`);
    });
    made.on("weberror", (error) => faults.push(`fault in a script: ${error.error().stack ?? error.error().message}`));
    made.on("request", (request) => {
      const { origin, protocol } = new URL(request.url());
      if (protocol.startsWith("http") && origin !== new URL(url).origin) faults.push(`a request to another host: ${request.url()}`);
    });
    return made;
  };
  return {
    context,
    faults,
    // Runs a step in which answers of these paths may be errors.
    async expecting(path, step) {
      const entry = { path };
      expected.push(entry);
      try {
        return await step();
      } finally {
        expected.splice(expected.indexOf(entry), 1);
      }
    },
    close: () => browser.close(),
  };
}

// Serious and critical faults of accessibility on the page as it is, or in a part of it.
export async function axe(page, part) {
  const { violations } = await page.evaluate((inside) => window.axe.run(inside ?? document, { resultTypes: ["violations"], preload: false, runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] }), part);
  return violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, help, nodes }) => `${id}: ${help}\n      ${nodes.slice(0, 4).map((node) => `${node.html.slice(0, 160)} ${node.any[0]?.message ?? ""}`).join("\n      ")}`);
}

export async function signIn(page, password, to = "/", user = "admin") {
  await page.goto(`/sign-in?to=${encodeURIComponent(to)}`);
  await page.getByLabel("User").fill(user);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await page.waitForURL((url) => url.pathname === new URL(to, "http://x").pathname);
}

// Waits until nothing is loading any more.
export async function settled(page) {
  await page.locator("h1").first().waitFor();
  await page.waitForFunction(() => document.querySelector(".skeleton") === null);
}
