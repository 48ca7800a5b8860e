/** Canvas on one side, stages and file on the other, and what is wrong below. */
import { useBlocker } from "@tanstack/react-router";
import { useMemo, useState, type KeyboardEvent, type ReactNode } from "react";
import type { Schemas } from "@/api/client";
import { useParam, useTenant } from "@/app/search";
import { Badge, Button, Card, Dialog, Empty, ErrorNotice, Icon, Meanwhile, Notice, Tabs, useToast } from "@/components";
import { plural } from "@/format";
import { standing, type Base, type Deployed } from "../model/base";
import type { Change } from "../model/draft";
import { judge, type Known, type Mistake } from "../model/judge";
import { Canvas } from "./Canvas";
import { DeployButton } from "./DeployButton";
import { Inspector } from "./Inspector";
import { AddStage, StageList, WholeFields } from "./StageList";
import { useDryRun } from "./useDryRun";
import { useEditor, type Editor } from "./useEditor";
import { YamlEditor } from "./YamlEditor";
import styles from "./Editor.module.css";

interface Props {
  app: string;
  /** Of a workflow that is new: the field for its name, and what is wrong with it. */
  nameField?: ReactNode;
  nameWrong?: string | undefined;
  deployed: Deployed;
  placement?: Schemas["WorkflowDetail"]["placement"];
  functions: ReadonlyMap<string, Known> | undefined;
  readOnly?: boolean;
}

export function DesignView({ app, nameField, nameWrong, deployed, placement, functions, readOnly = false }: Props) {
  const tenant = useTenant();
  const { version } = deployed;
  const editor = useEditor(app, deployed.draft);
  const { draft, faults, change } = editor;
  const [selected, select] = useParam("stage");
  const [panel, setPanel] = useParam("panel", "stages");
  const [base, setBase] = useState<Base>(deployed);
  const mistakes = useMemo(() => judge(draft, functions), [draft, functions]);
  const { drawn, behind, load, tag } = standing(base, deployed, draft, faults.length > 0);
  const dirty = drawn || faults.length > 0;
  const fine = mistakes.length === 0 && faults.length === 0;
  const dry = useDryRun(app, tenant, draft, fine && !readOnly && nameWrong === undefined && (drawn || version === undefined));
  const [entry, setEntry] = useParam("entry");
  const places = drawn ? dry.data?.placement : placement;
  const clusters = useMemo(() => clustersOf(places, entry), [places, entry]);
  const drawable = !readOnly && faults.length === 0;
  const remove = useRemove(editor, selected, select);
  const take = (kind: "load" | "settle") => {
    change({ kind, draft: deployed.draft });
    setBase(deployed);
  };
  // Somebody else deployed, or this page did: then the versions of the functions have been looked up, and steps back and remarks in the file stay.
  if (load) take(behind ? "load" : "settle");
  const keys = (event: KeyboardEvent) => {
    const undo = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z";
    if (!undo || event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement) return;
    event.preventDefault();
    change({ kind: event.shiftKey ? "redo" : "undo" });
  };
  const found = draft.stages.find((stage) => stage.name === selected);
  return (
    <div className="stack" onKeyDown={keys}>
      {nameField !== undefined && <div style={{ maxWidth: "24rem" }}>{nameField}</div>}
      {behind && dirty && version !== undefined && (
        <Meanwhile version={version} keep="Keep what is drawn" onLoad={() => take("load")} onKeep={() => setBase(deployed)}>What you draw is based on version {base.version}.</Meanwhile>
      )}
      <div className={styles.workspace}>
        <Card flush title="Canvas" actions={(
          <>
            <EntryChoice places={places} entry={entry} onChange={setEntry} />
            {dirty && <Badge tone="info">Not deployed</Badge>}
            {!readOnly && <><Button small kind="ghost" icon="undo" aria-label="Undo" disabled={!editor.canUndo} onClick={() => change({ kind: "undo" })} />
            <Button small kind="ghost" aria-label="Redo" className={styles.redo} icon="undo" disabled={!editor.canRedo} onClick={() => change({ kind: "redo" })} /></>}
            {!readOnly && <DeployButton app={app} isNew={version === undefined} draft={draft} tag={tag} before={base.version} disabled={!fine || !drawn || nameWrong !== undefined} reason={nameWrong}
              onDeployed={(mine) => setBase(mine.tag === deployed.tag ? mine : { ...mine, over: deployed.tag })} handOn={editor.handOn} />}
          </>
        )}>
          {draft.stages.length === 0 ? (
            <Empty title="An empty canvas" icon="workflows">Choose a function beside it and add the first stage: the one that takes the request.</Empty>
          ) : (
            <Canvas label={`Canvas of ${app === "" ? "the new workflow" : app}`} draft={draft} mistakes={mistakes} selected={selected} onSelect={select} tall
              {...(clusters === undefined ? {} : { clusters })}
              {...(drawable ? { onConnect: (from: string, to: string) => change({ kind: "connect", from, to }), onRemove: remove } : {})} />
          )}
          <Problems mistakes={draft.stages.length === 0 ? [] : mistakes} checked={fine && dry.isSuccess && !dry.isPlaceholderData} count={draft.stages.length} onSelect={select} />
          {dry.error !== null && fine && <div className="card-foot"><ErrorNotice error={dry.error} /></div>}
        </Card>
        <Card flush>
          <div className={styles.panel}>
            <Tabs label="Beside the canvas" value={panel === "yaml" ? "yaml" : "stages"} onChange={setPanel} items={[{ value: "stages", label: "Stages" }, { value: "yaml", label: "YAML" }]}>
              {panel === "yaml" ? <YamlEditor text={editor.text} faults={faults} onChange={editor.type} readOnly={readOnly} /> : (
                <div className="stack">
                  {faults.length > 0 && <Notice tone="warn">The file cannot be read. Correct it under YAML; until then the stages stand as they were.</Notice>}
                  {readOnly && <Notice>You may look at this workflow; to change it takes the right to deploy.</Notice>}
                  <StageList draft={draft} mistakes={mistakes} selected={selected} onSelect={select} />
                  {!readOnly && <AddStage draft={draft} functions={functions} selected={found === undefined ? "" : selected} disabled={!drawable} onChange={change} onAdded={select} />}
                  {found === undefined
                    ? <WholeFields draft={draft} disabled={!drawable} onChange={change} />
                    : <Inspector key={selected} draft={draft} stage={found} functions={functions} mistakes={mistakes.filter((mistake) => mistake.stage === selected)} disabled={!drawable} readOnly={readOnly}
                        onChange={change} onRenamed={select} onRemove={() => remove([selected], [])} />}
                </div>
              )}
            </Tabs>
          </div>
        </Card>
      </div>
      <Leave dirty={dirty && !readOnly} app={app} />
    </div>
  );
}

