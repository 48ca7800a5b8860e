import { describe, expect, it } from "vitest";
import { parseDuration } from "./durations";
import { absolute, clock, relative } from "./times";

const AT = Date.UTC(2026, 10, 22, 6, 12, 11, 42);

describe("times", () => {
  it("are exact in UTC", () => {
    expect(absolute(AT, "utc")).toBe("2026-11-22 06:12:11 UTC");
    expect(clock(AT, "utc", true)).toBe("06:12:11.042");
  });

  it("name their offset when they are local", () => {
    expect(absolute(AT, "local")).toMatch(/^2026-11-2\d \d\d:\d\d:11 [+-]\d\d:\d\d$/);
  });

  it("are told from now", () => {
    const ago = (ms: number) => relative(AT - ms, AT);
    expect([0, 12_000, 60_000, 3_600_000, 86_400_000, 40 * 86_400_000, 800 * 86_400_000].map(ago)).toEqual([
      "now", "12 s ago", "1 min ago", "1 h ago", "1 d ago", "1 mo ago", "2 y ago",
    ]);
    expect(relative(AT + 3 * 3_600_000, AT)).toBe("in 3 h");
  });
});

describe("durations", () => {
  it("are read as the API writes them", () => {
    expect([parseDuration("250ms"), parseDuration("10s"), parseDuration("1h30m"), parseDuration("90d")]).toEqual([250, 10_000, 5_400_000, 7_776_000_000]);
    expect([parseDuration(""), parseDuration("10"), parseDuration("h"), parseDuration("-1s")]).toEqual([null, null, null, null]);
  });
});
