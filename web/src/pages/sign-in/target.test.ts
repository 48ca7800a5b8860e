import { expect, it } from "vitest";
import { inside } from "./target";

it("leads nowhere but into the console", () => {
  expect(inside("/functions/hello?tenant=a")).toBe("/functions/hello?tenant=a");
  for (const to of ["", "https://example.org", "//example.org", "/\\example.org", "javascript:alert(1)", "/sign-in?to=/"]) expect(inside(to)).toBe("/");
});
