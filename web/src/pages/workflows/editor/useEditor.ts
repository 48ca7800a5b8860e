/** The state of the editor: the draft with its history, and its file in step with it. */
import { useCallback, useEffect, useMemo, useState } from "react";
import { begin, same, step, type Draft, type History, type Step } from "../model/draft";
import { merge, read, write, type Fault } from "../model/yaml";

interface State {
  history: History;
  /** The file as it stands in the field; ahead of the draft while it cannot be read. */
  text: string;
  faults: readonly Fault[];
}

export interface Editor {
  draft: Draft;
  text: string;
  faults: readonly Fault[];
  canUndo: boolean;
  canRedo: boolean;
  change: (step: Step) => void;
  type: (text: string) => void;
  /** Leaves to the page of a new workflow what was drawn after it was sent to be deployed. */
  handOn: (app: string, sent: Draft) => void;
}

/** What pages were left, until they take it. */
const handedOn = new Map<string, State>();

function start(draft: Draft): State {
  return { history: begin(draft), text: write(draft), faults: [] };
}

export function useEditor(app: string, initial: Draft): Editor {
  const [state, setState] = useState(() => handedOn.get(app) ?? start(initial));
  useEffect(() => {
    handedOn.delete(app);
  }, [app]);
  const change = useCallback((action: Step) => setState((before) => {
    if (action.kind === "load") return start(action.draft);
    const history = step(before.history, action);
    if (history === before.history) return before;
    return { history, text: merge(before.text, history.now), faults: [] };
  }), []);
  const type = useCallback((text: string) => setState((before) => {
    const result = read(text);
    if ("faults" in result) return { ...before, text, faults: result.faults };
    const history = step(before.history, { kind: "replace", draft: result.draft, typed: true });
    return { history, text, faults: [] };
  }), []);
  const handOn = useCallback((to: string, sent: Draft) => {
    if (state.faults.length > 0 || !same(state.history.now, sent)) handedOn.set(to, state);
    else handedOn.delete(to);
  }, [state]);
  const { history, text, faults } = state;
  return useMemo(() => ({
    draft: history.now, text, faults, canUndo: history.past.length > 0, canRedo: history.future.length > 0, change, type, handOn,
  }), [history, text, faults, change, type, handOn]);
}
