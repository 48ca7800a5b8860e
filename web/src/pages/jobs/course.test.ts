import { expect, it } from "vitest";
import { canCancel, canRedrive, ended, endOf, happened, STATES, stateOf, textOf, times, type Job } from "./course";

const JOB: Job = {
  id: "job_1", app: "a", state: "succeeded", priority: 5, attempts: 1, failures: 0, target: "/", submitted_at: 1000, submitted_by: "ann",
  due_at: 1000, expires_at: 9000, started_at: 1200, ended_at: 1700, input_size: "3",
};

it("offers what a state allows, and nothing twice", () => {
  expect(STATES.filter(canCancel)).toEqual(["queued", "running", "submitted"]);
  expect(STATES.filter(canRedrive)).toEqual(["failed", "dead", "dropped"]);
  for (const state of STATES) expect(canCancel(state)).toBe(!ended(state));
});

it("tells how long a job waited and ran", () => {
  expect(times(JOB, 5000)).toEqual({ waited: 200, ran: 500 });
  expect(times({ ...JOB, started_at: null, ended_at: null }, 5000)).toEqual({ waited: 4000, ran: null });
  expect(times({ ...JOB, ended_at: null }, 5000)).toEqual({ waited: 200, ran: 3800 });
});

it("takes states from the address only if they are some", () => {
  expect(stateOf("dead")).toBe("dead");
  expect(stateOf("nonsense")).toBeUndefined();
});

it("reads texts, and leaves bytes alone", () => {
  expect(textOf(new TextEncoder().encode("grüß").buffer)).toBe("grüß");
  expect(textOf(new Uint8Array([0xff, 0xfe]).buffer)).toBeNull();
  expect(textOf(new Uint8Array([65, 0]).buffer)).toBeNull();
});

it("tells every attempt with its place, its end and its reason, and what is not kept", () => {
  const tried: Job = {
    ...JOB, attempts: 4, started_at: 3000, ended_at: 3500, cluster: "us-east", status: 200,
    history: [
      { number: 3, cluster: "eu-west", started_at: 2000, ended_at: 2400, end: "cut_short", reason: "no answer" },
      { number: 4, cluster: "us-east", started_at: 3000, ended_at: 3500, end: "succeeded", status: 200 },
    ],
  };
  expect(happened(tried).map(({ text, tone, why }) => [text, tone, why].filter((part) => part != null).join(" | "))).toEqual([
    "Submitted by ann",
    "Attempts 1 to 2 are not kept any more",
    "Attempt 3 began in eu-west",
    "Attempt 3 ended: cut short | bad | no answer",
    "Attempt 4 began in us-east",
    "Attempt 4 ended: succeeded, status 200 | good",
    "Ended: succeeded, status 200 | good",
  ]);
  expect(happened(JOB).map(({ at }) => at)).toEqual([1000, 1200, 1700]);
  expect(endOf({ number: 1, started_at: 1 }).text).toBe("running");
  expect(times({ ...tried, history: [{ number: 1, started_at: 1500, ended_at: 1600, end: "never_begun" }] }, 5000)).toEqual({ waited: 500, ran: 500 });
});
