/** The steps that an upload goes through, in order, and at which of them it was refused. */
import type { ApiError } from "@/api/problem";
import type { Schemas } from "@/api/client";

export type StepState = "waiting" | "running" | "passed" | "failed" | "skipped";

/** What is uploaded: the steps of an image are others than those of a component. */
export type Kind = "component" | "image";

export interface Step {
  id: string;
  title: string;
  state: StepState;
  /** What the step found, or why it refused. */
  result: string | null;
  took: number | null;
}

type Titles = readonly (readonly [id: string, title: string])[];

const BEFORE: Titles = [
  ["upload", "The whole file arrives"],
  ["admit", "You may deploy it, and there is room for it"],
  ["manifest", "The manifest is valid"],
  ["signature", "It is signed as the tenant asks for"],
  ["size", "It is not too large"],
];

/** What each step looks at; the ids are those that the controller answers with, but for `admit` and `publish`, which are around them. */
const TITLES: Readonly<Record<Kind, Titles>> = {
  component: [
    ...BEFORE,
    ["format", "It is a well-formed component"],
    ["exports", "It exports what the network calls"],
    ["imports", "It imports only what nodes offer"],
    ["compile", "It compiles within the limits"],
    ["probe", "It answers a first call"],
    ["publish", "It is stored and sent to the nodes"],
  ],
  image: [
    ...BEFORE,
    ["format", "It is a container image"],
    ["config", "Its configuration can be used"],
    ["digest", "Its contents are what their digests say"],
    ["platform", "Nodes have its processor"],
    ["publish", "It is stored and sent to the nodes"],
  ],
};

/** Steps that the controller only speaks of when they refuse. */
const SILENT = new Set(["upload", "admit", "manifest", "size", "publish"]);

function step(id: string, title: string, state: StepState, result: string | null = null, took: number | null = null): Step {
  return { id, title, state, result, took };
}

/** What a file will be judged as: the manifest says it, else its name. */
export function kindOf(file: string, manifest: string): Kind {
  const said = /^\s*runtime\s*=\s*["'](\w+)["']/m.exec(manifest)?.[1];
  if (said !== undefined) return said === "docker" ? "image" : "component";
  return /\.(tar|tar\.gz|tgz)$/i.test(file) ? "image" : "component";
}

/** Before anything is sent. */
export function planned(kind: Kind): Step[] {
  return TITLES[kind].map(([id, title]) => step(id, title, "waiting"));
}

/** While the file is on its way (`sent` below 1) and while the controller looks at it. */
export function underway(kind: Kind, sent: number): Step[] {
  return TITLES[kind].map(([id, title], index) => {
    if (index === 0) return step(id, title, sent < 1 ? "running" : "passed", `${Math.floor(sent * 100)} %`);
    return step(id, title, sent < 1 || index > 1 ? "waiting" : "running");
  });
}

/** After it was accepted: what each step found. Steps that the controller does not speak of had nothing to do. */
export function accepted(kind: Kind, found: readonly Schemas["ValidationStep"][]): Step[] {
  const titles = TITLES[kind];
  const byId = new Map(found.map((each) => [each.step, each]));
  const known = titles.map(([id, title]) => {
    const one = byId.get(id);
    if (one !== undefined) return step(id, title, "passed", one.result, one.took);
    return step(id, title, SILENT.has(id) ? "passed" : "skipped");
  });
  // A step that this page does not know yet is shown all the same, before the last one.
  const others = found.filter((each) => !titles.some(([id]) => id === each.step));
  known.splice(-1, 0, ...others.map((each) => step(each.step, each.step, "passed", each.result, each.took)));
  return known;
}

/** The step that a refusal belongs to: the one that the controller names; without one, what is asked before all steps, or, of its own faults, the end. */
function stepOf(error: ApiError): string {
  if (error.step !== null) return error.step;
  if (error.status === 0) return "upload";
  return error.status >= 500 ? "publish" : "admit";
}

/** After a refusal: what came before passed, what comes behind was not reached. Of a fault of the controller's own only that is known which the file told. */
export function refused(kind: Kind, error: ApiError): Step[] {
  const at = stepOf(error);
  const titles: Titles = TITLES[kind].some(([id]) => id === at) ? TITLES[kind] : [...TITLES[kind].slice(0, -1), [at, at], ...TITLES[kind].slice(-1)];
  const index = titles.findIndex(([id]) => id === at);
  const certain = error.step !== null || at !== "publish";
  return titles.map(([id, title], here) => {
    if (here === index) return step(id, title, "failed", error.message);
    return step(id, title, here === 0 || (here < index && certain) ? "passed" : "skipped");
  });
}
