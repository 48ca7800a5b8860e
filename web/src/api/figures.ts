/** Series of figures as charts want them. Pure. */
import { filled, type Point } from "@/components/chart/scale";
import type { Schemas } from "./client";

export type Figures = Schemas["Figures"];
export type FigureSeries = Schemas["FigureSeries"];

/** Of a point, what is drawn. */
export type Reading = "rate" | "errors" | "p50" | "p99" | "cold";

/** One reading of a series at every step. Nothing happened in a step without a point: rates are zero there, times are not known. */
export function readings(figures: Figures, series: FigureSeries | undefined, reading: Reading): Point[] {
  const { from, step_ms: step } = figures;
  const to = settled(figures);
  const points = (series?.points ?? []).map((point): Point => {
    const seconds = Math.min(step, figures.to - point.at) / 1000;
    switch (reading) {
      case "rate": return { at: point.at, value: point.calls / seconds };
      case "errors": return { at: point.at, value: point.calls === 0 ? 0 : point.errors / point.calls };
      case "cold": return { at: point.at, value: point.cold_starts / seconds };
      case "p50": return { at: point.at, value: point.p50_ms ?? null };
      case "p99": return { at: point.at, value: point.p99_ms ?? null };
    }
  });
  return filled(points, from, to, step, reading === "p50" || reading === "p99" ? null : 0);
}

/** Where charts end. The newest step counts by the part of it that is over; as long as that is little, it says nothing yet. */
function settled({ to, step_ms: step }: Figures): number {
  const over = to % step;
  return over < step * 0.4 ? to - over : to;
}

/** Calls a second over the last steps, so that one quiet step does not read as standstill. */
export function recentRate(figures: Figures, series: FigureSeries | undefined, steps = 3): number {
  const since = figures.to - steps * figures.step_ms;
  const calls = (series?.points ?? []).filter((point) => point.at >= since).reduce((sum, point) => sum + point.calls, 0);
  return calls / ((steps * figures.step_ms) / 1000);
}
