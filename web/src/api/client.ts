/**
 * The client of the controller's API, typed by its OpenAPI document.
 *
 * Answers that are no success are thrown as `ApiError`, so what is awaited is there. Changes carry the session's CSRF token.
 */
import type { Readable } from "openapi-typescript-helpers";
import createClient, { type Middleware } from "openapi-fetch";
import { ApiError, OTHER_SESSION, problemOf } from "./problem";
import type { components, paths } from "./schema";

export type Schemas = { [K in keyof components["schemas"]]: Readable<components["schemas"][K]> };

type Session = Pick<Schemas["WhoAmI"], "user" | "csrf">;

let session: Session | null = null;

/** Remembers who is signed in, and with that what changes must bring along. It lives in memory only. */
export function setSession(who: Session | null): void {
  session = who;
}

/** The headers of a change that is not made through `api` (uploads with progress, for instance). */
export function changeHeaders(): Record<string, string> {
  return session?.csrf == null ? {} : { "x-fdn-csrf": session.csrf };
}

/**
 * Asks for the session that the browser has now: whoever signs in in another tab gives this one a new session too, of which this page hears
 * nothing. Whether it is the same person's, who can then go on here.
 */
export async function renewed(): Promise<boolean> {
  const before = session;
  if (before === null) return false;
  const { session: now } = await body(api.GET("/v1/login"));
  if (now?.user !== before.user) return false;
  setSession(now);
  return true;
}

/** Sends a request, and a change once more if it is refused as one of a session that is no longer the browser's; nothing of it was done then. */
async function sent(request: Request): Promise<Response> {
  if (request.method === "GET" || request.method === "HEAD") return fetch(request);
  const again = request.clone();
  const answer = await fetch(request);
  if (answer.status !== 403) return answer;
  const refusal = problemOf(403, await answer.clone().text(), null);
  if (refusal.code !== OTHER_SESSION || !(await renewed().catch(() => false))) return answer;
  for (const [name, value] of Object.entries(changeHeaders())) again.headers.set(name, value);
  return fetch(again);
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

export const api = createClient<paths>({ baseUrl: "/", fetch: sent });
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
  // A proxy that compresses answers makes tags weak ones, which `If-Match` never finds; the controller gives none.
  return { value: data as T, tag: response.headers.get("etag")?.replace(/^W\//, "") ?? null };
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
