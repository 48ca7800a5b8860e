/** Dialogs on the browser's own `<dialog>`: it keeps the focus inside, closes on Escape, and gives the focus back. */
import { useEffect, useId, useRef, useState, type ReactNode } from "react";
import { Button } from "./Button";
import { TextField } from "./Fields";
import { ErrorNotice } from "./States";

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ReactNode;
  /** Buttons at the end. */
  foot?: ReactNode;
  wide?: boolean;
  /** Makes the dialog a form. */
  onSubmit?: () => void;
}

const BEGIN = [".dialog-body :is(input, select, textarea, button):not([hidden], [readonly], :disabled)", ".dialog-foot button:not(:disabled)"].map((part) => `:scope ${part}`).join(", ");

/** Open as long as it is rendered. */
export function Dialog({ title, onClose, children, foot, wide = false, onSubmit }: DialogProps) {
  const place = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = place.current;
    const before = document.activeElement;
    dialog?.showModal();
    return () => {
      dialog?.close();
      // What opened it may be gone, such as a row that was removed; then reading goes on at the page's title.
      const next = before instanceof HTMLElement && before.isConnected ? before : document.querySelector<HTMLElement>("[data-page-title]");
      next?.focus({ preventScroll: true });
    };
  }, []);
  useEffect(() => {
    // The browser would begin at the button that closes it. What is asked for, or can be copied, comes first; without that, the button that
    // changes nothing. Where one dialog follows another in the same place, such as a token after what it is for, the focus begins anew in it.
    place.current?.querySelector<HTMLElement>(BEGIN)?.focus();
  }, [title]);
  const inner = (
    <>
      <div className="dialog-head">
        <h2 id={id}>{title}</h2>
        <Button kind="ghost" icon="close" aria-label="Close" onClick={onClose} />
      </div>
      <div className="dialog-body">{children}</div>
      {foot !== undefined && <div className="dialog-foot">{foot}</div>}
    </>
  );
  return (
    <dialog ref={place} className={wide ? "dialog wide" : "dialog"} aria-labelledby={id} onCancel={(event) => { event.preventDefault(); onClose(); }}>
      {onSubmit === undefined ? inner : <form onSubmit={(event) => { event.preventDefault(); onSubmit(); }}>{inner}</form>}
    </dialog>
  );
}

/** Asks before something is destroyed. With `word`, that word has to be typed. */
export function Confirm({ title, children, action, word, onConfirm, onClose }: {
  title: string;
  children: ReactNode;
  /** What the button says: the deed itself. */
  action: string;
  word?: string;
  onConfirm: () => Promise<unknown>;
  onClose: () => void;
}) {
  const [typed, setTyped] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const ready = word === undefined || typed === word;
  const confirm = async () => {
    if (!ready || busy) return;
    setBusy(true);
    setError(null);
    try {
      await onConfirm();
      onClose();
    } catch (thrown) {
      setError(thrown);
      setBusy(false);
    }
  };
  const foot = (
    <>
      <Button onClick={onClose}>Cancel</Button>
      <Button type="submit" kind="danger solid" busy={busy} disabled={!ready}>{action}</Button>
    </>
  );
  return (
    <Dialog title={title} onClose={onClose} foot={foot} onSubmit={() => void confirm()}>
      <div className="stack-s muted">{children}</div>
      {word !== undefined && (
        <TextField label={<>Type <code>{word}</code> to confirm</>} value={typed} autoComplete="off" spellCheck={false} onChange={(event) => setTyped(event.target.value)} />
      )}
      <ErrorNotice error={error} />
    </Dialog>
  );
}
