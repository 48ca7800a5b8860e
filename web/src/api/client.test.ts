import { expect, it } from "vitest";
import { nextCursor } from "./client";
import { advice, ApiError, problemOf } from "./problem";
import { may, signedIn, type WhoAmI } from "./session";

it("reads the cursor of the next page", () => {
  expect(nextCursor('</v1/apps?limit=2&cursor=ab%3Dc>; rel="next"')).toBe("ab=c");
  expect(nextCursor(null)).toBeNull();
  expect(nextCursor('</v1/apps>; rel="prev"')).toBeNull();
});

it("reads problem documents, and what is none", () => {
  const error = problemOf(422, JSON.stringify({ code: "FDN-2031", title: "no", detail: "it exports nothing", request_id: "r1" }), null);
  expect([error.code, error.message, error.requestId, error.retriable, error.step]).toEqual(["FDN-2031", "it exports nothing", "r1", false, null]);
  expect(problemOf(422, JSON.stringify({ code: "FDN-1020", step: "platform" }), null).step).toBe("platform");
  const other = problemOf(502, "<html>", "r2");
  expect([other.code, other.requestId, other.retriable]).toEqual(["HTTP 502", "r2", true]);
  expect(advice(new ApiError(412, {}))).toContain("Load it again");
});

it("knows who is signed in, and that nobody is", () => {
  const who: WhoAmI = { user: "ann", expires_at: 0, tenants: [] };
  expect(signedIn({ oidc: false, session: who })).toBe(who);
  for (const session of [null, undefined]) {
    expect(() => signedIn({ oidc: true, ...(session === undefined ? {} : { session }) })).toThrow(expect.objectContaining({ status: 401 }));
  }
});

it("knows what roles may do", () => {
  const who = (role: "owner" | "viewer", network?: "admin" | "operator"): WhoAmI =>
    ({ user: "ann", expires_at: 0, network_role: network ?? null, tenants: [{ id: "t1", tenant: "shop", role, suspended: false }] });
  expect(may(who("viewer"), "look", "shop")).toBe(true);
  expect(may(who("viewer"), "deploy", "shop")).toBe(false);
  expect(may(who("owner"), "read-billing", "t1")).toBe(true);
  expect(may(who("owner"), "read-billing", "other")).toBe(false);
  expect(may(who("owner"), "look-machines")).toBe(false);
  expect(may(who("viewer", "operator"), "look-machines")).toBe(true);
  expect(may(who("viewer", "operator"), "deploy", "shop")).toBe(false);
  expect(may(who("viewer", "admin"), "administer")).toBe(true);
});
