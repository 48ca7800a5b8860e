import { useEffect, useRef, useState } from "react";
import { Button } from "./Button";

/** Copies a text and says that it did. */
export function CopyButton({ text, what, label }: { text: string; what: string; label?: string }) {
  const [copied, setCopied] = useState(false);
  const timer = useRef<number | undefined>(undefined);
  useEffect(() => () => window.clearTimeout(timer.current), []);
  const copy = async () => {
    await copyText(text);
    setCopied(true);
    window.clearTimeout(timer.current);
    timer.current = window.setTimeout(() => setCopied(false), 1600);
  };
  return (
    <>
      <Button small kind="ghost" icon={copied ? "check" : "copy"} aria-label={`Copy ${what}`} onClick={() => void copy()}>
        {label === undefined ? undefined : copied ? "Copied" : label}
      </Button>
      <span className="visually-hidden" role="status">{copied ? `${what} copied` : ""}</span>
    </>
  );
}

/** The clipboard is there on https and on one's own machine only; elsewhere a selection is copied the old way. */
async function copyText(text: string): Promise<void> {
  if (window.isSecureContext) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = document.createElement("textarea");
  area.value = text;
  area.setAttribute("readonly", "");
  area.className = "visually-hidden";
  document.body.append(area);
  area.select();
  // eslint-disable-next-line @typescript-eslint/no-deprecated -- the only way on plain http, where there is no clipboard to write to
  document.execCommand("copy");
  area.remove();
}

/** Text as it is: a command, a file, an answer. */
export function Code({ text, label, copy = true, wrap = false, maxHeight }: {
  text: string;
  label: string;
  copy?: boolean;
  wrap?: boolean;
  maxHeight?: string;
}) {
  return (
    <div className={`code${wrap ? " wrap" : ""}${copy ? " copy" : ""}`}>
      <pre tabIndex={0} role="region" aria-label={label} style={maxHeight === undefined ? undefined : { maxHeight, overflowY: "auto" }}><code>{text}</code></pre>
      {copy && <CopyButton text={text} what={label} label="Copy" />}
    </div>
  );
}

/** A short technical value in a line, with a button that copies it. */
export function Copyable({ text, shown, what }: { text: string; shown?: string; what: string }) {
  return (
    <span className="row-tight">
      <span className="mono truncate" title={text}>{shown ?? text}</span>
      <CopyButton text={text} what={what} />
    </span>
  );
}
