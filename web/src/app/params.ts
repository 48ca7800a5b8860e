/** The named parts of a page's path. */
import { useParams } from "@tanstack/react-router";

/** One of them; empty where the path has none of that name. */
export function usePathParam(name: string): string {
  const params: Record<string, string | undefined> = useParams({ strict: false });
  return params[name] ?? "";
}
