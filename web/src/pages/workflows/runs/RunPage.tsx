/** Calls the workflow and shows its stages while they run. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { usePathParam } from "@/app/params";
import type { Schemas } from "@/api/client";
import { notOffered } from "@/api/offered";
import { useMay } from "@/api/session";
import { useParam, useTenant } from "@/app/search";
import { Badge, Button, Card, Code, Empty, ErrorNotice, Failed, Field, Loading, NoPermission, Pairs, SelectField, TextArea, TextField, useToastError } from "@/components";
import { SaveLink } from "@/components/SaveLink";
import { NotOffered } from "@/components/NotOffered";
import { bytes, duration } from "@/format";
import { workflowQuery } from "../data";
import { Canvas } from "../editor/Canvas";
import { Frame } from "../Frame";
import { ofDefinition } from "../model/draft";
import { fromBase64, parseHeaders, toBase64 } from "./body";
import { RunView } from "./RunView";
import { useCall } from "./useCall";

type TryAnswer = NonNullable<ReturnType<typeof useCall>["answer"]>;

/** `/workflows/NAME/run` */
export function RunPage() {
  const app = usePathParam("app");
  const tenant = useTenant();
  const may = useMay("deploy", tenant);
  const workflow = useQuery(workflowQuery(app));
  const call = useCall(app);
  const [selected, select] = useParam("stage");
  const draft = useMemo(() => (workflow.data === undefined ? undefined : ofDefinition(workflow.data.value.definition)), [workflow.data]);
  if (!may) return <Frame app={app}><Card><NoPermission detail="Calling through the console takes the right to deploy." /></Card></Frame>;
  if (workflow.data === undefined) return <Frame app={app}><Card>{workflow.error === null ? <Loading lines={8} /> : <Failed error={workflow.error} onRetry={() => void workflow.refetch()} />}</Card></Frame>;
  return (
    <Frame app={app} lead="Call it from here, and watch each stage where it runs.">
      <div className="columns">
        <div className="stack">
          {call.run === undefined && !call.pending && call.answer === undefined && draft !== undefined
            ? (
              <Card flush title="Stages" foot={<>Fill in the request and run it: the stages light up here. What ran before is under <Link to={`/workflows/${app}/runs`}>History</Link>.</>}>
                <Canvas label="Stages of the workflow" draft={draft} selected={selected} onSelect={select} />
              </Card>
            )
            : call.run === undefined
            ? <Card>{call.pending
              ? <Empty title="Calling" icon="play">The stages appear here as soon as the first one runs.</Empty>
              : call.runsMissing && call.answer !== undefined
                ? <NotOffered what="Runs of workflows" />
                : <Empty title="Nothing was run from here yet" icon="workflows">Fill in the request and run it. What ran before is under <Link to={`/workflows/${app}/runs`}>History</Link>.</Empty>}
            </Card>
            : <RunView run={call.run} draft={draft} revision={workflow.data.value.revision ?? undefined} />}
        </div>
        <div className="stack">
          {notOffered(call.error)
            ? <Card><NotOffered what="Calls through the console" instead={`fdn invoke ${app} -d @file`} /></Card>
            : <Request busy={call.pending} error={call.error} clusters={Object.keys(workflow.data.value.placement).sort()} onRun={call.start} />}
          {call.answer !== undefined && <Answer answer={call.answer} />}
          {call.run !== undefined && <Link to={`/workflows/${app}/runs/${call.run.run}`}>Permanent address of this run</Link>}
        </div>
      </div>
    </Frame>
  );
}

const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"].map((value) => ({ value, label: value }));

