import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import MiniSearch from "minisearch";
import { expect, onTestFinished, test } from "vitest";
import { found } from "../src/docs/found";
import { documents, kindIn, placeOf } from "./files.js";
import { SEARCH } from "./search.js";
import { addressOf, index, rendered, site, slugs } from "./site.js";

const repository = fileURLToPath(new URL("../..", import.meta.url));
const assets = { js: "/assets/docs.js", css: ["/assets/docs.css"] };

test("every link and anchor of the documentation leads somewhere", () => {
  const texts = documents(repository);
  expect(texts.size).toBeGreaterThan(40);
  expect(site(texts, kindIn(repository)).wrong).toEqual([]);
});

test("a link that leads nowhere is named with its page", () => {
  const texts = new Map([
    ["README.md", "# Start\n\n[a](docs/a.md) [here](#start) [gone](docs/b.md) [no heading](docs/a.md#none) [heading](docs/a.md#two-words) [out](https://x.test/y) [root](/docs/a)"],
    ["docs/a.md", "# A\n\n## Two `words`!\n\n[back](../README.md#start) [code](../src/x.rs) [folder](../src)"],
  ]);
  const kinds = { "src/x.rs": "file", src: "folder" };
  expect(site(texts, (path) => kinds[path]).wrong).toEqual([
    "README.md: docs/b.md: there is no such file",
    "README.md: docs/a.md#none: there is no such heading",
    "README.md: /docs/a: a link must be relative",
  ]);
});

test("headings become anchors as GitHub makes them", () => {
  const slug = slugs();
  expect([slug("Two `words`, and more"), slug("FDN-1001"), slug("Größe"), slug("FDN-1001")]).toEqual(["two-words-and-more", "fdn-1001", "größe", "fdn-1001-1"]);
});

test("pages, what they show of the repository, and what leads nowhere", () => {
  const texts = new Map([
    ["README.md", "# Start\n\n[a](docs/adr/a.md#b) [code](src/x.rs) [folder](src) [own](functions/hello) <script>alert(1)</script>"],
    ["docs/adr/a.md", "# A\n\n## B\n"],
    ["functions/hello/README.md", "# hello\n"],
  ]);
  const kinds = { "src/x.rs": "file", src: "folder", "functions/hello": "folder" };
  const all = rendered(site(texts, (path) => kinds[path]), () => "fn <x>() {}", assets);
  expect([...all.keys()]).toEqual(["index.html", "adr/a.html", "functions/hello/index.html", "files/src/x.rs.html", "search.json"]);
  const start = all.get("index.html");
  expect(start).toContain('<a href="/docs/adr/a.html#b">a</a>');
  expect(start).toContain('<a href="/docs/files/src/x.rs.html">code</a>');
  expect(start).toContain("<span>folder</span>");
  expect(start).toContain('<a href="/docs/functions/hello/index.html">own</a>');
  expect(start).toContain("&lt;script&gt;");
  expect(start).toContain('<a href="/docs/index.html" aria-current="page">Start</a>');
  expect(start).not.toMatch(/ style=| onclick=|<script(?! type="module" src="\/assets)/);
  expect(all.get("files/src/x.rs.html")).toContain("fn &lt;x&gt;() {}");
  expect(addressOf("CHANGELOG.md")).toBe("CHANGELOG.html");
});

/** A repository in a folder of its own, with a secret beside it, a file that is ignored and a link. */
function repositoryOf(history) {
  const folder = mkdtempSync(join(tmpdir(), "docs-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const root = join(folder, "repository");
  const write = (path, text) => {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  };
  write("README.md", "# Start\n");
  write("cli/main.rs", "fn main() {}");
  write("cli/target/x", "made");
  write(".env", "PASSWORD=x");
  write(".gitignore", "target\n.env\n");
  write("../secret", "secret");
  symlinkSync("../../secret", join(root, "cli/link"));
  const git = (...words) => execFileSync("git", ["-C", root, ...words], { stdio: "ignore" });
  if (history) {
    git("init");
    git("add", ".");
  }
  return root;
}

test.each([true, false])("a page shows nothing that is no part of the project (with git: %s)", (history) => {
  const root = repositoryOf(history);
  const kindOf = kindIn(root);
  expect(["cli/main.rs", "cli", "README.md"].map(kindOf)).toEqual(["file", "folder", "file"]);
  for (const path of ["../secret", "cli/../../secret", "cli/target/x", "cli/target", ".env", "cli/link", "cli/none", "cli/main.rs/x", "", "/etc/passwd", ".git/config"]) {
    expect(kindOf(path), path).toBeUndefined();
  }
  const made = site(new Map([["README.md", "# Start\n\n[code](cli/main.rs) [secret](../secret) [ignored](cli/target/x) [hidden](.env) [link](cli/link)"]]), kindOf);
  expect(made.files).toEqual(["cli/main.rs"]);
  expect(made.wrong.map((line) => line.split(": ")[1])).toEqual(["../secret", "cli/target/x", ".env", "cli/link"]);
});

test("what git does not know yet is not shown", () => {
  const root = repositoryOf(true);
  writeFileSync(join(root, "cli/notes.txt"), "mine");
  expect(kindIn(root)("cli/notes.txt")).toBeUndefined();
});

test("a page is written below the folder of pages alone", () => {
  expect(placeOf("/out/docs", "adr/a.html")).toBe("/out/docs/adr/a.html");
  for (const address of ["../index.html", "files/../../x", "/etc/x", "", "../docs2/x"]) expect(() => placeOf("/out/docs", address), address).toThrow("leads out");
});

test("a search finds sections of the real documentation", () => {
  const made = site(documents(repository), kindIn(repository));
  const search = MiniSearch.loadJSON(JSON.stringify(index(made.pages)), SEARCH);
  const first = (words) => found(search, words)[0]?.href;
  expect(first("FDN-1003")).toBe("/docs/errors.html#fdn-1003");
  expect(first("fdn top")).toBe("/docs/cli.html#fdn-top");
  expect(found(search, "txt records").map((hit) => hit.href)).toContain("/docs/dns.html#text-records-through-the-api");
  expect(found(search, "workfloww").length, "a letter too many").toBeGreaterThan(0);
  expect(found(search, "qqqqqqqq")).toEqual([]);
});
