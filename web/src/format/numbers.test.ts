import { describe, expect, it } from "vitest";
import { bytes, compact, duration, elapsed, money, percent, perSecond, plural, shortDigest, significant, sum } from "./numbers";

describe("numbers", () => {
  it("does not call a short span nothing", () => {
    expect([elapsed(0), elapsed(1), elapsed(1500)]).toEqual(["< 1 ms", "1 ms", "1.5 s"]);
  });

  it("shows three significant digits", () => {
    expect(["0", "1.23", "12.3", "123", "0.0123"]).toEqual([0, 1.234, 12.34, 123.4, 0.01234].map((value) => significant(value)));
    expect(significant(1.5)).toBe("1.5");
    expect(significant(100)).toBe("100");
  });

  it("shortens counts", () => {
    expect([0, 999, 1000, 1234, 999_950, 3_400_000].map(compact)).toEqual(["0", "999", "1 k", "1.23 k", "1 M", "3.4 M"]);
  });

  it("chooses binary units", () => {
    expect([0, 512, 1024, 1536, 1024 ** 2, 5.25 * 1024 ** 3].map(bytes)).toEqual(["0 B", "512 B", "1 KiB", "1.5 KiB", "1 MiB", "5.25 GiB"]);
    expect(bytes(1023.9)).toBe("1 KiB");
  });

  it("never shows something as nothing, nor nearly all as all", () => {
    expect(percent(0)).toBe("0 %");
    expect(percent(0.00001)).toBe("< 0.01 %");
    expect(percent(0.123)).toBe("12.3 %");
    expect(percent(0.99999)).toBe("> 99.99 %");
    expect(percent(1)).toBe("100 %");
    expect(perSecond(0.001)).toBe("< 0.01 /s");
    expect(perSecond(12_345)).toBe("12.3 k /s");
  });

  it("shows spans of time in units of their size", () => {
    expect([0, 0.25, 12.5, 3200, 250_000, 7_500_000, 273_600_000].map((value) => duration(value))).toEqual([
      "0 ms", "250 µs", "12.5 ms", "3.2 s", "4 min 10 s", "2 h 5 min", "3 d 4 h",
    ]);
    expect(duration(null)).toBe("–");
    expect(duration(60_000)).toBe("1 min");
  });

  it("shortens digests", () => {
    expect(shortDigest(`sha256:${"ab".repeat(32)}`)).toBe("abababababab");
  });

  it("counts things", () => {
    expect([plural(1, "node"), plural(2, "node"), plural(0, "entry", "entries")]).toEqual(["1 node", "2 nodes", "0 entries"]);
  });
});

describe("money", () => {
  const euros = (micros: number) => ({ micros, currency: "EUR" });

  it("is exact where cents would hide something", () => {
    expect(money(euros(0))).toBe("0.00 EUR");
    expect(money(euros(200))).toBe("0.0002 EUR");
    expect(money(euros(12_340_000))).toBe("12.34 EUR");
    expect(money(euros(1_234_567_890))).toBe("1,234.57 EUR");
    expect(money(euros(1_234_567_890), true)).toBe("1,234.56789 EUR");
    expect(money(euros(-5_000_000))).toBe("-5.00 EUR");
    expect(money(euros(1_999_999_999))).toBe("2,000.00 EUR");
  });

  it("is never summed over currencies", () => {
    expect(sum([euros(1), euros(2)])).toEqual(euros(3));
    expect(sum([euros(1), { micros: 2, currency: "USD" }])).toBeNull();
    expect(sum([])).toBeNull();
  });
});
