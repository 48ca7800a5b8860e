/** The canvas: stages as cards, edges as the way data takes. To draw on, or to watch a run on. */
import {
  applyNodeChanges, Background, MarkerType, Panel, Position, ReactFlow, ReactFlowProvider, useReactFlow, useStore,
  type Connection, type Edge, type Node, type NodeChange,
} from "@xyflow/react";
import "@xyflow/react/dist/style.css";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { Button } from "@/components";
import { bytes } from "@/format";
import { closesCycle, type Mistake } from "../model/judge";
import { layout, NODE_HEIGHT, NODE_WIDTH, type Place } from "../model/layout";
import type { Draft, StageDraft } from "../model/draft";
import type { StageRun } from "../model/run";
import { parseBytes } from "../model/units";
import { StageNode, type StageNodeData } from "./StageNode";
import styles from "./Canvas.module.css";

export type StageNodeType = Node<StageNodeData, "stage">;

interface Props {
  draft: Draft;
  label: string;
  mistakes?: readonly Mistake[];
  selected?: string;
  /** Where each stage would run, or runs. */
  clusters?: ReadonlyMap<string, string>;
  /** How each stage of a run stands; the canvas is then to look at only. */
  states?: ReadonlyMap<string, StageRun>;
  onSelect?: (stage: string) => void;
  onConnect?: (from: string, to: string) => void;
  onRemove?: (stages: readonly string[], edges: readonly { from: string; to: string }[]) => void;
  tall?: boolean;
}

const NODE_TYPES = { stage: StageNode };
const FIT = { padding: 0.06, maxZoom: 1.1, minZoom: 0.2 };

export function Canvas(props: Props) {
  return (
    <ReactFlowProvider>
      <Flow {...props} />
    </ReactFlowProvider>
  );
}

const ACROSS = [
  { type: "target" as const, position: Position.Left, x: -5, y: NODE_HEIGHT / 2 - 5, width: 10, height: 10 },
  { type: "source" as const, position: Position.Right, x: NODE_WIDTH - 5, y: NODE_HEIGHT / 2 - 5, width: 10, height: 10 },
];
const DOWN = [
  { type: "target" as const, position: Position.Top, x: NODE_WIDTH / 2 - 5, y: -5, width: 10, height: 10 },
  { type: "source" as const, position: Position.Bottom, x: NODE_WIDTH / 2 - 5, y: NODE_HEIGHT - 5, width: 10, height: 10 },
];
/** What is read out of a stage and of a connection that has the focus. */
function spoken(stage: string, edge: string) {
  // The library reads the second text where it takes keys, and the first one where it takes none.
  return { "node.a11yDescription.default": stage, "node.a11yDescription.keyboardDisabled": stage, "edge.a11yDescription.default": edge };
}
const TO_DRAW = spoken(
  "Enter selects the stage and shows it beside the canvas. Delete then removes it, the arrow keys move it, Escape lets go of it.",
  "Enter selects the connection. Delete then removes it, Escape lets go of it.",
);
const TO_LOOK = spoken("Enter selects the stage, Escape lets go of it.", "A connection between two stages.");
/** Below that width the layers follow each other downwards. */
const NARROW = 560;

function Flow({ draft, label, mistakes, selected, clusters, states, onSelect, onConnect, onRemove, tall = false }: Props) {
  const editable = onConnect !== undefined;
  const frame = useRef<HTMLDivElement>(null);
  // Where somebody put a stage by hand; all others stand where the layout puts them.
  const [moved, setMoved] = useState<ReadonlyMap<string, Place>>(new Map());
  const down = useStore((state) => state.width > 0 && state.width < NARROW);
  const places = useMemo(() => layout(draft, down), [draft, down]);
  const turned = useTurned(down, draft.stages.length);
  // `turned` makes them new, nothing in them differs by it.
  const nodes = useMemo(
    () => draft.stages.map((stage) => nodeOf(stage, moved.get(stage.name) ?? places.get(stage.name), {
      stage,
      mistakes: mistakes?.filter((mistake) => mistake.stage === stage.name).length ?? 0,
      cluster: states?.get(stage.name)?.cluster ?? clusters?.get(stage.name),
      run: states?.get(stage.name),
      editable,
      down,
    }, stage.name === selected)),
    // eslint-disable-next-line react-hooks/exhaustive-deps -- see above
    [draft, places, moved, mistakes, clusters, states, selected, editable, down, turned],
  );
  const edges = useMemo(() => edgesOf(draft, states), [draft, states]);
  const changed = useCallback((changes: NodeChange<StageNodeType>[]) => {
    const positions = applyNodeChanges(changes.filter((change) => change.type === "position"), nodes);
    if (changes.some((change) => change.type === "position")) {
      setMoved(new Map(positions.filter((node, index) => node.position !== nodes[index]?.position || moved.has(node.id)).map((node) => [node.id, node.position])));
    }
    const chosen = changes.find((change) => change.type === "select" && change.selected);
    if (chosen?.type === "select") onSelect?.(chosen.id);
  }, [nodes, moved, onSelect]);
  const possible = useCallback((edge: Edge | Connection) => !closesCycle(draft, edge.source, edge.target), [draft]);
  return (
    <div className={styles.flow} style={{ height: heightOf(places, tall) }} role="region" aria-label={label} tabIndex={-1} ref={frame}>
      <ReactFlow<StageNodeType>
        nodes={nodes} edges={edges} nodeTypes={NODE_TYPES} onNodesChange={changed}
        onConnect={({ source, target }) => onConnect?.(source, target)} isValidConnection={possible}
        onDelete={({ nodes: gone, edges: cut }) => {
          onRemove?.(gone.map((node) => node.id), cut.map((edge) => ({ from: edge.source, to: edge.target })));
          // What had the focus is gone; the canvas has it now, so that the keys that take the removal back are heard.
          frame.current?.focus({ preventScroll: true });
        }}
        onPaneClick={() => onSelect?.("")}
        nodesDraggable={editable} nodesConnectable={editable} edgesFocusable={editable} nodesFocusable elementsSelectable
        deleteKeyCode={editable ? ["Delete", "Backspace"] : null}
        multiSelectionKeyCode={null} selectionKeyCode={null} connectOnClick={editable}
        fitView fitViewOptions={FIT} minZoom={0.15} maxZoom={1.75}
        zoomOnScroll={false} preventScrolling={false} zoomOnDoubleClick={false} panOnScroll={false}
        attributionPosition="bottom-left" ariaLabelConfig={editable ? TO_DRAW : TO_LOOK}
      >
        <Background gap={20} size={1} />
        <Tools down={down} shape={`${draft.stages.length} ${down}`} onArrange={editable && moved.size > 0 ? () => setMoved(new Map()) : undefined} />
      </ReactFlow>
    </div>
  );
}

