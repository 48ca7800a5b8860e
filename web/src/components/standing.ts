/** When a list that comes page by page asks for its next one. */

/** How many pages a filter of the page's own looks through before it asks whether to go on. */
export const LOOKED = 5;

/** What of a list that is asked for page by page counts here. */
export interface Paged {
  data: { readonly pages: readonly unknown[] } | undefined;
  error: Error | null;
  hasNextPage: boolean;
  isFetchingNextPage: boolean;
  isFetchNextPageError: boolean;
}

/**
 * Where a list stands: it has `all` its rows; it may go `on` by itself when the end of its rows comes near; it is `asking`; it `failed`, and
 * only a person asks again; or its filter has looked through `limit` pages.
 */
export type Standing = "all" | "on" | "asking" | "failed" | "limit";

export function standing(list: Paged, filtered: boolean, limit: number): Standing {
  if (list.isFetchingNextPage) return "asking";
  if (list.error !== null) return "failed";
  if (!list.hasNextPage) return "all";
  return filtered && (list.data?.pages.length ?? 0) >= limit ? "limit" : "on";
}
