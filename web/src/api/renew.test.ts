import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { api as Api, setSession as SetSession } from "./client";

const NAME = "/v1/apps/{app}/rollback";
const PARAMS = { params: { path: { app: "hello" } }, body: {} } as const;

/** What reached the controller: method, path, token, body. */
let seen: string[] = [];
/** The browser's session, as the controller knows it. */
let cookie = { user: "ann", csrf: "new" };
let refusal = "FDN-2012";
let api: typeof Api;
let setSession: typeof SetSession;

async function controller(request: Request): Promise<Response> {
  const { pathname } = new URL(request.url);
  const csrf = request.headers.get("x-fdn-csrf");
  seen.push(`${request.method} ${pathname} ${csrf ?? "-"} ${await request.text()}`);
  if (pathname === "/v1/login") return Response.json({ oidc: false, session: { ...cookie, expires_at: 0, tenants: [] } });
  return csrf === cookie.csrf ? Response.json({ app: "hello" }) : Response.json({ code: refusal, detail: "refused" }, { status: 403 });
}

beforeEach(async () => {
  [seen, cookie, refusal] = [[], { user: "ann", csrf: "new" }, "FDN-2012"];
  vi.stubGlobal("fetch", controller);
  // Browsers know where a page is from; the client takes the class when it is made.
  vi.stubGlobal("Request", class extends Request {
    constructor(input: RequestInfo | URL, init?: RequestInit) {
      super(typeof input === "string" ? new URL(input, "http://controller") : input, init);
    }
  });
  vi.resetModules();
  ({ api, setSession } = await import("./client"));
  setSession({ user: "ann", csrf: "old" });
});

afterEach(() => vi.unstubAllGlobals());

it("makes a change again with the session that another tab gave the browser", async () => {
  const { data } = await api.POST(NAME, PARAMS);
  expect(data).toEqual({ app: "hello" });
  await api.POST(NAME, PARAMS);
  const path = "/v1/apps/hello/rollback";
  expect(seen).toEqual([`POST ${path} old {}`, "GET /v1/login - ", `POST ${path} new {}`, `POST ${path} new {}`]);
});

it("makes no change in the name of somebody else", async () => {
  cookie = { user: "bob", csrf: "new" };
  await expect(api.POST(NAME, PARAMS)).rejects.toMatchObject({ status: 403, code: "FDN-2012" });
  expect(seen).toHaveLength(2);
});

it("leaves other refusals alone", async () => {
  refusal = "FDN-2003";
  await expect(api.POST(NAME, PARAMS)).rejects.toMatchObject({ status: 403, code: "FDN-2003" });
  expect(seen).toHaveLength(1);
});
