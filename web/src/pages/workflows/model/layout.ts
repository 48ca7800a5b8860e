/**
 * Where the stages of a workflow stand on the canvas: layers from left to right, each stage one layer behind the last of its parents;
 * within a layer the order that crosses few edges (barycentres of parents and children, swept a few times).
 */
import type { Draft } from "./draft";

export interface Place {
  readonly x: number;
  readonly y: number;
}

export const NODE_WIDTH = 196;
export const NODE_HEIGHT = 76;
const GAP_X = 84;
const GAP_Y = 28;
const GAP_DOWN = 56;
const SWEEPS = 6;

/** The layer of each stage. Stages of a cycle, which have none, get the one behind all that are certain. */
export function layers(draft: Draft): Map<string, number> {
  const names = new Set(draft.stages.map((stage) => stage.name));
  const layer = new Map<string, number>();
  for (let grown = true; grown; ) {
    grown = false;
    for (const stage of draft.stages) {
      if (layer.has(stage.name)) continue;
      const needs = stage.needs.map((need) => need.stage).filter((need) => names.has(need));
      if (!needs.every((need) => layer.has(need))) continue;
      layer.set(stage.name, needs.reduce((most, need) => Math.max(most, (layer.get(need) ?? 0) + 1), 0));
      grown = true;
    }
  }
  const behind = Math.max(-1, ...layer.values()) + 1;
  draft.stages.filter((stage) => !layer.has(stage.name)).forEach((stage, index) => layer.set(stage.name, behind + index));
  return layer;
}

/** The place of each stage's upper left corner; `down` lets the layers follow each other downwards, for narrow canvases. */
export function layout(draft: Draft, down = false): Map<string, Place> {
  const layer = layers(draft);
  const columns: string[][] = [];
  for (const stage of draft.stages) (columns[layer.get(stage.name) ?? 0] ??= []).push(stage.name);
  const neighbours = neighboursOf(draft);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const order = sweep % 2 === 0 ? columns.keys() : [...columns.keys()].reverse();
    for (const index of order) sortColumn(columns, index, sweep % 2 === 0 ? neighbours.parents : neighbours.children);
  }
  const tallest = Math.max(0, ...columns.map((column) => column.length));
  const places = new Map<string, Place>();
  const [along, across] = down ? [NODE_HEIGHT + GAP_DOWN, NODE_WIDTH + GAP_Y] : [NODE_WIDTH + GAP_X, NODE_HEIGHT + GAP_Y];
  columns.forEach((column, layerAt) => {
    const first = ((tallest - column.length) * across) / 2;
    column.forEach((name, place) => {
      const [far, side] = [layerAt * along, first + place * across];
      places.set(name, down ? { x: side, y: far } : { x: far, y: side });
    });
  });
  return places;
}

type Neighbours = ReadonlyMap<string, readonly string[]>;

function neighboursOf(draft: Draft): { parents: Neighbours; children: Neighbours } {
  const parents = new Map(draft.stages.map((stage) => [stage.name, stage.needs.map((need) => need.stage)]));
  const children = new Map<string, string[]>(draft.stages.map((stage) => [stage.name, []]));
  for (const stage of draft.stages) for (const need of stage.needs) children.get(need.stage)?.push(stage.name);
  return { parents, children };
}

function sortColumn(columns: string[][], index: number, neighbours: Neighbours): void {
  const column = columns[index] ?? [];
  // Where a stage stands is counted from the middle of its column, so that columns of different lengths compare.
  const height = new Map<string, number>();
  for (const other of columns) other.forEach((name, place) => height.set(name, place - (other.length - 1) / 2));
  const weight = (name: string): number => {
    const heights = (neighbours.get(name) ?? []).map((other) => height.get(other)).filter((value) => value !== undefined);
    return heights.length === 0 ? (height.get(name) ?? 0) : heights.reduce((sum, value) => sum + value, 0) / heights.length;
  };
  const weights = new Map(column.map((name) => [name, weight(name)]));
  columns[index] = [...column].sort((a, b) => (weights.get(a) ?? 0) - (weights.get(b) ?? 0));
}
