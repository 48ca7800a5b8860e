/** The network's own judgement of a draft, and where its stages would run: asked for when one stops drawing. */
import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { api, body, type Schemas } from "@/api/client";
import { declaration, type Draft } from "../model/draft";

const PAUSE = 700;

/** `needs` may hold maps, which the document describes as texts only. */
export function bodyOf(draft: Draft): Schemas["Declaration"] {
  return declaration(draft) as unknown as Schemas["Declaration"];
}

function useSettled<T>(value: T, pause: number): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = window.setTimeout(() => setSettled(value), pause);
    return () => window.clearTimeout(timer);
  }, [value, pause]);
  return settled;
}

export function useDryRun(app: string, tenant: string | undefined, draft: Draft, enabled: boolean) {
  const settled = useSettled(draft, PAUSE);
  const query = useQuery({
    queryKey: ["workflows", app, "dry-run", tenant, declaration(settled)],
    queryFn: () => body(api.PUT("/v1/apps/{app}/workflow", { params: { path: { app }, query: { dry_run: true, tenant } }, body: bodyOf(settled) })),
    enabled: enabled && settled === draft,
    staleTime: 60_000,
    retry: false,
    placeholderData: (before) => before,
  });
  return query;
}
