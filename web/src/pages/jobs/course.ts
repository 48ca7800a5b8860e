/** Where a job stands and what can be done with it (docs/jobs.md). */
import type { Schemas } from "@/api/client";
import type { Tone } from "@/components/Badge";

export type Job = Schemas["JobInfo"];
export type JobState = Schemas["JobState"];

export const STATES: readonly JobState[] = ["queued", "running", "succeeded", "failed", "dead", "dropped", "cancelled", "submitted"];

const ABOUT: Readonly<Record<JobState, { tone: Tone; says: string }>> = {
  submitted: { tone: "neutral", says: "The broker has not confirmed it yet." },
  queued: { tone: "info", says: "It waits for its turn, or for the pause before its next attempt." },
  running: { tone: "info", says: "An attempt runs." },
  succeeded: { tone: "good", says: "The app answered 2xx or 3xx." },
  failed: { tone: "bad", says: "The app refused it, or it was cut short and must not be repeated." },
  cancelled: { tone: "neutral", says: "Somebody cancelled it." },
  dropped: { tone: "warn", says: "It was too old, or its deadline had come, before an attempt could begin." },
  dead: { tone: "bad", says: "Its last attempt was cut short as well: a dead letter." },
};

export function about(state: JobState): { tone: Tone; says: string } {
  return ABOUT[state];
}

export function ended(state: JobState): boolean {
  return state === "succeeded" || canRedrive(state) || state === "cancelled";
}

export function canCancel(state: JobState): boolean {
  return !ended(state);
}

/** Whether it can be sent again as a job of its own right. */
export function canRedrive(state: JobState): boolean {
  return state === "failed" || state === "dead" || state === "dropped";
}

/** How long it waited before its first attempt and its last one ran, or both until now; milliseconds. */
export function times(job: Job, now: number): { waited: number; ran: number | null } {
  const began = job.started_at ?? null;
  const end = job.ended_at ?? now;
  const first = job.history?.[0];
  const tried = first?.number === 1 ? first.started_at : began;
  return { waited: Math.max(0, (tried ?? end) - job.submitted_at), ran: began === null ? null : Math.max(0, end - began) };
}

export type Attempt = NonNullable<Job["history"]>[number];

/** How an attempt ended, in words; what runs has not. */
const ENDS: Readonly<Record<Schemas["AttemptEnd"], { tone: Tone; text: string; says: string }>> = {
  succeeded: { tone: "good", text: "succeeded", says: "The app answered 2xx or 3xx." },
  refused: { tone: "bad", text: "refused", says: "The app refused it, and would again." },
  never_begun: { tone: "neutral", text: "not begun", says: "It reached no function, so it counts as no failure." },
  cut_short: { tone: "warn", text: "cut short", says: "It may have run, as a whole or in part." },
  cancelled: { tone: "neutral", text: "cancelled", says: "Somebody cancelled the job." },
};

export function endOf(attempt: Attempt): { tone: Tone; text: string; says: string } {
  return attempt.end == null ? { tone: "info", text: "running", says: "It runs." } : ENDS[attempt.end];
}

/** How long an attempt ran, or has run until now; milliseconds. */
export function ran(attempt: Attempt, now: number): number {
  return Math.max(0, (attempt.ended_at ?? now) - attempt.started_at);
}

/** What happened to a job, in order; attempts that are no longer kept are named as a gap. */
export function happened(job: Job): { at: number; text: string; tone?: "good" | "bad" | undefined; why?: string | null | undefined }[] {
  const history = job.history ?? [];
  const gone = (history[0]?.number ?? 1) - 1;
  const place = (cluster: string | null | undefined) => (cluster == null ? "" : ` in ${cluster}`);
  return [
    { at: job.submitted_at, text: `Submitted by ${job.submitted_by}` },
    ...(gone > 0 ? [{ at: history[0]?.started_at ?? job.submitted_at, text: gone === 1 ? "Attempt 1 is not kept any more" : `Attempts 1 to ${gone} are not kept any more` }] : []),
    ...history.flatMap((attempt) => [
      { at: attempt.started_at, text: `Attempt ${attempt.number} began${place(attempt.cluster)}` },
      ...(attempt.ended_at == null ? [] : [{
        at: attempt.ended_at,
        text: `Attempt ${attempt.number} ended: ${endOf(attempt).text}${attempt.status == null ? "" : `, status ${attempt.status}`}`,
        tone: attempt.end === "succeeded" ? "good" as const : attempt.end === "refused" || attempt.end === "cut_short" ? "bad" as const : undefined,
        why: attempt.reason,
      }]),
    ]),
    // Jobs that an earlier release ran have no record of their attempts.
    ...(history.length > 0 || job.started_at == null ? [] : [{ at: job.started_at, text: `Attempt ${job.attempts} began${place(job.cluster)}` }]),
    ...(job.ended_at == null ? [] : [{ at: job.ended_at, text: `Ended: ${job.state}${job.status == null ? "" : `, status ${job.status}`}`, tone: job.state === "succeeded" ? "good" as const : canRedrive(job.state) ? "bad" as const : undefined }]),
    ...(job.state === "queued" ? [{ at: job.due_at, text: "May begin, as soon as there is room" }] : []),
  ];
}

/** Enough of an id to tell it from others by eye: ids begin with the time, so their ends differ most. */
export function shortId(id: string): string {
  const bare = id.replace(/^job_/, "");
  return bare.length <= 16 ? bare : `${bare.slice(0, 8)}…${bare.slice(-6)}`;
}

/** A state of the address, if it is one. */
export function stateOf(text: string): JobState | undefined {
  return STATES.find((state) => state === text);
}

/** An answer as text, or `null` when its bytes are none. */
export function textOf(bytes: ArrayBuffer): string | null {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return text.includes("\u0000") ? null : text;
  } catch {
    return null;
  }
}
