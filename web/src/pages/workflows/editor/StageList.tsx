/** The stages beside the canvas: everything that can be drawn can be done here with the keyboard. */
import { useState } from "react";
import { Button, Icon, SelectField } from "@/components";
import { plural } from "@/format";
import { freeName, type Change, type Draft } from "../model/draft";
import type { Known, Mistake } from "../model/judge";
import { CommitField } from "./CommitField";
import styles from "./Editor.module.css";

export function StageList({ draft, mistakes, selected, onSelect }: { draft: Draft; mistakes: readonly Mistake[]; selected: string; onSelect: (stage: string) => void }) {
  if (draft.stages.length === 0) return null;
  return (
    <ul className={styles.list} aria-label="Stages">
      {draft.stages.map((stage) => {
        const wrong = mistakes.filter((mistake) => mistake.stage === stage.name).length;
        return (
          <li key={stage.name}>
            <button type="button" className={styles.item} aria-pressed={stage.name === selected} onClick={() => onSelect(stage.name === selected ? "" : stage.name)}>
              <span className={`strong truncate`}>{stage.name}</span>
              <span className="muted truncate">{stage.function === "" ? "no function yet" : stage.function}</span>
              {wrong > 0 && <span className={`bad ${styles.mark}`}><Icon name="warn" size={14} /><span className="visually-hidden">{plural(wrong, "mistake")}</span></span>}
            </button>
          </li>
        );
      })}
    </ul>
  );
}

/** Adds a stage behind the one that is selected. */
export function AddStage({ draft, functions, selected, disabled, onChange, onAdded }: {
  draft: Draft;
  functions: ReadonlyMap<string, Known> | undefined;
  selected: string;
  disabled: boolean;
  onChange: (change: Change) => void;
  onAdded: (name: string) => void;
}) {
  const [fn, setFn] = useState("");
  const names = [...(functions ?? [])].filter(([, known]) => !known.workflow).map(([name]) => name);
  const parent = selected !== "" ? selected : draft.stages.at(-1)?.name;
  const add = () => {
    const name = freeName(draft, fn);
    onChange({ kind: "add", stage: { name, function: fn, version: "current", when: "success", needs: parent === undefined ? [] : [{ stage: parent }] } });
    onAdded(name);
  };
  return (
    <form className={styles.add} onSubmit={(event) => { event.preventDefault(); add(); }}>
      <SelectField label={parent === undefined ? "Add the entry, running" : `Add a stage behind ${parent}, running`} value={fn} disabled={disabled} onChange={(event) => setFn(event.target.value)}
        options={[{ value: "", label: names.length === 0 ? "no function is deployed" : "a function…" }, ...names.map((name) => ({ value: name, label: name }))]} />
      <Button type="submit" icon="plus" disabled={disabled || fn === ""}>Add</Button>
    </form>
  );
}

/** What is said of the workflow as a whole. */
export function WholeFields({ draft, disabled, onChange }: { draft: Draft; disabled: boolean; onChange: (change: Change) => void }) {
  const whole = { ...(draft.timeout === undefined ? {} : { timeout: draft.timeout }), ...(draft.entry === undefined ? {} : { entry: draft.entry }) };
  return (
    <fieldset className={styles.plain} disabled={disabled}>
      <legend className="visually-hidden">The whole workflow</legend>
      <div className={styles.two}>
        <CommitField label="Timeout of the run" placeholder="60s" hint="Such as 90s or 10m." value={draft.timeout ?? ""} onCommit={(timeout) => onChange({ kind: "whole", ...whole, timeout: timeout.trim() })} />
        <SelectField label="Entry" hint="The stage that takes the request." value={draft.entry ?? ""} onChange={(event) => onChange({ kind: "whole", ...whole, entry: event.target.value })}
          options={[{ value: "", label: "as drawn" }, ...draft.stages.map((stage) => ({ value: stage.name, label: stage.name }))]} />
      </div>
    </fieldset>
  );
}
