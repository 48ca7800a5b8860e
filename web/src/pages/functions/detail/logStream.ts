/** Lines of logs as they arrive: JSON objects, one a line. */
import type { Schemas } from "@/api/client";
import { ApiError, problemOf } from "@/api/problem";

export type LogLine = Schemas["LogLine"];

/** Takes text in pieces of any size and gives out what complete lines hold. Lines that are no JSON are skipped. */
export class LineReader {
  private rest = "";

  push(piece: string): LogLine[] {
    const lines = (this.rest + piece).split("\n");
    this.rest = lines.pop() ?? "";
    return lines.flatMap((line) => parse(line));
  }
}

function parse(line: string): LogLine[] {
  if (line.trim() === "") return [];
  try {
    return [JSON.parse(line) as LogLine];
  } catch {
    return [];
  }
}

/** The lines that were kept, at most `most` of them; the oldest go first. */
export class LogBuffer {
  private lines: readonly LogLine[] = [];
  /** How many went because there were too many. */
  dropped = 0;

  constructor(private readonly most: number) {}

  get all(): readonly LogLine[] {
    return this.lines;
  }

  /** Adds lines. After a stream broke off, its successor repeats the last lines; what is there already is not added again. */
  add(more: readonly LogLine[], repeated = false): void {
    const fresh = repeated ? this.unseen(more) : more;
    const all = [...this.lines, ...fresh];
    this.dropped += Math.max(0, all.length - this.most);
    this.lines = all.slice(-this.most);
  }

  private unseen(more: readonly LogLine[]): readonly LogLine[] {
    const seen = new Set(this.lines.slice(-2000).map(key));
    return more.filter((line) => !seen.has(key(line)));
  }
}

function key(line: LogLine): string {
  return [line.at, line.node, line.instance, line.request, line.stream, line.text].join("\u0000");
}

/** What is looked for in lines. */
export interface LogFilter {
  text: string;
  stream: string;
  node: string;
}

export function shown(line: LogLine, filter: LogFilter): boolean {
  if (filter.stream !== "" && line.stream !== filter.stream) return false;
  if (filter.node !== "" && line.node !== filter.node) return false;
  if (filter.text === "") return true;
  const wanted = filter.text.toLowerCase();
  return line.text.toLowerCase().includes(wanted) || line.request.includes(wanted) || line.instance.includes(wanted);
}

/** Reads the log of an app until `signal` ends it. `batch` gets lines as they come. */
export async function follow(app: string, tail: number, signal: AbortSignal, opened: () => void, batch: (lines: LogLine[]) => void): Promise<void> {
  const answer = await fetch(`/v1/apps/${encodeURIComponent(app)}/logs?follow=true&tail=${tail}`, { signal });
  if (!answer.ok) throw problemOf(answer.status, await answer.text(), answer.headers.get("x-request-id"));
  if (answer.body === null) throw new ApiError(0, { detail: "The log cannot be read." });
  opened();
  const lines = new LineReader();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const more = lines.push(value);
    if (more.length > 0) batch(more);
  }
}
