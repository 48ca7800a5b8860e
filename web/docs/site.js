// The documentation as pages: Markdown of the repository becomes HTML, every link is checked, and what is searched is put together. Pure: files come
// in as texts and go out as texts; `scripts/docs.js` reads and writes them.
import { posix } from "node:path";
import MarkdownIt from "markdown-it";
import MiniSearch from "minisearch";
import { SEARCH } from "./search.js";

/** Where the controller serves the pages. */
export const BASE = "/docs/";

/** The groups of the menu: the first whose pattern fits a page has it. */
const GROUPS = [
  ["Start", /^(README|docs\/(tutorial|architecture|cli))\.md$/],
  ["Use", /^docs\/(workflows|jobs|billing|accounts|tenant-files|gpu|dns|api|errors)\.md$/],
  ["Operate", /^docs\/(operations|security)(\.md|\/)/],
  ["Functions", /^(functions|cli)\//],
  ["Know more", /^(docs\/(results|testing)\.md|web\/README\.md|CHANGELOG\.md)$/],
  ["Decisions", /^docs\/adr\//],
];

/** The address of a page below BASE. */
export function addressOf(path) {
  const inside = path.replace(/^docs\//, "");
  return inside.replace(/(^|\/)README\.md$/, "$1index.html").replace(/\.md$/, ".html");
}

/** A heading as part of an address, as GitHub makes it: small letters, no punctuation, hyphens for spaces; the second of a kind gets a number. */
export function slugs() {
  const seen = new Map();
  return (text) => {
    const slug = text.toLowerCase().trim().replace(/[^\p{L}\p{N}\p{M}_\- ]/gu, "").replace(/ /g, "-");
    const before = seen.get(slug) ?? 0;
    seen.set(slug, before + 1);
    return before === 0 ? slug : `${slug}-${before}`;
  };
}

/** What a heading or paragraph says, without its marks. */
function textOf(token) {
  return (token.children ?? []).map((part) => (part.type === "text" || part.type === "code_inline" ? part.content : part.type.endsWith("break") ? " " : "")).join("");
}

/** A page: its HTML, title, anchors, links, and its sections for the search. */
function parse(path, text, follow) {
  const markdown = new MarkdownIt({ html: false, linkify: false });
  const anchor = slugs();
  const page = { path, title: path, anchors: new Set(), links: [], sections: [] };
  const tokens = markdown.parse(text, {});
  let section;
  const begin = (heading, id) => {
    section = { heading, id, text: [] };
    page.sections.push(section);
  };
  for (const [place, token] of tokens.entries()) {
    if (token.type === "heading_open") {
      const heading = textOf(tokens[place + 1]);
      const id = anchor(heading);
      token.attrSet("id", id);
      page.anchors.add(id);
      if (token.tag === "h1" && page.title === path) page.title = heading;
      begin(heading, token.tag === "h1" ? "" : id);
    } else if (token.type === "inline" && tokens[place - 1].type !== "heading_open") {
      if (section === undefined) begin(page.title, "");
      section.text.push(textOf(token));
    } else if (token.type === "fence" || token.type === "code_block") {
      if (section === undefined) begin(page.title, "");
      section.text.push(token.content);
    }
    for (const [at, part] of (token.children ?? []).entries()) {
      if (part.type === "link_open") {
        const href = part.attrGet("href");
        page.links.push(href);
        const target = follow(path, href);
        if (target !== undefined) part.attrSet("href", target);
        else {
          // What is no page, such as a folder, is named and leads nowhere.
          part.tag = "span";
          part.attrs = null;
          token.children.slice(at).find((next) => next.type === "link_close").tag = "span";
        }
      } else if (part.type === "image") {
        part.attrSet("src", follow(path, part.attrGet("src")) ?? "");
      }
    }
  }
  page.html = markdown.renderer.render(tokens, markdown.options, {});
  return page;
}

/** The target of a link: what of the repository is meant, and which place in it; nothing if it leads elsewhere. */
export function targetOf(from, href) {
  if (/^[a-z][a-z0-9+.-]*:/i.test(href) || href.startsWith("/")) return undefined;
  const [file, fragment] = href.split("#");
  const path = file === "" ? from : posix.normalize(posix.join(posix.dirname(from), decodeURI(file)));
  return { path: path.replace(/\/$/, ""), fragment: fragment === undefined ? undefined : decodeURIComponent(fragment) };
}

/**
 * All pages.
 *
 * @param texts Markdown by path in the repository.
 * @param kindOf "file", "folder" or undefined for another path of the repository; undefined also for what must not be shown.
 * @returns pages by address, files to be shown as they are, what is searched, and what is wrong: one line for each link that leads nowhere.
 */
export function site(texts, kindOf) {
  const files = new Set();
  const follow = (from, href) => {
    const target = targetOf(from, href);
    if (target === undefined) return href;
    const fragment = target.fragment === undefined ? "" : `#${encodeURIComponent(target.fragment)}`;
    if (texts.has(target.path)) return `${BASE}${addressOf(target.path)}${fragment}`;
    if (kindOf(target.path) === "folder" && texts.has(`${target.path}/README.md`)) return `${BASE}${addressOf(`${target.path}/README.md`)}`;
    if (kindOf(target.path) !== "file") return undefined;
    files.add(target.path);
    return `${BASE}files/${target.path}${/\.(svg|png|jpg)$/.test(target.path) ? "" : ".html"}`;
  };
  const pages = [...texts].map(([path, text]) => parse(path, text, follow));
  const known = new Map(pages.map((page) => [page.path, page]));
  const wrong = pages.flatMap((page) => page.links.flatMap((href) => {
    if (href.startsWith("/")) return [`${page.path}: ${href}: a link must be relative`];
    const target = targetOf(page.path, href);
    if (target === undefined) return [];
    const other = known.get(target.path);
    if (other === undefined) return kindOf(target.path) === undefined ? [`${page.path}: ${href}: there is no such file`] : [];
    return target.fragment === undefined || other.anchors.has(target.fragment) ? [] : [`${page.path}: ${href}: there is no such heading`];
  }));
  return { pages, files: [...files].sort(), wrong };
}

const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");

/** The menu of all pages, with the one that is shown marked. */
function menu(pages, shown) {
  const left = new Set(pages);
  return GROUPS.map(([name, pattern]) => {
    const own = pages.filter((page) => left.has(page) && pattern.test(page.path));
    for (const page of own) left.delete(page);
    if (own.length === 0) return "";
    const items = own.map((page) => `<li><a href="${BASE}${addressOf(page.path)}"${page === shown ? ' aria-current="page"' : ""}>${escaped(page.title)}</a></li>`);
    return `<details${own.includes(shown) || name === "Start" || name === "Use" ? " open" : ""}><summary>${name}</summary><ul>${items.join("")}</ul></details>`;
  }).join("");
}

/** A whole document around what a page says. `assets` are the addresses of its script and styles. */
export function document(title, content, pages, shown, assets) {
  const styles = assets.css.map((href) => `<link rel="stylesheet" href="${href}">`).join("");
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escaped(title)} · FDN</title>
<link rel="icon" type="image/svg+xml" href="/favicon.svg">
${styles}
<script type="module" src="${assets.js}"></script>
</head>
<body>
<a class="skip" href="#content">To the text</a>
<header><a href="${BASE}">FDN, the documentation</a><form role="search"><input type="search" id="search" placeholder="Search" aria-label="Search the documentation" autocomplete="off"></form><a href="/">Console</a></header>
<ol id="found" hidden></ol>
<div class="columns"><nav aria-label="All pages">${menu(pages, shown)}</nav>
<main id="content">${content}</main></div>
</body>
</html>
`;
}

/** All files of the site by their addresses below BASE. `read` gives the text of a file of the repository. */
export function rendered({ pages, files }, read, assets) {
  const all = new Map(pages.map((page) => [addressOf(page.path), document(page.title, page.html, pages, page, assets)]));
  for (const path of files) {
    if (/\.(svg|png|jpg)$/.test(path)) all.set(`files/${path}`, read(path));
    else all.set(`files/${path}.html`, document(path, `<h1>${escaped(path)}</h1><pre><code>${escaped(read(path).toString())}</code></pre>`, pages, undefined, assets));
  }
  all.set("search.json", JSON.stringify(index(pages)));
  return all;
}

/** What is searched: each section for itself. */
export function index(pages) {
  const search = new MiniSearch(SEARCH);
  const seen = new Set();
  for (const page of pages) {
    for (const { heading, id, text } of page.sections) {
      const href = `${BASE}${addressOf(page.path)}${id === "" ? "" : `#${encodeURIComponent(id)}`}`;
      // A page has one beginning; what stands before its title goes along with it.
      if (seen.has(href)) continue;
      seen.add(href);
      const all = text.join(" ").replace(/\s+/g, " ");
      search.add({ href, title: page.title, heading, text: all, start: all.slice(0, 160) });
    }
  }
  return search;
}
