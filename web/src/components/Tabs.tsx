import { Link, useRouterState } from "@tanstack/react-router";
import { useEffect, useRef, useState, type KeyboardEvent, type ReactNode, type RefObject } from "react";

/** Where tabs go on beyond what there is room for. The one that is chosen is brought into sight whenever the choice or the room changes. */
function useRoom(chosen: string): { place: RefObject<HTMLDivElement | null>; more: "start" | "end" | "both" | undefined } {
  const place = useRef<HTMLDivElement>(null);
  const [more, setMore] = useState<"start" | "end" | "both">();
  useEffect(() => {
    const element = place.current;
    if (element === null) return undefined;
    const look = () => {
      const start = element.scrollLeft > 1;
      const end = element.scrollLeft + element.clientWidth < element.scrollWidth - 1;
      setMore(start && end ? "both" : start ? "start" : end ? "end" : undefined);
    };
    const show = () => {
      const tab = element.querySelector<HTMLElement>("[aria-current=page], [aria-selected=true]");
      if (tab !== null) element.scrollLeft = Math.max(0, tab.offsetLeft - element.offsetLeft - (element.clientWidth - tab.offsetWidth) / 2);
      look();
    };
    const observer = new ResizeObserver(show);
    observer.observe(element);
    element.addEventListener("scroll", look, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", look);
    };
  }, [chosen]);
  return { place, more };
}

/** Tabs that are pages of their own, each with an address. */
export function TabLinks({ label, items }: { label: string; items: readonly { to: string; label: ReactNode; exact?: boolean }[] }) {
  const path = useRouterState({ select: (state) => state.location.pathname });
  const { place, more } = useRoom(path);
  return (
    <nav className="tabs" aria-label={label} ref={place} data-more={more}>
      {items.map((item) => (
        <Link key={item.to} to={item.to} search={keepTenant} activeOptions={{ exact: item.exact ?? true, includeSearch: false }}>{item.label}</Link>
      ))}
    </nav>
  );
}

/** A page's own filters stay behind when one leaves it; the chosen tenant goes along. */
function keepTenant(search: Record<string, string | undefined>): Record<string, string | undefined> {
  return search["tenant"] === undefined ? {} : { tenant: search["tenant"] };
}

/** Tabs inside a page. Arrow keys move between them; what they show is the caller's, inside `panel`. */
export function Tabs<T extends string>({ label, value, items, onChange, children }: {
  label: string;
  value: T;
  items: readonly { value: T; label: ReactNode }[];
  onChange: (value: T) => void;
  children: ReactNode;
}) {
  const { place, more } = useRoom(value);
  const move = (event: KeyboardEvent) => {
    const at = items.findIndex((item) => item.value === value);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const to = event.key === "Home" ? 0 : event.key === "End" ? items.length - 1 : step === undefined ? -1 : (at + step + items.length) % items.length;
    const item = items[to];
    if (item === undefined) return;
    event.preventDefault();
    onChange(item.value);
    place.current?.querySelectorAll<HTMLElement>("[role=tab]")[to]?.focus();
  };
  return (
    <>
      <div className="tabs" role="tablist" aria-label={label} data-more={more} onKeyDown={move} ref={place}>
        {items.map((item) => (
          <button key={item.value} type="button" role="tab" id={`tab-${item.value}`} aria-controls={`panel-${item.value}`} aria-selected={item.value === value}
            tabIndex={item.value === value ? 0 : -1} onClick={() => onChange(item.value)}>
            {item.label}
          </button>
        ))}
      </div>
      <div role="tabpanel" id={`panel-${value}`} aria-labelledby={`tab-${value}`}>{children}</div>
    </>
  );
}
