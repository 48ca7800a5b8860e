/** Errors of the API as the console shows them. */
import type { components } from "./schema";

export type Problem = components["schemas"]["Problem"];

/** The code of a change that was refused because the browser has another session than the page that made it. */
export const OTHER_SESSION = "FDN-2012";

/** An answer that was not a success, or no answer at all (`status` 0). */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly title: string;
  readonly requestId: string | null;
  /** The step of its validation at which an upload was refused. */
  readonly step: string | null;

  constructor(status: number, problem: Partial<Problem>, requestId: string | null = null) {
    super(problem.detail ?? problem.title ?? `the controller answered with status ${status}`);
    this.name = "ApiError";
    this.status = status;
    this.code = problem.code ?? (status === 0 ? "offline" : `HTTP ${status}`);
    this.title = problem.title ?? "Request failed";
    this.requestId = problem.request_id ?? requestId;
    this.step = problem.step ?? null;
  }

  /** Whether the caller lacks a right, as opposed to something having gone wrong. */
  get forbidden(): boolean {
    return this.status === 403;
  }

  /** Whether it can be that the same request succeeds later. */
  get retriable(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

/** Reads an error out of the text of an answer. */
export function problemOf(status: number, text: string, requestId: string | null): ApiError {
  try {
    const body = JSON.parse(text) as Partial<Problem> | null;
    return new ApiError(status, body ?? {}, requestId);
  } catch {
    return new ApiError(status, {}, requestId);
  }
}

/** What a person can do about an error. */
export function advice(error: ApiError): string {
  if (error.code === "FDN-2011") return "Choose a tenant at the top of the page.";
  if (error.status === 0) return "Check that the controller runs and that this machine reaches it; the page tries again by itself.";
  if (error.status === 401) return "Sign in again.";
  if (error.code === OTHER_SESSION) return "Somebody signed in or out in another tab. Load the page again.";
  if (error.forbidden) return "Ask an owner of the tenant, or an admin of the network, for the right.";
  if (error.status === 404) return "It may have been deleted meanwhile. Go back to the list.";
  if (error.status === 412) return "Somebody changed it meanwhile. Load it again and repeat the change.";
  if (error.status === 429) return "Wait a little, then try again.";
  if (error.status >= 500) return "Try again. If it stays, the controller's log has the request id below.";
  return "Change what the message names, then try again.";
}
