/**
 * Lines over time, drawn as SVG. A pointer or the arrow keys read single points; screen readers get the values in words.
 */
import { useId, useMemo, useState, type KeyboardEvent, type PointerEvent } from "react";
import { useZone } from "@/app/zone";
import { clock, dateOf } from "@/format";
import { lone, nearest, path, ticks, timeTicks, type Point } from "./scale";
import { useSize } from "./useSize";
import "./chart.css";

export interface Series {
  name: string;
  points: readonly Point[];
  /** A custom property, `--series-1` to `--series-6`, or a colour of a state. */
  color: string;
  /** With the area below it filled. */
  area?: boolean;
}

interface Props {
  title: string;
  series: readonly Series[];
  from: number;
  to: number;
  format: (value: number) => string;
  height?: number;
  /** The axis reaches at least this value. */
  atLeast?: number;
  /** Points in time with a mark, such as deploys. */
  marks?: readonly { at: number; label: string }[];
}

const LEFT = 58;
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 22;

export function LineChart({ title, series, from, to, format, height = 180, atLeast = 0, marks = [] }: Props) {
  const [place, width] = useSize();
  const [at, setAt] = useState<number | null>(null);
  const { zone } = useZone();
  const clip = useId();
  const most = useMemo(() => Math.max(atLeast, ...series.flatMap((each) => each.points.map((point) => point.value ?? 0))), [series, atLeast]);
  const steps = ticks(most);
  const top = steps.at(-1) ?? 1;
  const inner = Math.max(1, width - LEFT - RIGHT);
  const x = (time: number) => LEFT + ((time - from) / Math.max(1, to - from)) * inner;
  const y = (value: number) => TOP + (1 - value / top) * (height - TOP - BOTTOM);
  const shift = zone === "utc" ? 0 : -new Date(to).getTimezoneOffset() * 60_000;
  const times = timeTicks(from, to, Math.max(2, Math.floor(inner / 90)), shift);
  const grid = series.reduce<readonly Point[]>((longest, each) => (each.points.length > longest.length ? each.points : longest), []);
  const index = at === null || grid.length === 0 ? null : nearest(grid, at);
  const read = index === null ? undefined : grid[index];
  const long = to - from > 20 * 3_600_000;

  const point = (event: PointerEvent<SVGSVGElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    setAt(from + ((event.clientX - box.left - LEFT) / inner) * (to - from));
  };
  const keys = (event: KeyboardEvent) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined || grid.length === 0) return;
    event.preventDefault();
    const next = Math.min(grid.length - 1, Math.max(0, (index ?? grid.length - 1) + (index === null ? 0 : step)));
    setAt(grid[next]?.at ?? null);
  };

  return (
    <figure className="chart" ref={place}>
      <figcaption className="chart-head">
        <span className="chart-title">{title}</span>
        <span className="chart-legend">
          {series.map((each) => {
            const value = read === undefined ? latest(each.points) : valueAt(each.points, read.at);
            return (
              <span key={each.name} className="chart-key">
                <i style={{ background: `var(${each.color})` }} />
                {each.name} <b>{value === null ? "–" : format(value)}</b>
              </span>
            );
          })}
        </span>
      </figcaption>
      <svg width={width} height={height} role="img" tabIndex={0} aria-label={spoken(title, series, format)} onPointerMove={point} onPointerLeave={() => setAt(null)} onKeyDown={keys} onBlur={() => setAt(null)}>
        <clipPath id={clip}><rect x={LEFT} y={0} width={inner} height={height - BOTTOM + 1} /></clipPath>
        {steps.map((step) => (
          <g key={step}>
            <line className="chart-grid" x1={LEFT} x2={width - RIGHT} y1={y(step)} y2={y(step)} />
            <text className="chart-tick" x={LEFT - 8} y={y(step)} dy="0.32em" textAnchor="end">{format(step)}</text>
          </g>
        ))}
        {times.map((time) => <text key={time} className="chart-tick" x={x(time)} y={height - 6} textAnchor="middle">{clock(time, zone).slice(0, to - from > 300_000 ? 5 : 8)}</text>)}
        <g clipPath={`url(#${clip})`}>
          {marks.filter((mark) => mark.at >= from && mark.at <= to).map((mark) => (
            <line key={`${mark.at}${mark.label}`} className="chart-mark" x1={x(mark.at)} x2={x(mark.at)} y1={TOP} y2={height - BOTTOM}><title>{mark.label}</title></line>
          ))}
          {series.map((each) => (
            <g key={each.name}>
              {each.area === true && <path d={area(each.points, x, y)} fill={`var(${each.color})`} opacity={0.12} />}
              <path d={path(each.points, x, y)} fill="none" stroke={`var(${each.color})`} strokeWidth={1.6} strokeLinejoin="round" strokeLinecap="round" />
              {lone(each.points).map((single) => <circle key={single.at} cx={x(single.at)} cy={y(single.value)} r={2.2} fill={`var(${each.color})`} />)}
            </g>
          ))}
          {read !== undefined && <line className="chart-cross" x1={x(read.at)} x2={x(read.at)} y1={TOP} y2={height - BOTTOM} />}
          {read !== undefined && series.map((each) => {
            const value = valueAt(each.points, read.at);
            return value === null ? null : <circle key={each.name} cx={x(read.at)} cy={y(value)} r={3} fill={`var(${each.color})`} stroke="var(--surface)" strokeWidth={1.5} />;
          })}
        </g>
      </svg>
      <div className="chart-at" aria-live="off">{read === undefined ? "" : `${long ? `${dateOf(read.at, zone)} ` : ""}${clock(read.at, zone)}`}</div>
    </figure>
  );
}

function valueAt(points: readonly Point[], at: number): number | null {
  const point = points[nearest(points, at)];
  return point?.at === at ? point.value : null;
}

function latest(points: readonly Point[]): number | null {
  return points.findLast((point) => point.value !== null)?.value ?? null;
}

function area(points: readonly Point[], x: (at: number) => number, y: (value: number) => number): string {
  const known = points.filter((point) => point.value !== null);
  const [first, last] = [known[0], known.at(-1)];
  if (first === undefined || last === undefined) return "";
  return `${path(known, x, y)}L${x(last.at).toFixed(1)} ${y(0).toFixed(1)}L${x(first.at).toFixed(1)} ${y(0).toFixed(1)}Z`;
}

function spoken(title: string, series: readonly Series[], format: (value: number) => string): string {
  const parts = series.map((each) => {
    const values = each.points.flatMap((point) => (point.value === null ? [] : [point.value]));
    if (values.length === 0) return `${each.name}: no values`;
    return `${each.name}: now ${format(values.at(-1) ?? 0)}, least ${format(Math.min(...values))}, most ${format(Math.max(...values))}`;
  });
  return `${title}. ${parts.join(". ")}. Arrow keys read single points.`;
}
