/** The search on the pages of the documentation. What is searched is loaded when somebody is about to type. */
import MiniSearch from "minisearch";
import { SEARCH } from "../../docs/search.js";
import { found, type Found } from "./found";
import "./docs.css";

const field = document.querySelector<HTMLInputElement>("#search");
const list = document.querySelector<HTMLOListElement>("#found");
let index: Promise<MiniSearch> | undefined;

async function load(): Promise<MiniSearch> {
  const answer = await fetch("/docs/search.json");
  if (!answer.ok) throw new Error(`the index cannot be loaded: ${answer.status}`);
  return MiniSearch.loadJSON(await answer.text(), SEARCH);
}

function item({ href, title, heading, start }: Found): HTMLLIElement {
  const line = document.createElement("li");
  const link = document.createElement("a");
  link.href = href;
  link.textContent = heading === title ? title : `${title} › ${heading}`;
  const text = document.createElement("p");
  text.textContent = start;
  line.append(link, text);
  return line;
}

async function search(): Promise<void> {
  if (field === null || list === null) return;
  const words = field.value.trim();
  list.hidden = words === "";
  if (words === "") return;
  // A failed load is tried again with the next letter.
  index ??= load().catch((error: unknown) => {
    index = undefined;
    throw error;
  });
  const hits = found(await index, words);
  // Typed on meanwhile: the later search shows what it finds.
  if (field.value.trim() !== words) return;
  const nothing = document.createElement("li");
  nothing.textContent = `Nothing is found for “${words}”.`;
  list.replaceChildren(...(hits.length === 0 ? [nothing] : hits.map(item)));
}

function failed(error: unknown): void {
  const line = document.createElement("li");
  line.textContent = error instanceof Error ? error.message : "the search failed";
  list?.replaceChildren(line);
}

field?.addEventListener("input", () => { search().catch(failed); });
field?.form?.addEventListener("submit", (event) => {
  event.preventDefault();
  list?.querySelector("a")?.click();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !(event.target instanceof HTMLInputElement)) {
    event.preventDefault();
    field?.focus();
  }
  if (event.key === "Escape" && field !== null) {
    field.value = "";
    search().catch(failed);
  }
});
