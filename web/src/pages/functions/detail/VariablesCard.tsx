import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, tagged } from "@/api/client";
import { ApiError } from "@/api/problem";
import { Button, Card, ErrorNotice, Meanwhile, Pairs, useToast } from "@/components";
import { plural, withUnits } from "@/format";
import type { AppDetail } from "../queries";
import { useRollBack } from "./Detail";
import { envProblem, rebased, rowsOf, standing, type Base, type Shown, type Standing, type Variable } from "./env";
import { useMayHere } from "./useApp";

interface Saving {
  change: Standing["change"];
  tag: string | null;
  rows: readonly Variable[];
  /** The version that is changed. */
  from: number;
}

export function VariablesCard({ app, tag }: { app: AppDetail; tag: string | null }) {
  const may = useMayHere("deploy");
  const env = app.versions.find((each) => each.version === app.version)?.manifest.env;
  const shown: Shown = { version: app.version, tag, env };
  const [base, setBase] = useState<Base>(shown);
  const [rows, setRows] = useState<readonly Variable[]>(() => rowsOf(env));
  const queries = useQueryClient();
  const say = useToast();
  const back = useRollBack(app.app);
  const { change, size, behind, load, tag: expected } = standing(base, shown, rows);
  const problem = envProblem(rows);
  const save = useMutation({
    mutationFn: (sent: Saving) => tagged(api.PATCH("/v1/apps/{app}/env", { params: { path: { app: app.app }, header: sent.tag === null ? {} : { "if-match": sent.tag } }, body: sent.change })),
    onSuccess: async (answer, sent) => {
      const { version } = answer.value;
      setBase({ version, tag: answer.tag, env: Object.fromEntries(sent.rows.map(({ name, value }) => [name, value])), over: sent.tag });
      await queries.invalidateQueries({ queryKey: ["app", app.app] });
      const undo = () => {
        back.mutate({ from: version, to: sent.from, tag: answer.tag });
        return undefined;
      };
      say({ text: `v${version} has the new variables`, undo });
    },
    onError: async (error) => {
      if (error instanceof ApiError && error.status === 412) await queries.invalidateQueries({ queryKey: ["app", app.app] });
    },
  });
  const take = (next: readonly Variable[]) => {
    setBase(shown);
    setRows(next);
  };
  // Until a save is answered, the version that comes may be its own.
  if (load && !save.isPending) take(rowsOf(env));
  const choose = (next: readonly Variable[]) => {
    take(next);
    save.reset();
  };
  const edit = (index: number, part: Partial<Variable>) => setRows(rows.map((row, at) => (at === index ? { ...row, ...part } : row)));
  return (
    <Card title="Variables" foot="A change makes a new version of the same component, without an upload.">
      <form className="stack" onSubmit={(event) => { event.preventDefault(); if (problem === null && size > 0) save.mutate({ change, tag: expected, rows, from: base.version }); }}>
        {behind && !save.isPending && (
          <Meanwhile version={app.version} keep="Keep my changes" onLoad={() => choose(rowsOf(env))} onKeep={() => choose(rebased(rows, base.env, env))}>Your changes are based on version {base.version}.</Meanwhile>
        )}
        {rows.length === 0 && <p className="muted">No variables. Functions read them from their environment.</p>}
        {rows.map((row, index) => (
          <div key={index} className="pair-line">
            <input className="input mono" aria-label={`Name of variable ${index + 1}`} placeholder="NAME" spellCheck={false} autoComplete="off" readOnly={!may} value={row.name} onChange={(event) => edit(index, { name: event.target.value })} />
            <input className="input mono" aria-label={`Value of ${row.name === "" ? `variable ${index + 1}` : row.name}`} spellCheck={false} autoComplete="off" readOnly={!may} value={row.value} onChange={(event) => edit(index, { value: event.target.value })} />
            {may && <Button kind="ghost" icon="trash" aria-label={`Remove ${row.name === "" ? `variable ${index + 1}` : row.name}`} onClick={() => setRows(rows.filter((_, at) => at !== index))} />}
          </div>
        ))}
        {problem !== null && rows.some((row) => row.name !== "") && <p className="small bad" role="alert">{problem}</p>}
        <ErrorNotice error={save.error} />
        {may && (
          <div className="row">
            <Button icon="plus" onClick={() => setRows([...rows, { name: "", value: "" }])}>Add a variable</Button>
            {size > 0 && <Button type="submit" kind="primary" busy={save.isPending} disabled={problem !== null}>Save {plural(size, "change")}</Button>}
            {size > 0 && <Button kind="ghost" onClick={() => setRows(rowsOf(base.env))}>Discard</Button>}
          </div>
        )}
      </form>
    </Card>
  );
}

/** What the manifest of the current version says, apart from variables and secrets. */
export function LimitsCard({ app }: { app: AppDetail }) {
  const manifest = app.versions.find((each) => each.version === app.version)?.manifest;
  if (manifest === undefined) return null;
  return (
    <Card title={`Limits of v${app.version}`} foot="They come from fdn.toml; upload a new version to change them.">
      <Pairs items={[
        ["Memory", said(manifest.memory)],
        ["Processor", manifest.cpu_milli === undefined ? "–" : `${manifest.cpu_milli / 1000} CPU`],
        ["Time of a call", said(manifest.timeout)],
        ["Processor time of a call", said(manifest.cpu_time)],
        ["Longest request body", said(manifest.body_limit)],
        ["Longest answer", said(manifest.response_limit)],
        ["Calls at once in an instance", manifest.concurrency],
        ["Calls before an instance ends", manifest.reuse],
        ["Safe to repeat", manifest.idempotent === true ? "yes" : "no"],
        ["May call", manifest.allowed_hosts === undefined || manifest.allowed_hosts.length === 0 ? "no other host" : manifest.allowed_hosts.join(", ")],
        ["GPU", manifest.gpu === null || manifest.gpu === undefined ? "none" : `${manifest.gpu.count ?? 1} × ${said(manifest.gpu.memory)}`],
      ]} />
    </Card>
  );
}

/** A limit as the manifest has it; the network's own where it says nothing. */
function said(limit: string | undefined): string {
  return limit === undefined ? "–" : withUnits(limit);
}
