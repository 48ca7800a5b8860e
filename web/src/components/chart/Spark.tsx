/** A line without axes, beside a number that says the same. */
import { path, type Point } from "./scale";

export function Spark({ points, color = "--series-1", width = 96, height = 24 }: { points: readonly Point[]; color?: string; width?: number; height?: number }) {
  const first = points[0]?.at ?? 0;
  const last = points.at(-1)?.at ?? 1;
  const most = Math.max(1e-9, ...points.map((point) => point.value ?? 0));
  const x = (at: number) => 1 + ((at - first) / Math.max(1, last - first)) * (width - 2);
  const y = (value: number) => height - 2 - (value / most) * (height - 4);
  return (
    <svg width={width} height={height} aria-hidden="true" className="spark">
      <path d={path(points, x, y)} fill="none" stroke={`var(${color})`} strokeWidth={1.5} strokeLinejoin="round" strokeLinecap="round" />
    </svg>
  );
}
