/** What is around every page: navigation at the side, tenant, theme, zone and account at the top. */
import { useQuery } from "@tanstack/react-query";
import { Link, Outlet, useRouterState } from "@tanstack/react-router";
import { Suspense, useEffect, useRef, useState } from "react";
import { api, body } from "@/api/client";
import { EventsProvider, useLive } from "@/api/events";
import { may, useSession } from "@/api/session";
import { Button, Segmented } from "@/components/Button";
import { Icon } from "@/components/Icon";
import { Loading } from "@/components/States";
import { AccountMenu } from "./AccountMenu";
import { Logo } from "./Logo";
import { NAV } from "./nav";
import { TenantChoice } from "./TenantChoice";
import { useTheme, type Theme } from "./theme";
import { useZone } from "./zone";

export function Shell() {
  const path = useRouterState({ select: (state) => state.location.pathname });
  // The drawer is open on the page that it was opened on, so following one of its links closes it.
  const [openOn, setOpenOn] = useState<string | null>(null);
  useFocusOnRoute(path);
  return (
    <EventsProvider>
      <a className="skip" href="#main">Skip to the page</a>
      <div className="shell">
        <aside className="sidebar"><SideNav /></aside>
        {openOn === path && <Drawer onClose={() => setOpenOn(null)} />}
        <div className="frame">
          <TopBar onMenu={() => setOpenOn(path)} />
          <main className="main" id="main" tabIndex={-1}>
            <Suspense fallback={<Loading lines={6} />}><Outlet /></Suspense>
          </main>
        </div>
      </div>
    </EventsProvider>
  );
}

/** After a change of the page the focus is on its title, where screen readers begin to read. The first page keeps the browser's own focus. */
function useFocusOnRoute(path: string) {
  const before = useRef(path);
  useEffect(() => {
    if (before.current === path) return undefined;
    before.current = path;
    const frame = requestAnimationFrame(() => {
      const title = document.querySelector<HTMLElement>("[data-page-title]") ?? document.getElementById("main");
      title?.focus({ preventScroll: true });
    });
    return () => cancelAnimationFrame(frame);
  }, [path]);
}

function SideNav() {
  const who = useSession();
  const network = useQuery({ queryKey: ["network"], queryFn: () => body(api.GET("/v1/network")), staleTime: 3_600_000 });
  return (
    <>
      <Link to="/" className="brand">
        <Logo />
        <span>FDN<small>{network.data === undefined ? "Function delivery network" : `zone ${network.data.zone}`}</small></span>
      </Link>
      <nav className="nav" aria-label="Pages">
        {NAV.map((group) => {
          const items = group.items.filter((item) => item.right === undefined || may(who, item.right));
          if (items.length === 0) return null;
          return (
            <div key={group.title ?? ""} className="nav">
              {group.title !== null && <div className="nav-title">{group.title}</div>}
              {items.map((item) => (
                <Link key={item.to} to={item.to} activeOptions={{ exact: item.to === "/", includeSearch: false }}>
                  <Icon name={item.icon} />
                  {item.label}
                </Link>
              ))}
            </div>
          );
        })}
      </nav>
      <div className="sidebar-foot">
        {network.data !== undefined && <>Controller {network.data.version}<br /></>}
        <a href="/docs" target="_blank" rel="noreferrer">Documentation</a><br />
        <a href="/api/openapi.json" target="_blank" rel="noreferrer">API reference</a>
      </div>
    </>
  );
}

function Drawer({ onClose }: { onClose: () => void }) {
  const place = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = place.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog className="drawer" ref={place} aria-label="Navigation" onClose={onClose} onClick={(event) => { if (event.target === place.current) onClose(); }}>
      <div className="sidebar">
        <Button kind="ghost" icon="close" aria-label="Close the navigation" className="end" onClick={onClose} />
        <SideNav />
      </div>
    </dialog>
  );
}

function TopBar({ onMenu }: { onMenu: () => void }) {
  return (
    <header className="topbar">
      <Button kind="ghost" icon="menu" aria-label="Open the navigation" className="menu-button" onClick={onMenu} />
      <TenantChoice />
      <span className="end" />
      <LiveMark />
      <span className="wide"><ZoneSwitch /></span>
      <span className="wide"><ThemeSwitch /></span>
      <AccountMenu />
    </header>
  );
}

function LiveMark() {
  const live = useLive();
  return <span className="live" data-on={live} role="status" title={live ? "Changes are shown as they happen" : "Not connected; trying again"}>{live ? "Live" : "Offline"}</span>;
}

export function ZoneSwitch() {
  const { zone, setZone } = useZone();
  return (
    <Segmented label="Time zone" value={zone} onChange={setZone}
      options={[{ value: "local", label: "Local", title: "Times in this machine's zone" }, { value: "utc", label: "UTC", title: "Times in UTC" }]} />
  );
}

export function ThemeSwitch() {
  const { theme, setTheme } = useTheme();
  const options: { value: Theme; label: React.ReactNode; title: string }[] = [
    { value: "light", label: <Icon name="sun" />, title: "Light" },
    { value: "dark", label: <Icon name="moon" />, title: "Dark" },
    { value: "system", label: <Icon name="system" />, title: "As the system" },
  ];
  return <Segmented label="Theme" value={theme} onChange={setTheme} options={options} />;
}
