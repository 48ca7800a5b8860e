import { afterEach, beforeEach, expect, it, vi } from "vitest";
import type { setTraffic as SetTraffic } from "./traffic";

/** What reached the controller: path, tag, body. */
let seen: string[] = [];
/** The split's present tag. */
let present = '"30"';
let setTraffic: typeof SetTraffic;

async function controller(request: Request): Promise<Response> {
  const expected = request.headers.get("if-match");
  seen.push(`${request.method} ${new URL(request.url).pathname} ${expected ?? "-"} ${await request.text()}`);
  if (expected !== null && expected !== present) return Response.json({ code: "FDN-2013", title: "changed", detail: `it is at ${present} now`, request_id: "r1" }, { status: 412 });
  present = '"40"';
  return Response.json({ app: "hello", current: 2, revision: 40, traffic: {} }, { headers: { etag: present } });
}

beforeEach(async () => {
  [seen, present] = [[], '"30"'];
  vi.stubGlobal("fetch", controller);
  // Browsers know where a page is from; the client takes the class when it is made.
  vi.stubGlobal("Request", class extends Request {
    constructor(input: RequestInfo | URL, init?: RequestInit) {
      super(typeof input === "string" ? new URL(input, "http://controller") : input, init);
    }
  });
  vi.resetModules();
  ({ setTraffic } = await import("./traffic"));
});

afterEach(() => vi.unstubAllGlobals());

const PATH = "PUT /v1/apps/hello/traffic";

it("splits what was shown, and takes it back from what that made", async () => {
  const { tag } = await setTraffic("hello", { pin: true }, '"30"');
  await setTraffic("hello", { pin: false }, tag);
  expect(seen).toEqual([`${PATH} "30" {"pin":true}`, `${PATH} "40" {"pin":false}`]);
});

it("changes no split that somebody else has made since", async () => {
  present = '"35"';
  await expect(setTraffic("hello", { split: [] }, '"30"')).rejects.toMatchObject({
    status: 412, code: "FDN-2013", requestId: "r1", message: "The calls of hello were split in another way meanwhile, so nothing was changed.",
  });
  expect(seen).toEqual([`${PATH} "30" {"split":[]}`]);
});
