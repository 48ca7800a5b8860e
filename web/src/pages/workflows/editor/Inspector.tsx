/** Everything about one stage, as a form. */
import { Button, Field, Notice, SelectField } from "@/components";
import type { Known, Mistake } from "../model/judge";
import { closesCycle, RETRIES_MAX } from "../model/judge";
import type { Change, Condition, Draft, StageDraft } from "../model/draft";
import { CommitField } from "./CommitField";
import styles from "./Editor.module.css";

interface Props {
  draft: Draft;
  stage: StageDraft;
  functions: ReadonlyMap<string, Known> | undefined;
  mistakes: readonly Mistake[];
  disabled: boolean;
  /** To look at only, for good. */
  readOnly: boolean;
  onChange: (change: Change) => void;
  onRenamed: (name: string) => void;
  onRemove: () => void;
}

/** A copy without a key. */
function without(stage: StageDraft, key: keyof StageDraft | null): StageDraft {
  return Object.fromEntries(Object.entries(stage).filter(([name]) => name !== key)) as unknown as StageDraft;
}

/** A copy with a key set, or left out when there is nothing to say. */
function withText(stage: StageDraft, key: "path" | "timeout", value: string): StageDraft {
  const text = value.trim();
  return without({ ...stage, [key]: text }, text === "" ? key : null);
}

export function Inspector({ draft, stage, functions, mistakes, disabled, readOnly, onChange, onRenamed, onRemove }: Props) {
  const set = (next: StageDraft) => onChange({ kind: "set", name: stage.name, stage: next });
  const rename = (name: string) => {
    set({ ...stage, name: name.trim() });
    onRenamed(name.trim());
  };
  return (
    <fieldset className={`stack ${styles.plain}`} disabled={disabled}>
      <legend className="visually-hidden">Stage {stage.name}</legend>
      {mistakes.map((mistake) => <Notice key={mistake.text} tone="bad">{mistake.text}</Notice>)}
      <div className={styles.two}>
        <CommitField label="Name" value={stage.name} onCommit={rename} />
        <FunctionField stage={stage} functions={functions} onChange={set} />
      </div>
      <div className={styles.two}>
        <VersionField stage={stage} functions={functions} onChange={set} />
        <CommitField label="Timeout of one attempt" placeholder="the function's own" value={stage.timeout ?? ""} onCommit={(value) => set(withText(stage, "timeout", value))} hint="Such as 20s; 1h at most." />
      </div>
      <CommitField label="Path and query" placeholder={stage.needs.length === 0 ? "the caller's" : "/"} value={stage.path ?? ""} onCommit={(value) => set(withText(stage, "path", value))}
        hint="What the function is called with, such as /?w=160." />
      <RetryFields stage={stage} onChange={set} />
      {stage.needs.length > 0 && (
        <SelectField label="Runs when" value={stage.when} onChange={(event) => set({ ...stage, when: event.target.value as Condition })}
          options={[
            { value: "success", label: "all parents succeeded" },
            { value: "failure", label: "at least one parent failed" },
            { value: "always", label: "all parents have ended, however" },
          ]} />
      )}
      <Needs draft={draft} stage={stage} onChange={onChange} />
      {!readOnly && <div><Button kind="danger" icon="trash" onClick={onRemove}>Remove the stage</Button></div>}
    </fieldset>
  );
}

function FunctionField({ stage, functions, onChange }: { stage: StageDraft; functions: Props["functions"]; onChange: (stage: StageDraft) => void }) {
  const names = [...(functions ?? [])].filter(([, known]) => !known.workflow).map(([name]) => name);
  const listed = stage.function === "" || names.includes(stage.function) ? names : [stage.function, ...names];
  const options = listed.map((name) => ({ value: name, label: functions !== undefined && !functions.has(name) ? `${name} (not deployed)` : name }));
  return (
    <SelectField label="Function" value={stage.function} onChange={(event) => onChange({ ...stage, function: event.target.value, version: "current" })}
      options={stage.function === "" ? [{ value: "", label: "Choose…" }, ...options] : options} />
  );
}

function VersionField({ stage, functions, onChange }: { stage: StageDraft; functions: Props["functions"]; onChange: (stage: StageDraft) => void }) {
  const current = functions?.get(stage.function)?.current;
  return (
    <CommitField label="Version" placeholder="current" value={stage.version === "current" ? "" : stage.version} onCommit={(value) => onChange({ ...stage, version: value.trim() === "" ? "current" : value.trim() })}
      hint={current === undefined ? "A number; empty for the current one." : `A number; empty for the current one, v${current} now.`} />
  );
}

function RetryFields({ stage, onChange }: { stage: StageDraft; onChange: (stage: StageDraft) => void }) {
  const count = stage.retries?.count ?? 0;
  const rest = without(stage, "retries");
  const setCount = (next: number) => onChange(next === 0 ? rest : { ...rest, retries: { ...stage.retries, count: next } });
  const setBackoff = (text: string) => onChange({ ...rest, retries: text.trim() === "" ? { count } : { count, backoff: text.trim() } });
  return (
    <div className={styles.two}>
      <SelectField label="Retries" value={String(count)} onChange={(event) => setCount(Number(event.target.value))}
        hint="Only of calls that are safe to repeat."
        options={[...new Set([...Array.from({ length: RETRIES_MAX + 1 }, (_each, index) => index), count])].map((each) => ({ value: String(each), label: each === 0 ? "never" : each === 1 ? "once" : `${each} times` }))} />
      <CommitField label="Pause before a retry" placeholder="100ms" disabled={count === 0} value={stage.retries?.backoff ?? ""} onCommit={setBackoff} hint="Doubles each time." />
    </div>
  );
}

function Needs({ draft, stage, onChange }: { draft: Draft; stage: StageDraft; onChange: (change: Change) => void }) {
  const free = draft.stages.filter((other) => !stage.needs.some((need) => need.stage === other.name) && !closesCycle(draft, other.name, stage.name)).map((other) => other.name);
  const setSize = (parent: string, size: string) => onChange({
    kind: "set",
    name: stage.name,
    stage: { ...stage, needs: stage.needs.map((need) => (need.stage === parent ? (size.trim() === "" ? { stage: parent } : { stage: parent, size: size.trim() }) : need)) },
  });
  return (
    <div className="stack-s">
      <h3>Takes in</h3>
      {stage.needs.length === 0 && <p className="muted small">Nothing: it takes the caller's request.</p>}
      {stage.needs.map((need) => (
        <div key={need.stage} className={styles.need}>
          <span className="strong truncate" title={need.stage}>{need.stage}</span>
          <CommitField label={<span className="visually-hidden">Expected size of {need.stage}'s output</span>} placeholder="size, such as 64KiB" value={need.size ?? ""} onCommit={(size) => setSize(need.stage, size)} />
          <Button kind="ghost" icon="close" aria-label={`Take in ${need.stage} no longer`} onClick={() => onChange({ kind: "disconnect", edges: [{ from: need.stage, to: stage.name }] })} />
        </div>
      ))}
      {free.length > 0 && (
        <Field label={<span className="visually-hidden">Take in the output of another stage</span>}>
          {(control) => (
            <select {...control} className="input" value="" onChange={(event) => onChange({ kind: "connect", from: event.target.value, to: stage.name })}>
              <option value="">Take in the output of…</option>
              {free.map((name) => <option key={name} value={name}>{name}</option>)}
            </select>
          )}
        </Field>
      )}
    </div>
  );
}
