/** What a search finds. Pure. */
import type MiniSearch from "minisearch";

export interface Found {
  readonly href: string;
  readonly title: string;
  readonly heading: string;
  readonly start: string;
}

const MOST = 20;

/** The sections that have all words, or words that begin so; if there is none, those that have some, also with a letter mistyped. */
export function found(index: MiniSearch, words: string): Found[] {
  const boost = { heading: 4, title: 2 };
  const all = index.search(words, { boost, prefix: true, combineWith: "AND" });
  const some = all.length > 0 ? all : index.search(words, { boost, prefix: true, fuzzy: 0.2 });
  return some.slice(0, MOST).map((hit) => ({ href: String(hit["href"]), title: String(hit["title"]), heading: String(hit["heading"]), start: String(hit["start"]) }));
}
