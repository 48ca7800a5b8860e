/** The state of the editor: the draft with its history, and its file in step with it. */
import { useCallback, useMemo, useState } from "react";
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
}

function start(draft: Draft): State {
  return { history: begin(draft), text: write(draft), faults: [] };
}

export function useEditor(initial: Draft): Editor {
  const [state, setState] = useState(() => start(initial));
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
  const { history, text, faults } = state;
  return useMemo(() => ({
    draft: history.now, text, faults, canUndo: history.past.length > 0, canRedo: history.future.length > 0, change, type,
  }), [history, text, faults, change, type]);
}

export { same };
