/**
 * A table of many rows: only those in sight are in the page, columns go when there is no room, sorting and filter are in the address.
 *
 * Arrow keys, Home, End and the page keys move from row to row, Enter opens one.
 */
import { useWindowVirtualizer } from "@tanstack/react-virtual";
import { useCallback, useLayoutEffect, useMemo, useRef, useState, type CSSProperties, type KeyboardEvent, type ReactNode } from "react";
import { useParam } from "@/app/search";
import { count } from "@/format";
import { useSize } from "./chart/useSize";
import { Icon } from "./Icon";
import { compare, type Sortable } from "./sort";

export interface Column<T> {
  id: string;
  header: string;
  cell: (row: T) => ReactNode;
  /** What rows are sorted by; without it the column cannot be sorted by. */
  sort?: (row: T) => Sortable;
  /** Of a CSS grid, such as `8rem` or `minmax(10rem, 2fr)`. */
  width?: string;
  number?: boolean;
  /** The width of the table, in pixels, from which on the column is shown. */
  from?: number;
  /** The width below which it is shown, for what says the same as wider columns in less room. */
  until?: number;
}

interface Props<T> {
  /** What the rows are, for screen readers. */
  label: string;
  rows: readonly T[];
  columns: readonly Column<T>[];
  rowKey: (row: T) => string;
  /** What Enter and a click on the row do. The first cell should hold a link to the same place. */
  onOpen?: (row: T) => void;
  /** The column's id, with `-` in front for the other way round. */
  defaultSort?: string;
  /** The name of the parameter in the address; several tables on a page need several. */
  sortParam?: string;
  rowHeight?: number;
  /** Called when the end of the rows comes near. */
  onEnd?: () => void;
}

/** Up to so many rows all are in the page. */
export const FEW = 80;

/** Below that width, in pixels, the column `act` of a row stands below the others. */
const NARROW = 560;

export function Table<T>({ label, rows, columns, rowKey, onOpen, defaultSort = "", sortParam = "sort", rowHeight = 42, onEnd }: Props<T>) {
  const [order, setOrder] = useParam(sortParam, defaultSort);
  const [place, width] = useSize();
  const shown = useMemo(() => columns.filter((column) => (width === 0 ? column.until === undefined : width >= (column.from ?? 0) && width < (column.until ?? Infinity))), [columns, width]);
  const below = width > 0 && width < NARROW;
  const sorted = useMemo(() => sortRows(rows, columns, order), [rows, columns, order]);
  const grid: CSSProperties = { gridTemplateColumns: shown.filter((column) => !below || column.id !== "act").map((column) => column.width ?? "minmax(6rem, 1fr)").join(" ") };
  return (
    <div className="table" role="table" aria-label={label} aria-rowcount={sorted.length + 1} aria-colcount={shown.length} ref={place}>
      <div className="thead" role="rowgroup">
        <div className="tr" role="row" aria-rowindex={1} style={grid}>
          {shown.filter((column) => !below || column.id !== "act").map((column) => <Head key={column.id} column={column} order={order} onOrder={setOrder} />)}
        </div>
      </div>
      <Body rows={sorted} columns={shown} grid={grid} below={below} rowKey={rowKey} onOpen={onOpen} rowHeight={rowHeight} onEnd={onEnd} />
    </div>
  );
}

function sortRows<T>(rows: readonly T[], columns: readonly Column<T>[], order: string): readonly T[] {
  const down = order.startsWith("-");
  const by = columns.find((column) => column.id === order.replace(/^-/, ""))?.sort;
  if (by === undefined) return rows;
  return [...rows].sort((a, b) => (down ? -1 : 1) * compare(by(a), by(b)));
}

function Head<T>({ column, order, onOrder }: { column: Column<T>; order: string; onOrder: (order: string) => void }) {
  const up = order === column.id;
  const down = order === `-${column.id}`;
  const sorted = up ? "ascending" : down ? "descending" : undefined;
  const names = column.number === true ? "th num" : "th";
  if (column.sort === undefined) {
    return <div className={names} role="columnheader">{column.header === "" ? <span className="visually-hidden">Actions</span> : column.header}</div>;
  }
  return (
    <div className={names} role="columnheader" aria-sort={sorted}>
      <button type="button" onClick={() => onOrder(up ? `-${column.id}` : column.id)}>
        {column.header}
        {(up || down) && <Icon name={up ? "up" : "down"} size={12} />}
      </button>
    </div>
  );
}

interface BodyProps<T> {
  rows: readonly T[];
  columns: readonly Column<T>[];
  grid: CSSProperties;
  below: boolean;
  rowKey: (row: T) => string;
  onOpen: ((row: T) => void) | undefined;
  rowHeight: number;
  onEnd: (() => void) | undefined;
}

function Body<T>(props: BodyProps<T>) {
  return props.rows.length <= FEW && props.onEnd === undefined ? <WholeBody {...props} /> : <VirtualBody {...props} />;
}

