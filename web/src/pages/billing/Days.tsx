import type { Schemas } from "@/api/client";
import { ticks, useSize } from "@/components/chart";
import { compact, money, plural, sum } from "@/format";
import { daysOf } from "./meters";

type Row = Schemas["UsageRow"];

const HEIGHT = 160;
const FOOT = 20;
const HEAD = 8;
const LEFT = 72;

/** Whether any of the days cost something. */
export function costs(rows: readonly Row[]): boolean {
  return rows.some((row) => row.cost.micros > 0);
}

function callsOf(row: Row): number {
  return Number(row.quantities.invocations ?? 0);
}

/** Each day as a bar: its cost, or, as long as nothing costs anything, its calls. The list behind it is there for those who do not see it. */
export function Days({ month, rows }: { month: string; rows: readonly Row[] }) {
  const [place, width] = useSize();
  const paid = costs(rows);
  const currency = rows[0]?.cost.currency ?? "";
  const days = daysOf(month);
  const byDay = new Map(rows.map((row) => [row.name, row]));
  const value = (row: Row) => (paid ? row.cost.micros / 1e6 : callsOf(row));
  const said = (row: Row) => (paid ? money(row.cost) : plural(callsOf(row), "call"));
  const steps = ticks(Math.max(paid ? 0.01 : 4, ...rows.map(value)), 3, !paid);
  const most = steps.at(-1) ?? 1;
  const step = Math.max(1, width - LEFT) / days.length;
  const every = step < 22 ? 5 : 2;
  const y = (amount: number) => HEIGHT - FOOT - (amount / most) * (HEIGHT - HEAD - FOOT);
  const total = sum(rows.map((row) => row.cost));
  const words = paid ? `Cost of each day of ${month}${total === null ? "" : `, ${money(total)} together`}` : `Calls of each day of ${month}, ${compact(rows.reduce((all, row) => all + callsOf(row), 0))} together`;
  return (
    <div ref={place}>
      <svg width={width} height={HEIGHT} viewBox={`0 0 ${width} ${HEIGHT}`} role="img" aria-label={words}>
        {steps.map((amount) => (
          <g key={amount}>
            <line className="chart-grid" x1={LEFT} x2={width} y1={y(amount)} y2={y(amount)} />
            <text className="chart-tick" x={LEFT - 8} y={y(amount)} dy="0.32em" textAnchor="end">{paid ? money({ micros: Math.round(amount * 1e6), currency }) : compact(amount)}</text>
          </g>
        ))}
        {days.map((day, index) => {
          const row = byDay.get(day);
          const number = index + 1;
          const height = row === undefined || value(row) === 0 ? 0 : Math.max(2, HEIGHT - FOOT - y(value(row)));
          return (
            <g key={day}>
              <rect x={LEFT + index * step + step * 0.14} y={HEIGHT - FOOT - height} width={step * 0.72} height={height} rx={Math.min(2, height / 2)} fill="var(--series-1)">
                <title>{`${day}: ${row === undefined ? "nothing" : said(row)}`}</title>
              </rect>
              {number % every === (every === 2 ? 1 : 0) && <text className="chart-tick" x={LEFT + index * step + step / 2} y={HEIGHT - 5} textAnchor="middle">{number}</text>}
            </g>
          );
        })}
      </svg>
      <ul className="visually-hidden">{rows.map((row) => <li key={row.name}>{row.name}: {said(row)}</li>)}</ul>
    </div>
  );
}
