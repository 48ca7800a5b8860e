// The Markdown of the repository that is documentation, and what else of the repository may be shown with it.
import { execFileSync } from "node:child_process";
import { existsSync, lstatSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join, resolve, sep } from "node:path";

/** Single pages, and folders whose pages are all taken. */
const PLACES = ["README.md", "docs", "functions/README.md", "functions", "web/README.md", "CHANGELOG.md"];

/** Where a repository without its history has files to show, and what is made there by builds. */
const SHOWN = new Set(
  "bench bus cli controller core deploy dns docs e2e edge-agent functions migrations runtime scheduling scripts service sim testkit web".split(" "),
);
const MADE = new Set(["target", "node_modules", "dist", "__pycache__"]);

/** Texts by path, in the order of the menu. */
export function documents(repository) {
  const kindOf = kindIn(repository);
  const texts = new Map();
  const add = (path) => {
    if (kindOf(path) === "file") texts.set(path, readFileSync(join(repository, path), "utf8"));
  };
  for (const place of PLACES) {
    if (place.endsWith(".md")) add(place);
    else for (const path of below(repository, place, place === "functions" ? 1 : 8)) add(path);
  }
  return texts;
}

/** The pages below a folder, so many folders deep. */
function below(repository, folder, depth) {
  return readdirSync(join(repository, folder)).sort().flatMap((name) => {
    const path = `${folder}/${name}`;
    if (statSync(join(repository, path)).isDirectory()) return depth > 0 ? below(repository, path, depth - 1) : [];
    return name.endsWith(".md") ? [path] : [];
  });
}

/**
 * What a path of the repository is: "file", "folder" or nothing. A page leads to what belongs to the project alone: files that git knows, or, where there
 * is no git, files of the project's folders. Never outside, and through no link: what is shown is published.
 */
export function kindIn(repository) {
  const tracked = trackedIn(repository);
  return (path) => {
    const parts = path.split("/");
    if (parts.some((part) => part === "" || part === "." || part === "..")) return undefined;
    let found;
    for (const place of parts.keys()) {
      found = lstatSync(join(repository, ...parts.slice(0, place + 1)), { throwIfNoEntry: false });
      if (found === undefined || found.isSymbolicLink()) return undefined;
      // What lies below a file is nothing.
      if (place < parts.length - 1 && !found.isDirectory()) return undefined;
    }
    if (!(tracked?.has(path) ?? isShown(parts))) return undefined;
    return found.isDirectory() ? "folder" : found.isFile() ? "file" : undefined;
  };
}

/** The files that git knows, and their folders; nothing where there is no git. */
function trackedIn(repository) {
  if (!existsSync(join(repository, ".git"))) return undefined;
  let listed;
  try {
    listed = execFileSync("git", ["-C", repository, "ls-files", "-z"], { encoding: "utf8", maxBuffer: 64 << 20, stdio: ["ignore", "pipe", "ignore"] });
  } catch {
    return undefined;
  }
  const all = new Set();
  for (const path of listed.split("\0").filter((path) => path !== "")) {
    const parts = path.split("/");
    for (const place of parts.keys()) all.add(parts.slice(0, place + 1).join("/"));
  }
  return all;
}

function isShown(parts) {
  const isHidden = parts.some((part) => part.startsWith(".") || MADE.has(part));
  return !isHidden && (parts.length === 1 || SHOWN.has(parts[0]));
}

/** Where a page is written below a folder. An address that leads out of it is none. */
export function placeOf(folder, address) {
  const root = resolve(folder);
  const place = resolve(root, address);
  if (!place.startsWith(root + sep)) throw new Error(`${address} leads out of ${root}`);
  return place;
}
