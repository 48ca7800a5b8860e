/** Figures of the network, computed. */
import type { Schemas } from "@/api/client";

/** The share of a capacity that is taken. */
export function used(capacity: number, free: number): number {
  return capacity <= 0 ? 0 : Math.min(1, Math.max(0, 1 - free / capacity));
}

type Device = Schemas["DeviceStatus"];

export interface Slice {
  readonly app: string;
  readonly instance: string;
  readonly memory: number;
  readonly cores: number | null;
  /** Shares of the device's memory. */
  readonly from: number;
  readonly to: number;
}

/** The slices of a device side by side, the largest apps' first, and what is bound beside them. */
export function slicesOf(device: Device): Slice[] {
  const all = device.memory_mib;
  let at = 0;
  const slices = [...(device.slices ?? [])].sort((a, b) => a.app.localeCompare(b.app) || b.memory_mib - a.memory_mib);
  return slices.map((slice) => {
    const from = at;
    at += slice.memory_mib;
    const share = (value: number) => (all <= 0 ? 0 : Math.min(1, value / all));
    return { app: slice.app, instance: slice.instance, memory: slice.memory_mib, cores: slice.cores ?? null, from: share(from), to: share(at) };
  });
}

/** A number from 1 to 6 for each app that holds slices of these devices: its colour in all their bars. */
export function colours(devices: readonly Device[]): ReadonlyMap<string, number> {
  const apps = new Set(devices.flatMap((device) => (device.slices ?? []).map((slice) => slice.app)));
  return new Map([...apps].sort().map((app, index) => [app, (index % 6) + 1]));
}

/** Things of nodes by their node, in the order in which the nodes come first. */
export function byNode<T>(pairs: readonly (readonly [node: string, thing: T])[]): (readonly [node: string, things: readonly T[]])[] {
  const nodes = new Map<string, T[]>();
  for (const [node, thing] of pairs) {
    const own = nodes.get(node);
    if (own === undefined) nodes.set(node, [thing]);
    else own.push(thing);
  }
  return [...nodes];
}

export interface Totals {
  readonly clusters: number;
  readonly alive: number;
  readonly nodes: number;
  readonly slots: number;
  readonly busy: number;
}

export function totals(clusters: readonly Schemas["ClusterInfo"][]): Totals {
  const sum = (of: (cluster: Schemas["ClusterInfo"]) => number) => clusters.reduce((total, cluster) => total + of(cluster), 0);
  return { clusters: clusters.length, alive: sum((each) => each.nodes_alive), nodes: sum((each) => each.nodes_total), slots: sum((each) => each.slots), busy: sum((each) => each.busy) };
}

/** A text as one word of a shell. */
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** What is typed on the machine that becomes a node. The token comes through a pipe, so that no list of processes shows it. */
export function joinCommand(controller: string, token: string, cluster: string, node: string): string {
  const name = node === "" ? "" : ` --node ${quoted(node)}`;
  const { protocol, hostname } = new URL(controller);
  const here = hostname === "localhost" || hostname.startsWith("127.") || hostname === "[::1]";
  // Without it the agent refuses an address that is not encrypted and not its own machine's.
  const plain = protocol === "http:" && !here ? " --allow-plain-http" : "";
  return [
    `printf %s ${quoted(token)} | fdn-edge-agent join ${quoted(controller)} --token-file - --cluster ${quoted(cluster)}${name}${plain}`,
    "fdn-edge-agent run",
  ].join("\n");
}
