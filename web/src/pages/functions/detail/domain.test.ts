import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { broughtBack as BroughtBack } from "./domain";

/** What reached the controller: path and body. */
let seen: string[] = [];
let proof = true;
let broughtBack: typeof BroughtBack;

async function controller(request: Request): Promise<Response> {
  const { pathname } = new URL(request.url);
  seen.push(`${request.method} ${pathname} ${await request.text()}`);
  const verify = pathname.endsWith("/verify");
  if (verify && !proof) return Response.json({ code: "FDN-2025", detail: "there is no such record" }, { status: 409 });
  return Response.json({ app: "hello", host: "api.example.org", state: verify ? "verified" : "pending" });
}

beforeEach(async () => {
  [seen, proof] = [[], true];
  vi.stubGlobal("fetch", controller);
  // Browsers know where a page is from; the client takes the class when it is made.
  vi.stubGlobal("Request", class extends Request {
    constructor(input: RequestInfo | URL, init?: RequestInit) {
      super(typeof input === "string" ? new URL(input, "http://controller") : input, init);
    }
  });
  vi.resetModules();
  ({ broughtBack } = await import("./domain"));
});

afterEach(() => vi.unstubAllGlobals());

const ADD = 'POST /v1/apps/hello/domains {"host":"api.example.org"}';
const VERIFY = "POST /v1/apps/hello/domains/api.example.org/verify ";
const removed = { app: "hello", host: "api.example.org" };

it("has a domain that had been proven verified again", async () => {
  for (const state of ["verified", "failing"] as const) {
    seen = [];
    expect(await broughtBack({ ...removed, state })).toMatchObject({ state: "verified" });
    expect(seen).toEqual([ADD, VERIFY]);
  }
});

it("leaves one that waits for its proof waiting", async () => {
  expect(await broughtBack({ ...removed, state: "pending" })).toMatchObject({ state: "pending" });
  expect(seen).toEqual([ADD]);
});

it("says so when the proof is gone", async () => {
  proof = false;
  await expect(broughtBack({ ...removed, state: "verified" })).rejects.toMatchObject({ message: "there is no such record" });
  expect(seen).toEqual([ADD, VERIFY]);
});
