import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { connect, gather, type NetworkEvent } from "./events";

/** The browser's side of a stream, played by the test. */
class Source extends EventTarget {
  static readonly CLOSED = 2;
  static all: Source[] = [];
  readyState = 0;
  onopen: () => void = () => undefined;
  onerror: () => void = () => undefined;

  constructor(readonly url: string) {
    super();
    Source.all.push(this);
  }

  opens(): void {
    this.readyState = 1;
    this.onopen();
  }

  fails(readyState: number): void {
    this.readyState = readyState;
    this.onerror();
  }

  says(kind: string, lastEventId: string): void {
    this.dispatchEvent(Object.assign(new Event(kind), { data: JSON.stringify({ id: Number(lastEventId), kind }), lastEventId }));
  }

  close(): void {
    this.readyState = Source.CLOSED;
  }
}

class Page extends EventTarget {
  visibilityState = "visible";

  becomes(state: "visible" | "hidden"): void {
    this.visibilityState = state;
    this.dispatchEvent(new Event("visibilitychange"));
  }
}

let page = new Page();
let told: number[] = [];
const missed = vi.fn<() => void>();
const newest = (): Source => {
  const source = Source.all.at(-1);
  if (source === undefined) throw new Error("no stream was begun");
  return source;
};
const begin = () => connect((event: NetworkEvent) => told.push(event.id), () => undefined, missed, () => undefined);

beforeEach(() => {
  vi.useFakeTimers();
  [Source.all, page, told] = [[], new Page(), []];
  missed.mockReset();
  vi.stubGlobal("EventSource", Source);
  vi.stubGlobal("document", page);
  vi.stubGlobal("window", globalThis);
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

it("goes on behind the last event when the browser has given a stream up", () => {
  begin();
  newest().opens();
  newest().says("app", "41");
  newest().says("ready", "42");
  newest().fails(Source.CLOSED);
  vi.runOnlyPendingTimers();
  expect(Source.all.map(({ url }) => url)).toEqual(["/v1/events?figures=true", "/v1/events?figures=true&after=42"]);
  newest().opens();
  newest().says("app", "43");
  expect(told).toEqual([41, 42, 43]);
  expect(missed).not.toHaveBeenCalled();
});

it("takes all as missed when there is no event to go on behind", () => {
  begin();
  newest().opens();
  expect(missed).not.toHaveBeenCalled();
  // The browser comes again by itself.
  newest().fails(0);
  newest().opens();
  expect(missed).toHaveBeenCalledTimes(1);
  newest().fails(Source.CLOSED);
  vi.runOnlyPendingTimers();
  expect(Source.all).toHaveLength(2);
  newest().opens();
  expect(missed).toHaveBeenCalledTimes(2);
});

it("holds no connection while nobody sees the page", () => {
  page.visibilityState = "hidden";
  const end = begin();
  expect(Source.all).toHaveLength(0);
  page.becomes("visible");
  newest().opens();
  // What the page shows was asked for while nobody saw it.
  expect(missed).toHaveBeenCalledTimes(1);
  newest().says("app", "7");
  page.becomes("hidden");
  expect(newest().readyState).toBe(Source.CLOSED);
  page.becomes("visible");
  expect(newest().url).toContain("&after=7");
  newest().fails(Source.CLOSED);
  page.becomes("hidden");
  vi.runOnlyPendingTimers();
  expect(Source.all).toHaveLength(2);
  end();
  page.becomes("visible");
  expect(Source.all).toHaveLength(2);
});

it("takes all as missed when the first stream comes late", () => {
  begin();
  newest().fails(Source.CLOSED);
  vi.runOnlyPendingTimers();
  newest().opens();
  expect(missed).toHaveBeenCalledTimes(1);
});

it("asks anew once for all events that come together", () => {
  const again = vi.fn<(key: string) => void>();
  const { touch, drop } = gather(again);
  for (let id = 1; id <= 1000; id += 1) touch({ id, kind: id % 2 === 0 ? "ready" : "node" } as NetworkEvent);
  expect(again).not.toHaveBeenCalled();
  vi.runOnlyPendingTimers();
  expect(again.mock.calls.flat().sort()).toEqual(["app", "apps", "clusters", "nodes"]);
  touch({ id: 1001, kind: "app" } as NetworkEvent);
  drop();
  vi.runOnlyPendingTimers();
  expect(again).toHaveBeenCalledTimes(4);
});
