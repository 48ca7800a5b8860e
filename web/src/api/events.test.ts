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
const session = vi.fn<() => Promise<boolean>>();
const newest = (): Source => {
  const source = Source.all.at(-1);
  if (source === undefined) throw new Error("no stream was begun");
  return source;
};
const begin = () => connect((event: NetworkEvent) => told.push(event.id), () => undefined, missed, () => undefined, session);

beforeEach(() => {
  vi.useFakeTimers();
  [Source.all, page, told] = [[], new Page(), []];
  missed.mockReset();
  session.mockReset().mockResolvedValue(true);
  vi.stubGlobal("EventSource", Source);
  vi.stubGlobal("document", page);
  vi.stubGlobal("window", globalThis);
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

it("goes on behind the last event when the browser has given a stream up", async () => {
  begin();
  newest().opens();
  newest().says("app", "41");
  newest().says("ready", "42");
  newest().fails(Source.CLOSED);
  await vi.runOnlyPendingTimersAsync();
  expect(Source.all.map(({ url }) => url)).toEqual(["/v1/events?figures=true", "/v1/events?figures=true&after=42"]);
  newest().opens();
  newest().says("app", "43");
  expect(told).toEqual([41, 42, 43]);
  expect(missed).not.toHaveBeenCalled();
});

it("takes all as missed when there is no event to go on behind", async () => {
  begin();
  newest().opens();
  expect(missed).not.toHaveBeenCalled();
  // The browser comes again by itself.
  newest().fails(0);
  newest().opens();
  expect(missed).toHaveBeenCalledTimes(1);
  newest().fails(Source.CLOSED);
  await vi.runOnlyPendingTimersAsync();
  expect(Source.all).toHaveLength(2);
  newest().opens();
  expect(missed).toHaveBeenCalledTimes(2);
});

it("holds no connection while nobody sees the page", async () => {
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
  await vi.runOnlyPendingTimersAsync();
  expect(Source.all).toHaveLength(2);
  end();
  page.becomes("visible");
  expect(Source.all).toHaveLength(2);
});

it("takes all as missed when the first stream comes late", async () => {
  begin();
  newest().fails(Source.CLOSED);
  await vi.runOnlyPendingTimersAsync();
  newest().opens();
  expect(missed).toHaveBeenCalledTimes(1);
});

it("opens no stream where the session has ended", async () => {
  begin();
  newest().opens();
  session.mockResolvedValue(false);
  newest().fails(Source.CLOSED);
  expect(session).not.toHaveBeenCalled();
  await vi.advanceTimersByTimeAsync(300_000);
  expect(session).toHaveBeenCalledTimes(1);
  expect(Source.all).toHaveLength(1);
  // Seen again, it asks again: somebody may have signed in in another tab.
  for (const there of [false, true]) {
    session.mockResolvedValue(there);
    page.becomes("hidden");
    page.becomes("visible");
    await vi.advanceTimersByTimeAsync(0);
    expect(Source.all).toHaveLength(there ? 2 : 1);
  }
  expect(session).toHaveBeenCalledTimes(3);
  // A stream that opens needs no question when the page is seen again.
  newest().opens();
  page.becomes("hidden");
  page.becomes("visible");
  expect(Source.all).toHaveLength(3);
  expect(session).toHaveBeenCalledTimes(3);
});

it("asks for the session again as long as nobody answers", async () => {
  begin();
  session.mockRejectedValueOnce(new Error("no answer"));
  newest().fails(Source.CLOSED);
  await vi.advanceTimersByTimeAsync(1000);
  expect(session).toHaveBeenCalledTimes(1);
  expect(Source.all).toHaveLength(1);
  await vi.advanceTimersByTimeAsync(2000);
  expect(session).toHaveBeenCalledTimes(2);
  expect(Source.all).toHaveLength(2);
});

it("opens nothing for an answer that comes when it has ended", async () => {
  const end = begin();
  let answer: (there: boolean) => void = () => undefined;
  session.mockReturnValue(new Promise((resolve) => {
    answer = resolve;
  }));
  newest().fails(Source.CLOSED);
  await vi.advanceTimersByTimeAsync(1000);
  end();
  answer(true);
  await vi.advanceTimersByTimeAsync(0);
  expect(session).toHaveBeenCalledTimes(1);
  expect(Source.all).toHaveLength(1);
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
