import { expect, it } from "vitest";
import { hostOf, isClient, recordName, textsOf } from "./addresses";

it("knows addresses and prefixes", () => {
  for (const good of ["192.0.2.7", "192.0.2.0/24", "::1", "2001:db8::/32", "::ffff:192.0.2.1", "2001:db8:0:0:0:0:0:1"]) expect(isClient(good)).toBe(true);
  for (const bad of ["", "192.0.2", "192.0.2.256", "192.0.2.0/33", "2001:db8::/129", "1:2:3", "a::b::c", "hello", "192.0.2.0/24/1"]) expect(isClient(bad)).toBe(false);
});

it("completes names", () => {
  expect(hostOf("hello", "fn.test")).toBe("hello.fn.test");
  expect(hostOf(" Hello.FN.test. ", "fn.test")).toBe("hello.fn.test");
  expect(hostOf("", "fn.test")).toBe("");
});

it("completes the names of records, and reads their values", () => {
  expect(recordName("_acme-challenge.hello", "fn.test")).toBe("_acme-challenge.hello.fn.test");
  expect(recordName("_Acme-Challenge.hello.fn.test.", "fn.test")).toBe("_acme-challenge.hello.fn.test");
  expect(recordName("fn.test", "fn.test")).toBe("fn.test");
  expect(recordName(" ", "fn.test")).toBe("");
  expect(textsOf("one\n two words \n\none\n")).toEqual(["one", "two words"]);
});
