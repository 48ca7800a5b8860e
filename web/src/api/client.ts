/**
 * The client of the controller's API, typed by its OpenAPI document.
 *
 * Answers that are no success are thrown as `ApiError`, so what is awaited is there. Changes carry the session's CSRF token.
 */
import type { Readable } from "openapi-typescript-helpers";
import createClient, { type Middleware } from "openapi-fetch";
import { ApiError, problemOf } from "./problem";
import type { components, paths } from "./schema";

export type Schemas = { [K in keyof components["schemas"]]: Readable<components["schemas"][K]> };

let csrf: string | null = null;

/** Remembers what changes must bring along. It lives in memory only. */
export function setCsrf(token: string | null): void {
  csrf = token;
}

/** The headers of a change that is not made through `api` (uploads with progress, for instance). */
export function changeHeaders(): Record<string, string> {
  return csrf === null ? {} : { "x-fdn-csrf": csrf };
}

const middleware: Middleware = {
  onRequest({ request }) {
    if (request.method !== "GET" && request.method !== "HEAD") {
      for (const [name, value] of Object.entries(changeHeaders())) request.headers.set(name, value);
    }
    return request;
  },
  async onResponse({ response }) {
    if (response.ok) return undefined;
    throw problemOf(response.status, await response.text(), response.headers.get("x-request-id"));
  },
  onError() {
    return new ApiError(0, { title: "No answer", detail: "The controller does not answer." });
  },
};

export const api = createClient<paths>({ baseUrl: "/" });
api.use(middleware);

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** The body of a successful answer. */
export async function body<T>(answer: Promise<Answer<T>>): Promise<T> {
  // The middleware has thrown unless there is a body; operations that answer 204 have none, and `T` says so.
  return (await answer).data as T;
}

export interface Tagged<T> {
  value: T;
  /** For `If-Match`. */
  tag: string | null;
}

/** The body together with its `ETag`. */
export async function tagged<T>(answer: Promise<Answer<T>>): Promise<Tagged<T>> {
  const { data, response } = await answer;
  return { value: data as T, tag: response.headers.get("etag") };
}

export interface Page<T> {
  rows: T[];
  /** The cursor of the next page, if there is one. */
  next: string | null;
}

/** The cursor in a `link` header with `rel="next"`. */
export function nextCursor(link: string | null): string | null {
  const target = /<([^>]*)>;\s*rel="next"/.exec(link ?? "")?.[1];
  if (target === undefined) return null;
  return new URL(target, "http://controller").searchParams.get("cursor");
}

/** One page of a list. */
export async function page<T>(answer: Promise<Answer<T[]>>): Promise<Page<T>> {
  const { data, response } = await answer;
  return { rows: data ?? [], next: nextCursor(response.headers.get("link")) };
}

/** The most rows that a list is read whole for; beyond it a list says that it is cut. */
export const MOST_ROWS = 20_000;

/** All pages of a list, at most `MOST_ROWS` rows. */
export async function allPages<T>(get: (cursor: string | undefined) => Promise<Answer<T[]>>): Promise<T[]> {
  const rows: T[] = [];
  for (let cursor: string | undefined; ; ) {
    const { rows: more, next } = await page(get(cursor));
    rows.push(...more);
    if (next === null || rows.length >= MOST_ROWS) return rows;
    cursor = next;
  }
}
