/** The time zone that times are shown in, and a clock that all relative times share. */
import { useSyncExternalStore } from "react";
import type { Zone } from "@/format";
import { preference } from "./preference";

const zone = preference<Zone>("fdn.zone", ["local", "utc"], "local");

export function useZone(): { zone: Zone; setZone: (zone: Zone) => void } {
  return { zone: useSyncExternalStore(zone.subscribe, zone.get), setZone: zone.set };
}

const TICK = 1000;
const listeners = new Set<() => void>();
let now = Date.now();
let timer: number | undefined;

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= window.setInterval(() => {
    if (document.hidden) return;
    now = Date.now();
    for (const each of listeners) each();
  }, TICK);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) {
      window.clearInterval(timer);
      timer = undefined;
    }
  };
}

/** The present time, to the second. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => now);
}
