/** Operations that not every controller of the network has: an older one answers that there is no such path. */
import { ApiError } from "./problem";

/** Whether an error says that the controller has no such operation, as opposed to no such thing. */
export function notOffered(error: unknown): boolean {
  return error instanceof ApiError && (error.status === 405 || (error.status === 404 && (error.code === "HTTP 404" || error.message.includes("/api/openapi.json"))));
}