/** Keys that move from row to row; `focus` brings a row into sight and focuses it. */
function useRowKeys<T>(rows: readonly T[], onOpen: ((row: T) => void) | undefined, focus: (index: number) => void) {
  return useCallback((event: KeyboardEvent<HTMLElement>) => {
    const row = (event.target as HTMLElement).closest<HTMLElement>("[data-index]");
    if (row === null || event.target !== row) return;
    const at = Number(row.dataset["index"]);
    const steps: Record<string, number> = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1, PageDown: at + 15, PageUp: at - 15 };
    const to = steps[event.key];
    if (to !== undefined) {
      event.preventDefault();
      focus(Math.min(rows.length - 1, Math.max(0, to)));
    } else if (event.key === "Enter") {
      const opened = rows[at];
      // Otherwise the key would press what is opened too, such as the button that closes it.
      event.preventDefault();
      if (opened !== undefined) onOpen?.(opened);
    }
  }, [rows, onOpen, focus]);
}

function WholeBody<T>({ rows, columns, grid, below, rowKey, onOpen }: BodyProps<T>) {
  const body = useRef<HTMLDivElement>(null);
  const focus = useCallback((index: number) => body.current?.querySelector<HTMLElement>(`[data-index="${index}"]`)?.focus(), []);
  const keys = useRowKeys(rows, onOpen, focus);
  return (
    <div className="tbody" role="rowgroup" ref={body} onKeyDown={keys}>
      {rows.map((row, index) => <Row key={rowKey(row)} row={row} index={index} columns={columns} below={below} style={grid} onOpen={onOpen} first={index === 0} />)}
    </div>
  );
}

function VirtualBody<T>({ rows, columns, grid, below, rowKey, onOpen, rowHeight, onEnd }: BodyProps<T>) {
  const body = useRef<HTMLDivElement>(null);
  const [margin, setMargin] = useState(0);
  // What stands above the table may grow while its rows are there, so its place is measured each time rows come or go.
  useLayoutEffect(() => {
    setMargin((body.current?.getBoundingClientRect().top ?? 0) + window.scrollY);
  }, [rows.length]);
  const virtual = useWindowVirtualizer({ count: rows.length, estimateSize: () => rowHeight, overscan: 12, scrollMargin: margin });
  const focus = useCallback((index: number) => {
    virtual.scrollToIndex(index, { align: "auto" });
    requestAnimationFrame(() => requestAnimationFrame(() => body.current?.querySelector<HTMLElement>(`[data-index="${index}"]`)?.focus({ preventScroll: true })));
  }, [virtual]);
  const keys = useRowKeys(rows, onOpen, focus);
  const items = virtual.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  useLayoutEffect(() => {
    if (onEnd !== undefined && last >= rows.length - 20) onEnd();
  }, [last, rows.length, onEnd]);
  return (
    <div className="tbody" role="rowgroup" ref={body} onKeyDown={keys} style={{ height: virtual.getTotalSize() }}>
      {items.map((item) => {
        const row = rows[item.index];
        if (row === undefined) return null;
        const style = { ...grid, transform: `translateY(${item.start - margin}px)` };
        return <Row key={rowKey(row)} row={row} index={item.index} columns={columns} below={below} style={style} onOpen={onOpen} measure={virtual.measureElement} virtual first={items[0]?.index === item.index} />;
      })}
    </div>
  );
}

function Row<T>({ row, index, columns, below, style, onOpen, measure, virtual = false, first }: {
  row: T;
  index: number;
  columns: readonly Column<T>[];
  below: boolean;
  style: CSSProperties;
  onOpen: ((row: T) => void) | undefined;
  measure?: (element: Element | null) => void;
  virtual?: boolean;
  /** Whether the tab key stops at this row. */
  first: boolean;
}) {
  const open = (target: EventTarget) => {
    // Links, buttons and fields in the row act by themselves, and text that is selected is not a click.
    if (!(target instanceof Element) || target.closest("a, button, input, select, label") !== null) return;
    if (window.getSelection()?.isCollapsed === false) return;
    onOpen?.(row);
  };
  return (
    <div className={`tr${virtual ? " virtual" : ""}${onOpen === undefined ? "" : " openable"}`} role="row" aria-rowindex={index + 2} data-index={index} ref={measure}
      tabIndex={onOpen === undefined ? undefined : first ? 0 : -1} style={style} onClick={(event) => open(event.target)}>
      {columns.map((column) => <div key={column.id} className={classOf(column, below)} role="cell">{column.cell(row)}</div>)}
    </div>
  );
}

function classOf<T>(column: Column<T>, below: boolean): string {
  if (below && column.id === "act") return "td below";
  return column.number === true ? "td num" : "td truncate";
}

/** A field above a table that filters it; the text stands in the address as `q`. */
export function SearchBox({ label, param = "q", found }: { label: string; param?: string; found?: number }) {
  const [text, setText] = useParam(param, "");
  return (
    <div className="search">
      <Icon name="search" size={14} />
      <input className="input" type="search" aria-label={label} placeholder={label} value={text} onChange={(event) => setText(event.target.value)} />
      <span className="visually-hidden" role="status">{found === undefined || text === "" ? "" : `${count(found)} found`}</span>
    </div>
  );
}
