/** The parts of a YAML text by what they are, for colours only. What it means is read elsewhere. */

export interface Part {
  readonly kind: "plain" | "key" | "comment" | "value" | "mark";
  readonly text: string;
}

const TOKEN = /(?<comment>(?:^|(?<=\s))#[^\n]*)|(?<key>[A-Za-z_][\w-]*(?=:(?:\s|$)))|(?<value>"[^"\n]*"|'[^'\n]*'|(?<![\w./-])\d+(?:ms|s|m|h|B|KiB|MiB|GiB|kB|MB|GB)?(?![\w-]))|(?<mark>[{}[\],:]|^\s*-(?=\s))/gm;

export function paint(text: string): Part[] {
  const parts: Part[] = [];
  let from = 0;
  const plain = (to: number) => {
    if (to > from) parts.push({ kind: "plain", text: text.slice(from, to) });
  };
  for (const match of text.matchAll(TOKEN)) {
    plain(match.index);
    const kind = (["comment", "key", "value", "mark"] as const).find((name) => match.groups?.[name] !== undefined) ?? "plain";
    parts.push({ kind, text: match[0] });
    from = match.index + match[0].length;
  }
  plain(text.length);
  return parts;
}
