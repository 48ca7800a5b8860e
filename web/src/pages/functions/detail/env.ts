/** Variables as the form holds them, and what a change of them is. Pure. */

export interface Variable {
  name: string;
  value: string;
}

export function rowsOf(env: Readonly<Record<string, string>> | undefined): Variable[] {
  return Object.entries(env ?? {}).map(([name, value]) => ({ name, value })).sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** What is wrong with the rows; `null` if nothing. */
export function envProblem(rows: readonly Variable[]): string | null {
  const seen = new Set<string>();
  for (const { name } of rows) {
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) return name === "" ? "A variable needs a name." : `“${name}” is no name of a variable: letters, digits and underscores, no digit first.`;
    if (seen.has(name)) return `${name} is there twice.`;
    seen.add(name);
  }
  return null;
}

/** What has to be set and taken away to come from one state to the other. */
export function envChange(before: Readonly<Record<string, string>> | undefined, rows: readonly Variable[]): { set: Record<string, string>; unset: string[] } {
  const after = new Map(rows.map((row) => [row.name, row.value]));
  const set = Object.fromEntries([...after].filter(([name, value]) => before?.[name] !== value));
  const unset = Object.keys(before ?? {}).filter((name) => !after.has(name));
  return { set, unset };
}

/** The variables of a version that is current. */
export interface Shown {
  readonly version: number;
  /** For `If-Match`. */
  readonly tag: string | null;
  readonly env: Readonly<Record<string, string>> | undefined;
}

/** What a change of the variables was begun on. */
export interface Base extends Shown {
  /** After a change of the page's own: the tag of what stood there until then. As long as the page is shown that, it has not heard of its change. */
  readonly over?: string | null;
}

export interface Standing {
  readonly change: { set: Record<string, string>; unset: string[] };
  /** How many variables the change is of. */
  readonly size: number;
  /** Another version became current since, and something was edited that would be lost with it. */
  readonly behind: boolean;
  /** What is current can take the place of the rows: nothing is lost by it. */
  readonly load: boolean;
  /** What a change must find. */
  readonly tag: string | null;
}

/** How the rows stand to what they were begun on, and to what is current. */
export function standing(base: Base, shown: Shown, rows: readonly Variable[]): Standing {
  const now = base.over !== undefined && base.over === shown.tag ? base : shown;
  const change = envChange(base.env, rows);
  const size = Object.keys(change.set).length + change.unset.length;
  // A name that is there twice may change nothing, and has been typed all the same.
  const edited = size > 0 || rows.length !== Object.keys(base.env ?? {}).length;
  const other = base.version !== now.version;
  return { change, size, behind: other && edited, load: other && !edited, tag: other ? base.tag : now.tag };
}

/** The rows on top of another version: what was edited stays, and what was not is as it is there. */
export function rebased(rows: readonly Variable[], before: Shown["env"], after: Shown["env"]): Variable[] {
  const old = new Map(Object.entries(before ?? {}));
  const now = new Map(Object.entries(after ?? {}));
  const kept = rows.flatMap((row) => {
    if (old.get(row.name) !== row.value) return [row];
    const value = now.get(row.name);
    return value === undefined ? [] : [{ ...row, value }];
  });
  const there = new Set(rows.map(({ name }) => name));
  return [...kept, ...rowsOf(after).filter(({ name }) => !there.has(name) && !old.has(name))];
}
