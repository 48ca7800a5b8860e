// Writes the documentation of the repository as pages beside the console that was just built. Fails where a link leads nowhere.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { documents, kindIn, placeOf } from "../docs/files.js";
import { rendered, site } from "../docs/site.js";

const repository = fileURLToPath(new URL("../..", import.meta.url));
const out = fileURLToPath(new URL("../node_modules/.dist/", import.meta.url));
const manifest = JSON.parse(readFileSync(join(out, ".vite/manifest.json"), "utf8"));
const entry = manifest["src/docs/main.ts"];

const made = site(documents(repository), kindIn(repository));
for (const line of made.wrong) console.error(line);
if (made.wrong.length > 0) process.exit(1);

const assets = { js: `/${entry.file}`, css: (entry.css ?? []).map((file) => `/${file}`) };
for (const [address, content] of rendered(made, (path) => readFileSync(join(repository, path)), assets)) {
  const file = placeOf(join(out, "docs"), address);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, content);
}
