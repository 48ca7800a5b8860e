// Signing in, with a wrong password first; what an empty network says.
import assert from "node:assert/strict";
import { signIn } from "../browser.js";

// With an identity provider its way is offered; what the controller says of it is changed on its way to the page.
async function withIdentityProvider(page) {
  await page.route((url) => url.pathname === "/v1/login", async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, json: { ...(await answer.json()), oidc: true } });
  });
  await page.goto("/sign-in");
  const link = page.getByRole("link", { name: "Sign in with your organisation" });
  await link.waitFor();
  assert.equal(await link.getAttribute("href"), "/v1/oidc/login");
  await page.unrouteAll({ behavior: "ignoreErrors" });
}

export async function run({ page, browser, password }) {
  // Whoever is not signed in is led to the page for it, and nothing was refused on the way.
  await page.goto("/functions");
  await page.waitForURL(/\/sign-in\?to=/);
  await page.getByLabel("Password").fill("not the password");
  assert.equal(await page.getByRole("link", { name: "Sign in with your organisation" }).count(), 0, "no identity provider is set up here");
  await browser.expecting(/^\/v1\/session$/, async () => {
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByRole("alert").getByText("FDN-2001").waitFor();
  });
  await withIdentityProvider(page);
  await signIn(page, password);
  await page.getByRole("heading", { name: "First steps" }).waitFor();
  assert.equal(await page.title(), "Overview · FDN");
  const session = await page.context().cookies();
  assert.ok(session.some((cookie) => cookie.httpOnly), "the session is a cookie that no script reads");
}
