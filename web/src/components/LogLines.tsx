/** Lines of a log: only those in sight are in the page, and the newest stay in sight until one scrolls up. */
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, useState } from "react";
import type { Schemas } from "@/api/client";
import { Button } from "./Button";
import { Clock } from "./Time";
import css from "./LogLines.module.css";

export type LogLine = Schemas["LogLine"];

export function LogLines({ label, lines, versions = false, paused = false, short = false }: {
  /** What is logged, for screen readers. */
  label: string;
  lines: readonly LogLine[];
  /** Whether each line says which version wrote it. */
  versions?: boolean;
  /** Lines that come do not move the view. */
  paused?: boolean;
  /** No higher than its lines: beside other things. */
  short?: boolean;
}) {
  const place = useRef<HTMLDivElement>(null);
  const [stuck, setStuck] = useState(true);
  const virtual = useVirtualizer({ count: lines.length, getScrollElement: () => place.current, estimateSize: () => 24, overscan: 20 });
  useEffect(() => {
    if (stuck && !paused) virtual.scrollToIndex(lines.length - 1, { align: "end" });
  }, [lines, stuck, paused, virtual]);
  const scrolled = () => {
    const box = place.current;
    if (box !== null) setStuck(box.scrollHeight - box.scrollTop - box.clientHeight < 40);
  };
  return (
    <div className={css["frame"]}>
      <div ref={place} className={css["lines"]} data-short={short} tabIndex={0} role="log" aria-label={label} aria-live="off" onScroll={scrolled}>
        <div style={{ height: virtual.getTotalSize(), position: "relative" }}>
          {virtual.getVirtualItems().map((item) => {
            const line = lines[item.index];
            if (line === undefined) return null;
            return (
              <div key={item.key} data-index={item.index} ref={virtual.measureElement} className={css["line"]} data-stream={line.stream} style={{ transform: `translateY(${item.start}px)` }}>
                <span className={css["time"]}><Clock at={line.at} /></span>
                <span className={css["where"]} title={`${line.node}, ${line.instance}, request ${line.request}`}>{line.node}{versions && ` v${line.version}`}{line.stage !== null && line.stage !== undefined && ` ${line.stage}`}</span>
                <span className={css["text"]}>{line.stream !== "stdout" && <span className={css["stream"]}>{line.stream}</span>}{line.text}</span>
              </div>
            );
          })}
        </div>
      </div>
      {!stuck && <Button small className={css["jump"]} icon="down" onClick={() => virtual.scrollToIndex(lines.length - 1, { align: "end" })}>Newest</Button>}
    </div>
  );
}

/** Saves the lines as they came, one JSON object a line. */
export function saveLog(name: string, lines: readonly LogLine[]): void {
  const text = lines.map((line) => `${JSON.stringify(line)}\n`).join("");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
  link.download = `${name}-${new Date().toISOString().slice(0, 19).replaceAll(":", "")}.ndjson`;
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