function Request({ busy, error, clusters, onRun }: { busy: boolean; error: unknown; clusters: readonly string[]; onRun: (request: Schemas["TryRequest"]) => void }) {
  const [method, setMethod] = useState("POST");
  const [path, setPath] = useState("/");
  const [headers, setHeaders] = useState("");
  const [text, setText] = useState("");
  const [file, setFile] = useState<File | null>(null);
  const [client, setClient] = useState("");
  const [cluster, setCluster] = useState("");
  const sayError = useToastError();
  const pairs = parseHeaders(headers);
  const withBody = method !== "GET" && method !== "HEAD";
  const submit = async () => {
    const type: [string, string][] = file !== null && file.type !== "" && pairs?.some(([name]) => name === "content-type") === false ? [["content-type", file.type]] : [];
    const content = !withBody ? {} : file === null ? { body: text } : { body: toBase64(new Uint8Array(await file.arrayBuffer())), encoding: "base64" as const };
    onRun({ method, path, headers: [...type, ...(pairs ?? [])], ...content, ...(client.trim() === "" ? {} : { client: client.trim() }), ...(cluster === "" ? {} : { cluster }) });
  };
  return (
    <Card title="Request">
      <form className="stack" onSubmit={(event) => { event.preventDefault(); submit().catch(sayError); }}>
        <div style={{ display: "grid", gridTemplateColumns: "7rem minmax(0, 1fr)", gap: "0.75rem" }}>
          <SelectField label="Method" value={method} onChange={(event) => setMethod(event.target.value)} options={METHODS} />
          <TextField label="Path and query" value={path} onChange={(event) => setPath(event.target.value)} spellCheck={false} error={path.startsWith("/") ? undefined : "It begins with /."} />
        </div>
        {withBody && (
          <>
            <Field label="Body from a file" hint={file === null ? "1 MiB at most, or a text below." : `${file.name}, ${bytes(file.size)}`}>
              {(control) => <input {...control} type="file" className="input" onChange={(event) => setFile(event.target.files?.[0] ?? null)} />}
            </Field>
            {file === null && <TextArea label="Body as text" rows={4} value={text} onChange={(event) => setText(event.target.value)} spellCheck={false} className="mono" />}
          </>
        )}
        <TextArea label="Headers" rows={2} value={headers} onChange={(event) => setHeaders(event.target.value)} placeholder="content-type: text/plain" spellCheck={false} className="mono"
          error={pairs === null ? "One header a line, as name: value." : undefined} />
        <div style={{ display: "grid", gridTemplateColumns: "repeat(auto-fit, minmax(9rem, 1fr))", gap: "0.75rem" }}>
          <TextField label="As a client at" value={client} onChange={(event) => setClient(event.target.value)} placeholder="your own address" spellCheck={false} disabled={cluster !== ""} />
          <SelectField label="Through" value={cluster} onChange={(event) => setCluster(event.target.value)} options={[{ value: "", label: "by DNS" }, ...clusters.map((value) => ({ value, label: value }))]} />
        </div>
        <div><Button type="submit" kind="primary" icon="play" busy={busy} disabled={pairs === null || !path.startsWith("/")}>Run</Button></div>
        <ErrorNotice error={error} />
      </form>
    </Card>
  );
}

function Answer({ answer }: { answer: TryAnswer }) {
  const tone = answer.status < 400 ? "good" : "bad";
  const type = answer.headers.find(([name]) => name === "content-type");
  return (
    <Card title="Answer" actions={<Badge tone={tone}>{answer.status}</Badge>}>
      <div className="stack">
        <Pairs items={[
          ["Content", `${type?.[1] ?? "no type"}, ${bytes(answer.body_bytes)}${answer.truncated ? ", cut" : ""}`],
          ["Served by", answer.node === undefined ? answer.cluster : `${answer.cluster}, ${answer.node}`],
          ["Time", <span key="t" className="row">{answer.timings.map((timing) => <span key={timing.phase} className="nowrap"><span className="muted">{timing.phase}</span> {duration(timing.ms)}</span>)}</span>],
          answer.error_code === undefined ? null : ["Error", <span key="e" className="mono">{answer.error_code}</span>],
          ["Request", <span key="r" className="mono break">{answer.request}</span>],
        ]} />
        {answer.encoding === "text" ? <Code text={answer.body === "" ? "(empty)" : answer.body} label="body of the answer" wrap maxHeight="20rem" /> : <SaveBody answer={answer} type={type?.[1]} />}
      </div>
    </Card>
  );
}

function SaveBody({ answer, type }: { answer: TryAnswer; type: string | undefined }) {
  const bytes = useMemo(() => fromBase64(answer.body), [answer]);
  const ending = (type ?? "").split(/[/;+]/)[1] ?? "bin";
  return <div className="row"><span className="muted">The body is no text.</span><SaveLink bytes={bytes} type={type ?? "application/octet-stream"} name={`answer.${ending}`} label="Save it" /></div>;
}
