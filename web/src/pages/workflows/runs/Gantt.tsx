/** The time line of a run: a row for each stage, a bar for each attempt. */
import { useCallback, useState } from "react";
import { duration, elapsed, plural } from "@/format";
import { gantt, type Attempt, type Run } from "../model/run";
import styles from "./Gantt.module.css";

const ROW = 30;
const BAR = 16;
const HEAD = 24;
const LEFT = 116;
const RIGHT = 84;

const WORDS: Readonly<Record<Attempt["outcome"], string>> = {
  running: "running", done: "done", not_started: "not started", lost: "lost", answered: "answered with an error", refused: "refused", cancelled: "cancelled",
};

/** What became of an attempt, in words. */
export function outcomeWord(outcome: Attempt["outcome"]): string {
  return WORDS[outcome];
}

function tone(outcome: Attempt["outcome"]): string | undefined {
  if (outcome === "done") return styles.done;
  if (outcome === "running") return styles.running;
  return outcome === "cancelled" || outcome === "not_started" ? styles.faint : styles.failed;
}

export function Gantt({ run, now, selected, onSelect }: { run: Run; now: number; selected?: string; onSelect?: (stage: string) => void }) {
  const [width, setWidth] = useState(720);
  const place = useCallback((element: HTMLElement | null) => {
    if (element === null) return undefined;
    const observer = new ResizeObserver(() => setWidth(Math.max(300, element.clientWidth)));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const { span, rows, ticks } = gantt(run, now);
  const inner = Math.max(80, width - LEFT - RIGHT);
  const x = (share: number) => LEFT + share * inner;
  const height = HEAD + rows.length * ROW + 4;
  const shown = inner / ticks.length < 56 ? ticks.filter((_, index) => index % 2 === 0) : ticks;
  return (
    <div ref={place} className={styles.frame} tabIndex={0} role="region" aria-label="Time line">
      <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={`Time line of the run: ${duration(span)} for ${plural(rows.length, "stage")}. The table below has the same figures.`}>
        {shown.map((tick) => (
          <g key={tick}>
            <line x1={x(tick / span)} x2={x(tick / span)} y1={HEAD - 4} y2={height} className={styles.grid} />
            <text x={x(tick / span)} y={HEAD - 9} textAnchor="middle" className={styles.tick}>{duration(tick)}</text>
          </g>
        ))}
        {rows.map((row, index) => {
          const y = HEAD + index * ROW;
          const total = row.bars.length === 0 ? null : Math.max(...row.bars.map((bar) => bar.to)) - Math.min(...row.bars.map((bar) => bar.from));
          const end = Math.max(0, ...row.bars.map((bar) => bar.to));
          return (
            <g key={row.stage} onClick={() => onSelect?.(row.stage)}>
              <rect x={0} y={y} width={width} height={ROW} className={row.stage === selected ? styles.selected : styles.row} />
              <text x={8} y={y + ROW / 2 + 4} className={styles.name}>{row.stage.length > 14 ? `${row.stage.slice(0, 13)}…` : row.stage}<title>{row.stage}</title></text>
              {row.bars.map((bar) => (
                <rect key={bar.attempt.attempt} x={x(bar.from)} y={y + (ROW - BAR) / 2} width={Math.max(3, (bar.to - bar.from) * inner)} height={BAR} rx={3} className={tone(bar.attempt.outcome)}>
                  <title>{`${row.stage}, attempt ${bar.attempt.attempt} in ${bar.attempt.cluster}: ${outcomeWord(bar.attempt.outcome)}, ${elapsed(bar.ms)}`}</title>
                </rect>
              ))}
              <text x={total === null ? LEFT : x(end) + 6} y={y + ROW / 2 + 4} className={styles.took}>{total === null ? "not run" : elapsed(Math.round(total * span))}</text>
            </g>
          );
        })}
      </svg>
    </div>
  );
}

/** The same in little, for lists. */
export function MiniGantt({ run, now }: { run: Run; now: number }) {
  const { rows } = gantt(run, now);
  const step = Math.min(5, 24 / Math.max(1, rows.length));
  const top = (24 - rows.length * step) / 2;
  return (
    <svg width={120} height={24} viewBox="0 0 120 24" aria-hidden="true">
      {rows.flatMap((row, index) => row.bars.map((bar) => (
        <rect key={`${row.stage} ${bar.attempt.attempt}`} x={bar.from * 116} y={top + index * step} width={Math.max(2, (bar.to - bar.from) * 116)} height={Math.max(1, step - 1)} className={tone(bar.attempt.outcome)} />
      )))}
    </svg>
  );
}
