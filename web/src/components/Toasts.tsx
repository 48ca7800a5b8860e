/** Short messages that go by themselves, with undo where a change can be taken back. */
import { createContext, useCallback, useContext, useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import { ApiError } from "@/api/problem";
import { Button } from "./Button";
import { messageOf, sentence } from "./States";

export interface Toast {
  text: ReactNode;
  bad?: boolean;
  /** Takes the change back. */
  undo?: () => Promise<unknown> | undefined;
}

interface Shown extends Toast {
  id: number;
}

type Say = (toast: Toast | string) => void;

const Context = createContext<Say>(() => undefined);

/** Says something in a toast. */
export function useToast(): Say {
  return useContext(Context);
}

/** Says in a toast what went wrong. */
export function useToastError(): (error: unknown) => void {
  const say = useToast();
  return useCallback((error: unknown) => {
    const code = error instanceof ApiError ? ` (${error.code})` : "";
    say({ text: `${sentence(messageOf(error))}${code}`, bad: true });
  }, [say]);
}

const LIFE = 6000;
const LIFE_WITH_UNDO = 12_000;
const MOST = 4;

export function ToastProvider({ children }: { children: ReactNode }) {
  const [toasts, setToasts] = useState<Shown[]>([]);
  const next = useRef(0);
  const drop = useCallback((id: number) => setToasts((now) => now.filter((toast) => toast.id !== id)), []);
  const say = useCallback<Say>((toast) => {
    next.current += 1;
    const id = next.current;
    setToasts((now) => [...now, { ...(typeof toast === "string" ? { text: toast } : toast), id }].slice(-MOST));
  }, []);
  const list = useMemo(() => toasts.map((toast) => <Item key={toast.id} toast={toast} drop={drop} say={say} />), [toasts, drop, say]);
  return (
    <Context value={say}>
      {children}
      <div className="toasts" role="status" aria-live="polite" aria-label="Messages">{list}</div>
    </Context>
  );
}

function Item({ toast, drop, say }: { toast: Shown; drop: (id: number) => void; say: Say }) {
  const [held, setHeld] = useState(false);
  useEffect(() => {
    if (held) return undefined;
    const timer = window.setTimeout(() => drop(toast.id), toast.undo === undefined ? LIFE : LIFE_WITH_UNDO);
    return () => window.clearTimeout(timer);
  }, [held, toast, drop]);
  const undo = async () => {
    drop(toast.id);
    try {
      await toast.undo?.();
    } catch (error) {
      say({ text: sentence(messageOf(error)), bad: true });
    }
  };
  return (
    <div className={toast.bad === true ? "toast bad" : "toast"} onMouseEnter={() => setHeld(true)} onMouseLeave={() => setHeld(false)}
      onFocus={() => setHeld(true)} onBlur={() => setHeld(false)}>
      <div>{toast.text}</div>
      {toast.undo !== undefined && <Button small kind="ghost" icon="undo" onClick={() => void undo()}>Undo</Button>}
      <Button small kind="ghost" icon="close" aria-label="Dismiss" onClick={() => drop(toast.id)} />
    </div>
  );
}
