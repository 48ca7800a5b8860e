// What a first visit has to load: the scripts of the entry and everything it imports statically, compressed. Fails above the budget.
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const BUDGET = 250_000;
// The entry of the documentation's pages, which loads nothing of the console.
const DOCS = "src/docs/main.ts";
const DOCS_BUDGET = 20_000;
const dist = new URL("../dist/", import.meta.url);
const manifest = JSON.parse(readFileSync(new URL(".vite/manifest.json", dist), "utf8"));

const files = new Set();
function add(key) {
  const part = manifest[key];
  if (part === undefined || files.has(part.file)) return;
  files.add(part.file);
  for (const next of part.imports ?? []) add(next);
}

// The first page that somebody sees is the entry with the sign-in page or the overview; both are counted.
for (const [key, part] of Object.entries(manifest)) if (part.isEntry && key !== DOCS) add(key);
for (const page of ["src/pages/sign-in/index.tsx", "src/pages/overview/index.tsx"]) add(page);

let total = 0;
for (const file of files) {
  const size = gzipSync(readFileSync(new URL(file, dist))).length;
  total += size;
  console.log(`${String(size).padStart(8)}  ${file}`);
}
console.log(`${String(total).padStart(8)}  of ${BUDGET} bytes of JavaScript, compressed, before the first page is usable`);
if (files.size === 0 || total > BUDGET) process.exit(1);

const docs = gzipSync(readFileSync(new URL(manifest[DOCS].file, dist))).length;
console.log(`${String(docs).padStart(8)}  of ${DOCS_BUDGET} bytes of JavaScript, compressed, on a page of the documentation`);
if ((manifest[DOCS].imports ?? []).length > 0 || docs > DOCS_BUDGET) process.exit(1);
