/** The stream of events of the network: one for the whole console. What an event touches is asked for anew. */
import { useQueryClient, type QueryClient } from "@tanstack/react-query";
import { createContext, useContext, useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import type { Schemas } from "./client";

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
    const tell = (event: NetworkEvent) => {
      touch(queries, event);
      for (const listener of listeners.current) listener(event);
    };
    return connect(tell, () => void queries.invalidateQueries({ queryKey: ["figures"] }), () => void queries.invalidateQueries(), setLive);
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

function touch(queries: QueryClient, event: NetworkEvent): void {
  for (const key of TOUCHED[event.kind]) void queries.invalidateQueries({ queryKey: [key] });
}

const FIRST_PAUSE = 1000;
const LONGEST_PAUSE = 30_000;

/**
 * Keeps a stream open until the returned function is called. The browser comes again by itself when a stream ends; when it gives up
 * (an answer that is no stream), a new one is begun after a pause that doubles.
 */
function connect(tell: Listener, counted: () => void, missed: () => void, setLive: (live: boolean) => void): () => void {
  let source: EventSource | null = null;
  let timer: number | undefined;
  let pause = FIRST_PAUSE;
  const begin = () => {
    source = new EventSource("/v1/events?figures=true");
    source.onopen = () => {
      pause = FIRST_PAUSE;
      setLive(true);
    };
    source.onerror = () => {
      setLive(false);
      if (source?.readyState !== EventSource.CLOSED) return;
      timer = window.setTimeout(begin, pause);
      pause = Math.min(LONGEST_PAUSE, pause * 2);
    };
    for (const kind of KINDS) source.addEventListener(kind, (message: MessageEvent<string>) => tell(JSON.parse(message.data) as NetworkEvent));
    source.addEventListener("figures", counted);
    source.addEventListener("missed", missed);
  };
  begin();
  return () => {
    window.clearTimeout(timer);
    source?.close();
  };
}
