import { useId, useMemo, useRef } from "react";
import { CopyButton, Notice } from "@/components";
import type { Fault } from "../model/yaml";
import { paint } from "./paint";
import styles from "./YamlEditor.module.css";

/** The file of the workflow. What is typed is on the canvas with the next key, as long as it can be read. */
export function YamlEditor({ text, faults, onChange, readOnly = false }: { text: string; faults: readonly Fault[]; onChange: (text: string) => void; readOnly?: boolean }) {
  const id = useId();
  const lines = text.split("\n");
  const widest = lines.reduce((most, line) => Math.max(most, line.length), 20);
  const wrong = new Set(faults.map((fault) => fault.line));
  const painted = useMemo(() => paint(text), [text]);
  const field = useRef<HTMLTextAreaElement>(null);
  return (
    <div className="stack-s">
      <div className="row between">
        <label htmlFor={id} className="strong small">The workflow as a file</label>
        <CopyButton text={text} what="file" label="Copy" />
      </div>
      <div className={styles.frame} data-wrong={faults.length > 0 || undefined}>
        <div className={styles.gutter} aria-hidden="true">
          {lines.map((_, index) => <div key={index} className={wrong.has(index + 1) ? styles.wrong : undefined}>{index + 1}</div>)}
        </div>
        <div className={styles.body}>
          <pre aria-hidden="true">{painted.map((part, index) => <span key={index} className={part.kind === "plain" ? undefined : styles[part.kind]}>{part.text}</span>)}{"\n"}</pre>
          <textarea id={id} ref={field} value={text} readOnly={readOnly} onChange={(event) => onChange(event.target.value)} rows={lines.length + 1} cols={widest + 2} wrap="off"
            spellCheck={false} autoCapitalize="off" autoComplete="off" aria-invalid={faults.length > 0 || undefined} aria-describedby={faults.length > 0 ? `${id}-faults` : undefined} />
        </div>
      </div>
      <div id={`${id}-faults`} role="status" className="stack-s">
        {faults.map((fault, index) => (
          <Notice key={index} tone="bad">{fault.line === undefined ? fault.text : `Line ${fault.line}: ${fault.text}`}</Notice>
        ))}
        {faults.length > 0 && <p className="small muted">The canvas shows the last text that could be read, and can be drawn on again when this one can.</p>}
      </div>
    </div>
  );
}
