import { expect, it } from "vitest";
import type { Schemas } from "@/api/client";
import { byNode, colours, joinCommand, quoted, slicesOf, used } from "./figures";

it("computes what is taken", () => {
  expect(used(4000, 1000)).toBe(0.75);
  expect(used(0, 0)).toBe(0);
  expect(used(10, 20)).toBe(0);
});

it("lays slices side by side", () => {
  const device: Schemas["DeviceStatus"] = {
    state: "in_service", id: "GPU-1", kind: "gpu", model: "H200", memory_mib: 1000, bound_mib: 750,
    slices: [{ app: "b", instance: "i2", memory_mib: 250 }, { app: "a", instance: "i1", memory_mib: 500, cores: 30 }],
  };
  expect(slicesOf(device).map((slice) => [slice.app, slice.from, slice.to])).toEqual([["a", 0, 0.5], ["b", 0.5, 0.75]]);
  expect(slicesOf({ ...device, slices: [] })).toEqual([]);
});

it("gives an app the same colour each time", () => {
  const device = (apps: string[]): Schemas["DeviceStatus"] => ({
    state: "in_service", id: apps.join(), kind: "gpu", model: "H200", memory_mib: 1000, bound_mib: 0, slices: apps.map((app) => ({ app, instance: app, memory_mib: 1 })),
  });
  expect([...colours([device(["b", "c"]), device(["a", "b"])])]).toEqual([["a", 1], ["b", 2], ["c", 3]]);
});

it("writes a command that a shell reads as it is meant", () => {
  expect(quoted("a b")).toBe("'a b'");
  expect(quoted("it's")).toBe(String.raw`'it'\''s'`);
  expect(joinCommand("https://c.example", "tok_1", "eu", "")).toBe("printf %s tok_1 | fdn-edge-agent join https://c.example --token-file - --cluster eu\nfdn-edge-agent run");
  expect(joinCommand("http://c.example:8600", "t", "eu", "n1")).toContain(" --node n1 --allow-plain-http\n");
  expect(joinCommand("http://127.0.0.1:8600", "t", "eu", "")).not.toContain("--allow-plain-http");
});

it("puts things together by their node", () => {
  expect(byNode([["b", 1], ["a", 2], ["b", 3]])).toEqual([["b", [1, 3]], ["a", [2]]]);
  expect(byNode([])).toEqual([]);
});
