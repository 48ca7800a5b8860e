import { expect, it } from "vitest";
import { ApiError } from "@/api/problem";
import { nameOf, nameProblem } from "./name";
import { accepted, kindOf, refused, underway } from "./pipeline";

const states = (steps: { id: string; state: string }[]) => Object.fromEntries(steps.map((step) => [step.id, step.state]));

it("shows where an upload is", () => {
  expect(states(underway("component", 0.5))).toMatchObject({ upload: "running", manifest: "waiting", probe: "waiting" });
  expect(states(underway("component", 1))).toMatchObject({ upload: "passed", admit: "running", probe: "waiting" });
});

it("shows what each step found", () => {
  const steps = accepted("component", [{ step: "size", result: "49 kB", took: 0.1 }, { step: "licence", result: "found", took: 1 }]);
  expect(states(steps)).toMatchObject({ upload: "passed", size: "passed", licence: "passed", probe: "skipped", publish: "passed" });
  expect(steps.find((step) => step.id === "size")?.result).toBe("49 kB");
  expect(steps.at(-1)?.id).toBe("publish");
});

it("shows the steps of an image as its own", () => {
  const found = ["signature", "format", "config", "digest", "platform"].map((each) => ({ step: each, result: each, took: 1 }));
  const steps = accepted("image", found);
  expect(steps.every((step) => step.state === "passed")).toBe(true);
  expect(steps.map((step) => step.id)).not.toContain("probe");
});

it("stops at the step that the controller names", () => {
  const steps = refused("component", new ApiError(422, { code: "FDN-1005", detail: "it exports nothing", step: "exports" }));
  expect(states(steps)).toMatchObject({ format: "passed", exports: "failed", imports: "skipped", publish: "skipped" });
  expect(steps.find((step) => step.state === "failed")?.result).toBe("it exports nothing");
  // One code, several steps: an image of another processor is a well-formed one.
  const image = refused("image", new ApiError(422, { code: "FDN-1020", step: "platform" }));
  expect(states(image)).toMatchObject({ format: "passed", config: "passed", digest: "passed", platform: "failed", publish: "skipped" });
  // A step of a newer controller is shown where it is, before what is stored.
  expect(refused("component", new ApiError(422, { step: "licence" })).map((step) => `${step.id} ${step.state}`).slice(-2)).toEqual(["licence failed", "publish skipped"]);
});

it("shows what belongs to no step where it was found", () => {
  expect(states(refused("component", new ApiError(0, {})))).toMatchObject({ upload: "failed", admit: "skipped" });
  expect(states(refused("component", new ApiError(409, { code: "FDN-2004" })))).toMatchObject({ upload: "passed", admit: "failed", manifest: "skipped" });
  expect(states(refused("component", new ApiError(500, {})))).toMatchObject({ upload: "passed", probe: "skipped", publish: "failed" });
});

it("knows what a file will be judged as", () => {
  expect([kindOf("hello.wasm", ""), kindOf("thumbs.tar.gz", ""), kindOf("thumbs.tar", "runtime = \"wasm\""), kindOf("name.txt", "memory = \"1MiB\"\nruntime = \"docker\"")]).toEqual(["component", "image", "component", "image"]);
});

it("makes names of files, and tells what is wrong with others", () => {
  expect(nameOf("My_Function v2.wasm")).toBe("my-function-v2");
  expect(nameOf("--.wasm")).toBe("");
  expect(nameProblem("hello-2")).toBeNull();
  expect([nameProblem(""), nameProblem("Hello"), nameProblem("a-"), nameProblem("a".repeat(64))].every((problem) => problem !== null)).toBe(true);
});
