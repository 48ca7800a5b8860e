import { expect, it } from "vitest";
import { ApiError } from "@/api/problem";
import { UploadKeys } from "./send";

const file = (text: string) => new File([text], "hello.wasm", { lastModified: 1 });
const upload = { app: "hello", component: file("a"), manifest: null, labels: null, tenant: undefined };

it("keeps the key of an upload until it is answered", () => {
  const keys = new UploadKeys();
  const key = keys.of(upload);
  for (const error of [new ApiError(0, {}), new ApiError(502, {}), new ApiError(409, { code: "FDN-2015" }), new ApiError(429, {})]) {
    keys.ended(error);
    // Chosen again, the same file is another object.
    expect(keys.of({ ...upload, component: file("a") })).toBe(key);
  }
  keys.ended(null);
  expect(keys.of(upload)).not.toBe(key);
});

it("gives what is another upload a key of its own", () => {
  const keys = new UploadKeys();
  const seen = new Set([keys.of(upload)]);
  for (const change of [{ app: "other" }, { component: file("ab") }, { manifest: "memory = \"1MiB\"" }, { tenant: "shop" }]) seen.add(keys.of({ ...upload, ...change }));
  expect(seen.size).toBe(5);
  for (const code of ["FDN-2014", "FDN-2016"]) {
    const key = keys.of(upload);
    keys.ended(new ApiError(409, { code }));
    expect(keys.of(upload)).not.toBe(key);
  }
});
