import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { rollBack as RollBack, wayBack as WayBack } from "./rollback";

/** What reached the controller: path, tag, body. */
let seen: string[] = [];
/** The app's present tag. */
let present = '"3-30"';
let rollBack: typeof RollBack;
let wayBack: typeof WayBack;

async function controller(request: Request): Promise<Response> {
  const expected = request.headers.get("if-match");
  seen.push(`${request.method} ${new URL(request.url).pathname} ${expected ?? "-"} ${await request.text()}`);
  if (expected !== null && expected !== present) return Response.json({ code: "FDN-2013", title: "changed", detail: `it is at ${present} now`, request_id: "r1" }, { status: 412 });
  present = '"2-40"';
  return Response.json({ app: "hello", version: 2 }, { headers: { etag: present } });
}

beforeEach(async () => {
  [seen, present] = [[], '"3-30"'];
  vi.stubGlobal("fetch", controller);
  // Browsers know where a page is from; the client takes the class when it is made.
  vi.stubGlobal("Request", class extends Request {
    constructor(input: RequestInfo | URL, init?: RequestInit) {
      super(typeof input === "string" ? new URL(input, "http://controller") : input, init);
    }
  });
  vi.resetModules();
  ({ rollBack, wayBack } = await import("./rollback"));
});

afterEach(() => vi.unstubAllGlobals());

const PATH = "POST /v1/apps/hello/rollback";

it("goes back from what was shown, and the same way again", async () => {
  const answer = await rollBack("hello", null, '"3-30"');
  expect(answer).toMatchObject({ value: { version: 2 }, tag: '"2-40"' });
  await wayBack("hello", 3, answer)?.();
  expect(seen).toEqual([`${PATH} "3-30" {"version":null}`, `${PATH} "2-40" {"version":3}`]);
});

it("takes a deploy back to the version before it", async () => {
  await wayBack("hello", 2, { value: { version: 3 }, tag: '"3-30"' })?.();
  expect(seen).toEqual([`${PATH} "3-30" {"version":2}`]);
});

it("takes nothing back that somebody else has changed since", async () => {
  present = '"4-35"';
  await expect(wayBack("hello", 2, { value: { version: 3 }, tag: '"3-30"' })?.()).rejects.toMatchObject({
    status: 412, code: "FDN-2013", requestId: "r1", message: "Another version of hello was made current meanwhile, so nothing was changed.",
  });
  expect(seen).toEqual([`${PATH} "3-30" {"version":2}`]);
});

it("has no way back from what changed nothing or was the first", () => {
  expect(wayBack("hello", 3, { value: { version: 3 }, tag: '"3-30"' })).toBeUndefined();
  expect(wayBack("hello", undefined, { value: { version: 1 }, tag: '"1-10"' })).toBeUndefined();
});
