/** The stream of events of the network: one for the whole console. What an event touches is asked for anew. */
import { useQueryClient, type QueryClient } from "@tanstack/react-query";
import { createContext, useContext, useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import type { Schemas } from "./client";
import { ApiError } from "./problem";
import { sessionQuery } from "./session";

export type NetworkEvent = Schemas["Event"];
type Listener = (event: NetworkEvent) => void;

const KINDS: readonly Schemas["EventKind"][] = ["app", "ready", "plan", "policy", "traffic", "tenant", "billing", "node", "other"];

/** Which queries (by the first part of their keys) an event of a kind touches. */
const TOUCHED: Readonly<Record<Schemas["EventKind"], readonly string[]>> = {
  app: ["apps", "app", "workflows"],
  ready: ["apps", "app"],
  plan: ["app", "bindings"],
  policy: ["app"],
  traffic: ["app"],
  tenant: ["tenants", "members"],
  billing: ["billing"],
  node: ["nodes", "clusters"],
  other: [],
};

interface Stream {
  live: boolean;
  listen: (listener: Listener) => () => void;
}

const Context = createContext<Stream>({ live: false, listen: () => () => undefined });

/** Whether events arrive. */
export function useLive(): boolean {
  return useContext(Context).live;
}

/** Calls the listener with each event. */
export function useEvents(listener: Listener): void {
  const { listen } = useContext(Context);
  const latest = useRef(listener);
  useEffect(() => {
    latest.current = listener;
  });
  useEffect(() => listen((event) => latest.current(event)), [listen]);
}

export function EventsProvider({ children }: { children: ReactNode }) {
  const queries = useQueryClient();
  const [live, setLive] = useState(false);
  const listeners = useRef(new Set<Listener>());
  useEffect(() => {
    const { touch, drop } = gather((key) => void queries.invalidateQueries({ queryKey: [key] }));
    const tell = (event: NetworkEvent) => {
      touch(event);
      for (const listener of listeners.current) listener(event);
    };
    const end = connect(tell, () => void queries.invalidateQueries({ queryKey: ["figures"] }), () => void queries.invalidateQueries(), setLive, () => hasSession(queries));
    return () => {
      end();
      drop();
    };
  }, [queries]);
  const stream = useMemo<Stream>(() => ({
    live,
    listen: (listener) => {
      listeners.current.add(listener);
      return () => listeners.current.delete(listener);
    },
  }), [live]);
  return <Context value={stream}>{children}</Context>;
}

/** Whether there is a session still: asked for anew, and where it has ended, that leads to the sign-in page. */
async function hasSession(queries: QueryClient): Promise<boolean> {
  try {
    await queries.query({ ...sessionQuery, staleTime: 0 });
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return false;
    throw error;
  }
}

/** For how long what events touch is gathered. */
const GATHER = 200;

/**
 * Has what events touch asked for anew: once for all events that come together. A page that nobody saw for hours gets thousands at once, and as
 * many requests would be refused.
 */
export function gather(again: (key: string) => void): { touch: Listener; drop: () => void } {
  const keys = new Set<string>();
  let timer: number | undefined;
  const touch = (event: NetworkEvent) => {
    for (const key of TOUCHED[event.kind]) keys.add(key);
    timer ??= window.setTimeout(() => {
      timer = undefined;
      const touched = [...keys];
      keys.clear();
      for (const key of touched) again(key);
    }, GATHER);
  };
  const drop = () => {
    window.clearTimeout(timer);
    timer = undefined;
    keys.clear();
  };
  return { touch, drop };
}

const FIRST_PAUSE = 1000;
const LONGEST_PAUSE = 30_000;

/**
 * Keeps a stream open until the returned function is called. The browser comes again by itself when a stream ends; when it gives up
 * (an answer that is no stream), a new one is begun after a pause that doubles, if there is a session still: an answer to a page without one is
 * never a stream, and the browser does not say why it gave up. A page that nobody sees has none: browsers allow a host six
 * connections over HTTP/1.1, for all tabs together. Each stream goes on behind the last event of the one before.
 */
export function connect(tell: Listener, counted: () => void, missed: () => void, setLive: (live: boolean) => void, session: () => Promise<boolean>): () => void {
  let source: EventSource | null = null;
  let timer: number | undefined;
  let pause = FIRST_PAUSE;
  let last = "";
  // Whether the browser has given a stream up and none was opened since.
  let refused = false;
  // Counts what is begun and ended, so that an answer that comes too late opens nothing.
  let turn = 0;
  // Whether something may have happened that no stream told of: a page that was opened in the background has asked for all it shows long ago.
  let untold = document.visibilityState !== "visible";
  const begin = () => {
    source = new EventSource(`/v1/events?figures=true${last === "" ? "" : `&after=${last}`}`);
    source.onopen = () => {
      pause = FIRST_PAUSE;
      refused = false;
      setLive(true);
      // Without an event to go on behind, nobody knows what it was.
      if (untold && last === "") missed();
      untold = true;
    };
    source.onerror = () => {
      setLive(false);
      untold = true;
      if (source?.readyState !== EventSource.CLOSED) return;
      refused = true;
      later();
    };
    for (const kind of KINDS) source.addEventListener(kind, (message: MessageEvent<string>) => {
      last = message.lastEventId;
      tell(JSON.parse(message.data) as NetworkEvent);
    });
    source.addEventListener("figures", counted);
    source.addEventListener("missed", missed);
  };
  const later = () => {
    timer = window.setTimeout(() => void again(), pause);
    pause = Math.min(LONGEST_PAUSE, pause * 2);
  };
  const again = async () => {
    const mine = turn;
    const there = await session().catch(() => null);
    if (mine !== turn) return;
    if (there === null) later();
    else if (there) begin();
  };
  const end = () => {
    turn += 1;
    window.clearTimeout(timer);
    source?.close();
    source = null;
  };
  const seen = () => {
    end();
    if (document.visibilityState !== "visible") return;
    if (refused) void again();
    else begin();
  };
  seen();
  document.addEventListener("visibilitychange", seen);
  return () => {
    document.removeEventListener("visibilitychange", seen);
    end();
  };
}