/**
 * Counts on, two frames after the canvas turned or stages came. The library measures once where a stage's edges begin and end, in the middle of all
 * that moves then; new nodes make it take the places that they name instead.
 */
function useTurned(down: boolean, stages: number): number {
  const [turned, turn] = useState(0);
  useEffect(() => {
    let frame = requestAnimationFrame(() => {
      frame = requestAnimationFrame(() => turn((before) => before + 1));
    });
    return () => cancelAnimationFrame(frame);
  }, [down, stages]);
  return turned;
}

/** As much as the stages need, so that what stands below comes into sight; to draw on, with room for more of them. */
function heightOf(places: ReadonlyMap<string, Place>, tall: boolean): string {
  const below = Math.max(0, ...[...places.values()].map((place) => place.y + NODE_HEIGHT));
  return tall ? `clamp(24rem, ${below + 220}px, max(24rem, 68vh))` : `min(56vh, ${Math.max(220, below + 120)}px)`;
}

function Tools({ shape, down, onArrange }: { shape: string; down: boolean; onArrange: (() => void) | undefined }) {
  const flow = useReactFlow();
  const width = useStore((state) => state.width);
  const height = useStore((state) => state.height);
  // Everything is in sight again when stages come or go, and when the canvas gets another size.
  useEffect(() => {
    const frame = requestAnimationFrame(() => void flow.fitView(FIT));
    return () => cancelAnimationFrame(frame);
  }, [shape, width, height, flow]);
  return (
    <Panel position="top-right" className={down ? `${styles.tools} ${styles.upright}` : styles.tools}>
      {onArrange !== undefined && <Button small onClick={onArrange}>Arrange</Button>}
      <Button small aria-label="Zoom out" onClick={() => void flow.zoomOut()}>−</Button>
      <Button small aria-label="Zoom in" onClick={() => void flow.zoomIn()}>+</Button>
      <Button small onClick={() => void flow.fitView(FIT)}>Fit</Button>
    </Panel>
  );
}

function nodeOf(stage: StageDraft, place: Place | undefined, data: StageNodeData, selected: boolean): StageNodeType {
  const needs = stage.needs.length === 0 ? "takes the request" : `needs ${stage.needs.map((need) => need.stage).join(", ")}`;
  const wrong = data.mistakes === 0 ? "" : `, ${data.mistakes} mistakes`;
  const state = data.run === undefined ? "" : `, ${data.run.state}`;
  return {
    id: stage.name,
    type: "stage",
    position: place ?? { x: 0, y: 0 },
    data,
    selected,
    // Sizes are known, so nothing has to be measured before edges can be drawn.
    width: NODE_WIDTH,
    height: NODE_HEIGHT,
    measured: { width: NODE_WIDTH, height: NODE_HEIGHT },
    handles: data.down ? DOWN : ACROSS,
    ariaLabel: `Stage ${stage.name}, runs ${stage.function === "" ? "nothing yet" : stage.function}, ${needs}${state}${wrong}`,
  };
}

function sizeText(size: string): string {
  const parsed = parseBytes(size);
  return parsed === null ? size : bytes(parsed);
}

function edgesOf(draft: Draft, states: Props["states"]): Edge[] {
  const names = new Set(draft.stages.map((stage) => stage.name));
  return draft.stages.flatMap((stage) => stage.needs.filter((need) => names.has(need.stage)).map((need): Edge => {
    const run = states?.get(stage.name)?.state;
    const passed = states !== undefined && states.get(need.stage)?.state === "done" && run !== "waiting" && run !== "skipped";
    const colour = passed ? "var(--accent)" : "var(--line-strong)";
    return {
      id: `${need.stage} to ${stage.name}`,
      source: need.stage,
      target: stage.name,
      animated: run === "running",
      ariaLabel: `From ${need.stage} to ${stage.name}`,
      markerEnd: { type: MarkerType.ArrowClosed, color: colour, width: 16, height: 16 },
      style: { stroke: colour, strokeWidth: passed ? 2 : 1.5, ...(stage.when === "success" ? {} : { strokeDasharray: "5 4" }) },
      ...(need.size === undefined || states !== undefined ? {} : { label: sizeText(need.size) }),
    };
  }));
}
