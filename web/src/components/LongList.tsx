/** A list of rows of any height: of many, only those in sight are in the page. For rows that are no table; `Table` is for those that are. */
import { useWindowVirtualizer } from "@tanstack/react-virtual";
import { useLayoutEffect, useRef, useState, type ReactNode } from "react";
import { FEW } from "./Table";

interface Props<T> {
  /** What the rows are, for screen readers. */
  label: string;
  rows: readonly T[];
  rowKey: (row: T) => string;
  children: (row: T) => ReactNode;
  className?: string | undefined;
  /** About how high a row is, in pixels, until it is measured. */
  rowHeight: number;
  /** Whether a row is the one that is spoken of; styles find it as `data-chosen`. */
  chosen?: (row: T) => boolean;
}

export function LongList<T>(props: Props<T>) {
  const { label, rows, rowKey, children, className, chosen } = props;
  if (rows.length > FEW) return <Virtual {...props} />;
  return (
    <ul className={className} aria-label={label}>
      {rows.map((row) => <li key={rowKey(row)} data-chosen={chosen?.(row) === true || undefined}>{children(row)}</li>)}
    </ul>
  );
}

function Virtual<T>({ label, rows, rowKey, children, className, rowHeight, chosen }: Props<T>) {
  const list = useRef<HTMLUListElement>(null);
  const [margin, setMargin] = useState(0);
  useLayoutEffect(() => {
    setMargin((list.current?.getBoundingClientRect().top ?? 0) + window.scrollY);
  }, [rows.length]);
  const virtual = useWindowVirtualizer({ count: rows.length, estimateSize: () => rowHeight, overscan: 8, scrollMargin: margin });
  return (
    <ul className={`long ${className ?? ""}`} aria-label={label} ref={list} style={{ height: virtual.getTotalSize() }}>
      {virtual.getVirtualItems().map((item) => {
        const row = rows[item.index];
        if (row === undefined) return null;
        return (
          <li key={rowKey(row)} ref={virtual.measureElement} data-index={item.index} aria-setsize={rows.length} aria-posinset={item.index + 1}
            data-chosen={chosen?.(row) === true || undefined} style={{ transform: `translateY(${item.start - margin}px)` }}>
            {children(row)}
          </li>
        );
      })}
    </ul>
  );
}
