import type { ReactNode } from "react";

/** A part of a page with a heading. */
export function Card({ title, actions, children, flush = false, foot, className }: {
  title?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
  /** Without padding, for tables. */
  flush?: boolean;
  foot?: ReactNode;
  className?: string;
}) {
  return (
    <section className={`card ${className ?? ""}`}>
      {(title !== undefined || actions !== undefined) && (
        <header className="card-head">
          {title !== undefined && <h2>{title}</h2>}
          {actions}
        </header>
      )}
      <div className={flush ? "card-body flush" : "card-body"}>{children}</div>
      {foot !== undefined && <footer className="card-foot">{foot}</footer>}
    </section>
  );
}

/** Single numbers side by side. */
export function Stats({ children }: { children: ReactNode }) {
  return <dl className="stats">{children}</dl>;
}

export function Stat({ label, value, unit, note }: { label: string; value: ReactNode; unit?: string; note?: ReactNode }) {
  return (
    <div className="stat">
      <dt>{label}</dt>
      <dd>
        {value} {unit !== undefined && <small>{unit}</small>}
        {note !== undefined && <div className="note">{note}</div>}
      </dd>
    </div>
  );
}

/** Names with their values. */
export function Pairs({ items }: { items: readonly (readonly [ReactNode, ReactNode] | false | null | undefined)[] }) {
  return (
    <dl className="pairs">
      {items.filter((item) => Array.isArray(item)).map(([name, value], index) => (
        <div key={index} style={{ display: "contents" }}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
