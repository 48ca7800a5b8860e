import { expect, it } from "vitest";
import { withUnits } from "./numbers";
import { group, place, withGroups } from "./places";

it("shows places with one digit behind the point, everywhere", () => {
  expect(place({ lat: 40.71, lon: -74 })).toBe("40.7° N, 74.0° W");
  expect(place({ lat: -33.9, lon: 18.42 })).toBe("33.9° S, 18.4° E");
  expect(place(null)).toBe("–");
});

it("shows the nearest cluster of a group first, and leaves out those that it does not know", () => {
  expect(group("ap-south=54,eu-west=7,us-east=inf")).toBe("eu-west 7 ms, ap-south 54 ms");
  expect(group("–")).toBe("–");
});

it("shows the groups in a sentence so too", () => {
  expect(withGroups("203.0.113.0/24 is bound to ap-south by the plan of group ap-south=30,eu-west=84,us-east=inf")).toBe("203.0.113.0/24 is bound to ap-south by the plan of clients at ap-south 30 ms, eu-west 84 ms");
  expect(withGroups("no group of clients")).toBe("no group of clients");
});

it("puts a space between a number and its unit", () => {
  expect(["16MiB", "500ms", "1m30s", "2s"].map((text) => withUnits(text))).toEqual(["16 MiB", "500 ms", "1 min 30 s", "2 s"]);
  expect(withUnits("unlimited")).toBe("unlimited");
});
