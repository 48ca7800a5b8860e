// Holds the list of what opens against the sources: a dialog, menu or fold that `dialogs.js` does not visit is a failure here.
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { expect, it } from "vitest";
import { OPENERS } from "./openers.js";

const SOURCES = fileURLToPath(new URL("../src/", import.meta.url));
// What the dialogs of all pages are made of; they are named where they are used.
const MADE_OF = "components/Dialog.tsx";
const OPENS = ["aria-expanded", "aria-haspopup", "popover", "popoverTarget"];

const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

// The texts that an expression can be, as patterns; what is put in may be anything.
function patterns(node) {
  if (node === undefined) return [".+"];
  if (ts.isStringLiteralLike(node)) return [escaped(node.text)];
  if (ts.isTemplateExpression(node)) return [escaped(node.head.text) + node.templateSpans.map((span) => `.+${escaped(span.literal.text)}`).join("")];
  if (ts.isConditionalExpression(node)) return [...patterns(node.whenTrue), ...patterns(node.whenFalse)];
  if (ts.isParenthesizedExpression(node) || ts.isJsxExpression(node)) return patterns(node.expression);
  return [".+"];
}

function attribute(element, name) {
  return element.attributes.properties.find((each) => ts.isJsxAttribute(each) && each.name.getText() === name)?.initializer;
}

function textOf(children) {
  return children.map((child) => (ts.isJsxText(child) ? escaped(child.text.trim()) : ".+")).join("");
}

// What an element opens, by the texts it can be called.
function named(element) {
  const tag = element.tagName.getText();
  if (tag === "Dialog" || tag === "Confirm") return patterns(attribute(element, "title"));
  if (tag === "dialog") return patterns(attribute(element, "aria-label"));
  const unfolds = OPENS.some((name) => attribute(element, name) !== undefined);
  if (tag !== "summary" && !unfolds) return [];
  const label = attribute(element, "aria-label");
  return label === undefined ? [textOf(element.parent.children ?? [])] : patterns(label);
}

function found(file) {
  const source = ts.createSourceFile(file, readFileSync(SOURCES + file, "utf8"), ts.ScriptTarget.Latest, true, ts.ScriptKind.TSX);
  const all = [];
  const look = (node) => {
    if (ts.isJsxOpeningElement(node) || ts.isJsxSelfClosingElement(node)) all.push(...named(node));
    ts.forEachChild(node, look);
  };
  look(source);
  return all;
}

const files = readdirSync(SOURCES, { recursive: true }).map((file) => file.replaceAll("\\", "/")).filter((file) => file.endsWith(".tsx") && file !== MADE_OF);
const sources = files.flatMap((file) => found(file).map((pattern) => ({ file, pattern })));
const fits = (opener, { file, pattern }) => opener.file === file && new RegExp(`^${pattern}$`).test(opener.title);

it("visits everything in the sources that opens", () => {
  expect(sources.length).toBeGreaterThan(40);
  const same = (one) => sources.filter((other) => other.file === one.file && other.pattern === one.pattern).length;
  const missing = sources.filter((one) => OPENERS.filter((opener) => fits(opener, one)).length < same(one));
  expect(missing).toEqual([]);
});

it("visits nothing that is gone", () => {
  expect(OPENERS.filter((opener) => !sources.some((one) => fits(opener, one))).map(({ file, title }) => `${file}: ${title}`)).toEqual([]);
});
