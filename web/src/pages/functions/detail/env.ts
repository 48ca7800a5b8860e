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
