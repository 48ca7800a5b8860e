// The Markdown of the repository that is documentation.
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";

/** Single pages, and folders whose pages are all taken. */
const PLACES = ["README.md", "docs", "functions/README.md", "functions", "web/README.md", "CHANGELOG.md"];

/** Texts by path, in the order of the menu. */
export function documents(repository) {
  const texts = new Map();
  const add = (path) => texts.set(path, readFileSync(join(repository, path), "utf8"));
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

/** What a path of the repository is: "file", "folder" or nothing. */
export function kindIn(repository) {
  return (path) => {
    const found = statSync(join(repository, path), { throwIfNoEntry: false });
    return found === undefined ? undefined : found.isDirectory() ? "folder" : "file";
  };
}