/** Removing is one step, which the message takes back. */
function useRemove(editor: Editor, selected: string, select: (stage: string) => void) {
  const say = useToast();
  const { change } = editor;
  return (names: readonly string[], edges: readonly { from: string; to: string }[]) => {
    const action: Change = names.length > 0 ? { kind: "remove", names } : { kind: "disconnect", edges };
    change(action);
    if (names.includes(selected)) select("");
    const undo = () => {
      change({ kind: "undo" });
      return undefined;
    };
    if (names.length > 0) say({ text: `Removed ${names.join(", ")}`, undo });
  };
}

/** Where the stages run, for calls that come to one of the clusters. */
function clustersOf(placement: Props["placement"], entry: string): ReadonlyMap<string, string> | undefined {
  if (placement === undefined) return undefined;
  const places = placement[entry] ?? Object.values(placement)[0];
  return places === undefined ? undefined : new Map(places.map((place) => [place.stage, place.cluster]));
}

function EntryChoice({ places, entry, onChange }: { places: Props["placement"]; entry: string; onChange: (entry: string) => void }) {
  const clusters = Object.keys(places ?? {}).sort();
  const [first] = clusters;
  if (first === undefined) return null;
  return (
    <label className="row-tight small muted">
      <span className={`nowrap ${styles.entry}`}>Clients sent to</span>
      <select className="input compact" value={clusters.includes(entry) ? entry : first} onChange={(event) => onChange(event.target.value)}>
        {clusters.map((cluster) => <option key={cluster} value={cluster}>{cluster}</option>)}
      </select>
    </label>
  );
}

function Problems({ mistakes, checked, count, onSelect }: { mistakes: readonly Mistake[]; checked: boolean; count: number; onSelect: (stage: string) => void }) {
  if (count === 0) return null;
  return (
    <div className={styles.problems} role="status" aria-label="Mistakes">
      {mistakes.length === 0 && <span className={`${styles.problem} ${styles.fine}`}><Icon name="check" size={14} />{checked ? "The network finds nothing wrong with it." : "Nothing wrong."}</span>}
      {mistakes.length > 0 && <span className="small strong">{plural(mistakes.length, "mistake")}</span>}
      {mistakes.map((mistake) => {
        const { stage } = mistake;
        return stage === undefined
          ? <span key={mistake.text} className={styles.problem}><Icon name="warn" size={14} />{mistake.text}</span>
          : <button key={mistake.text} type="button" className={styles.problem} onClick={() => onSelect(stage)}><Icon name="warn" size={14} />{mistake.text}</button>;
      })}
    </div>
  );
}

/** Asks before a drawing that is not deployed is left. */
function Leave({ dirty, app }: { dirty: boolean; app: string }) {
  const blocker = useBlocker({ shouldBlockFn: ({ current, next }) => dirty && current.pathname !== next.pathname && next.pathname !== `/workflows/${app}`, withResolver: true, enableBeforeUnload: () => dirty });
  if (blocker.status !== "blocked") return null;
  return (
    <Dialog title="Leave the drawing?" onClose={blocker.reset} foot={<><Button onClick={blocker.reset}>Stay</Button><Button kind="danger solid" onClick={blocker.proceed}>Leave without deploying</Button></>}>
      <p className="muted">It is not deployed, and what you drew is not kept.</p>
    </Dialog>
  );
}
