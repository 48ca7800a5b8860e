/** The menu of the person who is signed in. */
import { useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useEffect, useId, useRef, useState } from "react";
import { api, body, setSession } from "@/api/client";
import { useSession } from "@/api/session";
import { Button } from "@/components/Button";
import { Icon } from "@/components/Icon";
import { useToastError } from "@/components/Toasts";
import { ThemeSwitch, ZoneSwitch } from "./Shell";

export function AccountMenu() {
  const who = useSession();
  const [open, setOpen] = useState(false);
  const id = useId();
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return undefined;
    const away = (event: Event) => {
      if (event instanceof KeyboardEvent && event.key !== "Escape") return;
      if (event.type === "pointerdown" && place.current?.contains(event.target as Node) === true) return;
      setOpen(false);
      if (event instanceof KeyboardEvent) place.current?.querySelector<HTMLElement>("button")?.focus();
    };
    document.addEventListener("pointerdown", away);
    document.addEventListener("keydown", away);
    return () => {
      document.removeEventListener("pointerdown", away);
      document.removeEventListener("keydown", away);
    };
  }, [open]);
  return (
    <div ref={place} style={{ position: "relative" }}>
      <Button kind="ghost" icon="account" aria-expanded={open} aria-controls={id} aria-label={`Account of ${who.user}`} onClick={() => setOpen(!open)}>
        <span className="account-name">{who.user}</span>
      </Button>
      <div className="menu" id={id} hidden={!open} style={{ insetInlineEnd: 0 }}>
        <div className="menu-who"><strong>{who.user}</strong>{who.network_role !== null && who.network_role !== undefined && <span className="faint">{who.network_role} of the network</span>}</div>
        <Link className="menu-item" to="/account" onClick={() => setOpen(false)}><Icon name="account" />Profile, sessions, tokens</Link>
        <div className="menu-switches"><ThemeSwitch /><ZoneSwitch /></div>
        <SignOut />
      </div>
    </div>
  );
}

function SignOut() {
  const navigate = useNavigate();
  const queries = useQueryClient();
  const failed = useToastError();
  const out = async () => {
    try {
      await body(api.DELETE("/v1/session"));
    } catch (error) {
      failed(error);
      return;
    }
    setSession(null);
    await navigate({ to: "/sign-in" });
    queries.clear();
  };
  return <button type="button" className="menu-item" onClick={() => void out()}><Icon name="out" />Sign out</button>;
}
