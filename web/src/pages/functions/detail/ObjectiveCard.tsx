import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, body, type Schemas } from "@/api/client";
import { Ago, Button, Card, ErrorNotice, Loaded, TextField, useToast } from "@/components";
import { parseDuration } from "@/format/durations";
import type { AppDetail } from "../queries";
import { useMayHere } from "./useApp";

type Objective = Schemas["Objective"];
type ObjectiveInfo = Schemas["ObjectiveInfo"];

/** What a new version must keep to; one that does not loses its calls to the version before, by itself. */
export function ObjectiveCard({ app }: { app: AppDetail }) {
  const info = useQuery({ queryKey: ["app", app.app, "objective"], queryFn: () => body(api.GET("/v1/apps/{app}/objective", { params: { path: { app: app.app } } })) });
  return (
    <Card title="Objective of new versions" foot="A version that breaks it loses its calls to the one before, by itself, and is marked with the reason.">
      <Loaded query={info}>{(data) => <Form key={data.updated_at ?? 0} app={app.app} info={data} />}</Loaded>
    </Card>
  );
}

function Form({ app, info }: { app: string; info: ObjectiveInfo }) {
  const may = useMayHere("deploy");
  const old = info.objective ?? undefined;
  const [errors, setErrors] = useState(text(old?.error_percent));
  const [p99, setP99] = useState(text(old?.p99_ms));
  const [window, setWindow] = useState(old?.window ?? "5m");
  const [calls, setCalls] = useState(text(old?.minimum_calls ?? 100));
  const queries = useQueryClient();
  const say = useToast();
  const done = () => queries.invalidateQueries({ queryKey: ["app", app] });
  const put = async (objective: Objective | undefined) => {
    const params = { path: { app } };
    if (objective === undefined) await body(api.DELETE("/v1/apps/{app}/objective", { params }));
    else await body(api.PUT("/v1/apps/{app}/objective", { params, body: objective }));
    await done();
  };
  const change = useMutation({
    mutationFn: put,
    onSuccess: (_, next) => say({ text: next === undefined ? "New versions have no objective" : "New versions are held to the objective", undo: () => put(old) }),
  });
  const wrong = parseDuration(window) === null ? "Write a span of time: 30s, 5m, 1h." : null;
  const none = errors === "" && p99 === "";
  const next: Objective = {
    ...(errors === "" ? {} : { error_percent: Number(errors) }),
    ...(p99 === "" ? {} : { p99_ms: Number(p99) }),
    window,
    minimum_calls: Number(calls),
  };
  return (
    <form className="stack" onSubmit={(event) => { event.preventDefault(); if (wrong === null && !none) change.mutate(next); }}>
      <div className="halves small-halves">
        <TextField label="Failures, at most (%)" type="number" min={0} max={99} step="any" value={errors} placeholder="no limit" readOnly={!may} onChange={(event) => setErrors(event.target.value)} />
        <TextField label="p99, at most (ms)" type="number" min={1} max={600_000} value={p99} placeholder="no limit" readOnly={!may} onChange={(event) => setP99(event.target.value)} />
        <TextField label="For how long" value={window} error={wrong} readOnly={!may} onChange={(event) => setWindow(event.target.value)} />
        <TextField label="With at least so many calls" type="number" min={1} max={1_000_000} value={calls} readOnly={!may} onChange={(event) => setCalls(event.target.value)} />
      </div>
      {info.updated_at !== null && info.updated_at !== undefined && <p className="small muted">Set <Ago at={info.updated_at} />{info.updated_by !== null && info.updated_by !== undefined && ` by ${info.updated_by}`}.</p>}
      <ErrorNotice error={change.error} />
      {may && (
        <div className="row">
          <Button type="submit" kind="primary" busy={change.isPending} disabled={wrong !== null || none}>{old === undefined ? "Set" : "Change"}</Button>
          {old !== undefined && <Button kind="ghost" onClick={() => change.mutate(undefined)}>Remove</Button>}
        </div>
      )}
    </form>
  );
}

function text(value: number | null | undefined): string {
  return value === null || value === undefined ? "" : String(value);
}
