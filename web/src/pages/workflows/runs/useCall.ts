/** A call of the workflow and the run that it makes: looked for while the call is still under way. */
import { useMutation, useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { api, body, type Schemas } from "@/api/client";
import { notOffered } from "@/api/offered";
import type { Run } from "../model/run";
import { newestRun, runOfRequest, runQuery, runsNow } from "./queries";

const LOOK = 400;
/** How long a run is looked for after its answer. It appears within a second or so. */
const PATIENCE = 15_000;

interface Search {
  before: ReadonlySet<string>;
  /** The request id, once the answer tells it. */
  request?: string;
  until?: number;
}

export function useCall(app: string) {
  const [search, setSearch] = useState<Search | null>(null);
  const [found, setFound] = useState<Run | undefined>(undefined);
  const [runsMissing, setMissing] = useState(false);
  const call = useMutation({
    mutationFn: async (request: Schemas["TryRequest"]) => {
      setFound(undefined);
      const before = await runsNow(app).catch((error: unknown) => {
        if (!notOffered(error)) throw error;
        setMissing(true);
        return null;
      });
      setSearch(before === null ? null : { before });
      return body(api.POST("/v1/apps/{app}/try", { params: { path: { app } }, body: request }));
    },
    onSuccess: (answer) => setSearch((now) => (now === null ? null : { ...now, request: answer.request, until: Date.now() + PATIENCE })),
    onError: () => setSearch(null),
  });
  useEffect(() => {
    if (search === null) return undefined;
    const look = async () => {
      const run = search.request === undefined ? await newestRun(app, search.before) : await runOfRequest(app, search.request);
      if (run === undefined && (search.until === undefined || Date.now() < search.until)) return;
      if (run !== undefined) setFound(run);
      // Before the answer, the newest run is a guess that the request id puts right.
      if (search.request !== undefined) setSearch(null);
    };
    const timer = window.setInterval(() => void look().catch(() => setSearch(null)), LOOK);
    return () => window.clearInterval(timer);
  }, [app, search]);
  const live = useQuery({ ...runQuery(app, found?.run ?? ""), enabled: found !== undefined });
  return {
    start: call.mutate,
    pending: call.isPending,
    error: call.error,
    answer: call.data,
    run: found === undefined ? undefined : live.data ?? found,
    runsMissing,
  };
}
