import { useMutation, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { allPages, api, body } from "@/api/client";
import { useParam } from "@/app/search";
import { Badge, Button, Card, Code, CopyButton, Empty, ErrorNotice, Field, NoPermission, Notice, Segmented, SelectField, TextArea, TextField } from "@/components";
import { bytes, duration } from "@/format";
import { Answer } from "./Answer";
import { asCommand, parseHeaders, toBase64, type TryAnswer } from "./tryRequest";
import { useAppName, useMayHere } from "./useApp";

const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"] as const;

interface Sent {
  answer: TryAnswer;
  at: number;
  label: string;
}

export function TryIt() {
  const name = useAppName();
  const may = useMayHere("deploy");
  return may ? <Inner key={name} name={name} /> : <Card><NoPermission detail="Calls from the console need the right to change apps." /></Card>;
}

function Inner({ name }: { name: string }) {
  const [method, setMethod] = useParam("method", "POST");
  const [path, setPath] = useParam("path", "/");
  const [cluster, setCluster] = useParam("cluster");
  const [headers, setHeaders] = useState("");
  const [kind, setKind] = useState<"text" | "file">("text");
  const [text, setText] = useState("");
  const [file, setFile] = useState<File | null>(null);
  const [sent, setSent] = useState<readonly Sent[]>([]);
  const clusters = useQuery({ queryKey: ["clusters"], queryFn: () => allPages((cursor) => api.GET("/v1/clusters", { params: { query: { cursor } } })), staleTime: 30_000 });
  const parsed = parseHeaders(headers);
  const bodiless = method === "GET" || method === "HEAD";
  const call = useMutation({
    mutationFn: async () => {
      const content = bodiless ? {} : kind === "text" ? { body: text, encoding: "text" as const } : { body: file === null ? "" : toBase64(new Uint8Array(await file.arrayBuffer())), encoding: "base64" as const };
      return body(api.POST("/v1/apps/{app}/try", {
        params: { path: { app: name } },
        body: { method, path, headers: parsed.headers, ...content, ...(cluster === "" ? {} : { cluster }) },
      }));
    },
    onSuccess: (answer) => setSent((before) => [{ answer, at: Date.now(), label: `${method} ${path}` }, ...before].slice(0, 20)),
  });
  const latest = sent[0];
  return (
    <div className="halves">
      <Card title="Request">
        <form className="stack" onSubmit={(event) => { event.preventDefault(); if (parsed.wrong === null) call.mutate(); }}>
          <div className="try-line">
            <SelectField label="Method" value={method} options={METHODS.map((each) => ({ value: each, label: each }))} onChange={(event) => setMethod(event.target.value)} />
            <TextField label="Path and query" value={path} className="mono" spellCheck={false} error={path.startsWith("/") ? null : "A path begins with /."} onChange={(event) => setPath(event.target.value)} />
          </div>
          <TextArea label="Headers" rows={2} className="mono" spellCheck={false} value={headers} error={parsed.wrong} placeholder="content-type: text/plain" hint="One a line: NAME: VALUE." onChange={(event) => setHeaders(event.target.value)} />
          {!bodiless && (
            <div className="stack-s">
              <div className="row between"><span className="strong small">Body</span><Segmented label="Kind of body" value={kind} onChange={setKind} options={[{ value: "text", label: "Text" }, { value: "file", label: "File" }]} /></div>
              {kind === "text" ? (
                <textarea className="input mono" aria-label="Body" rows={5} spellCheck={false} value={text} onChange={(event) => setText(event.target.value)} />
              ) : (
                <Field label="File" hint={file === null ? "Sent as it is." : bytes(file.size)}>{(control) => <input {...control} type="file" className="input file" onChange={(event) => setFile(event.target.files?.[0] ?? null)} />}</Field>
              )}
            </div>
          )}
          <SelectField label="Cluster" value={cluster} hint="Without one, the cluster that you would be sent to." onChange={(event) => setCluster(event.target.value)}
            options={[{ value: "", label: "The best for me" }, ...(clusters.data ?? []).map((each) => ({ value: each.cluster, label: each.cluster }))]} />
          <div className="row"><Button type="submit" kind="primary" icon="play" busy={call.isPending} disabled={parsed.wrong !== null || !path.startsWith("/")}>Send</Button></div>
          <ErrorNotice error={call.error} />
          <Code text={asCommand(name, method, path, parsed.headers, bodiless || kind === "file" ? "" : text)} label="same call for a terminal" wrap />
        </form>
      </Card>
      <div className="stack">
        <Card title="Answer" actions={latest === undefined ? undefined : <Badge tone={latest.answer.status < 400 ? "good" : latest.answer.status < 500 ? "warn" : "bad"} dot>{latest.answer.status}</Badge>}>
          <div aria-live="polite">
            {latest === undefined ? <Empty title="Not called yet" icon="play">Send a request; its answer comes from a real node, with the time of each phase and the cluster that served it.</Empty> : <Answer answer={latest.answer} />}
          </div>
        </Card>
        {latest?.answer.error_code !== undefined && <Notice tone="warn">The gateway answered, not the function: <span className="mono">{latest.answer.error_code}</span>.</Notice>}
        {sent.length > 1 && <Earlier sent={sent.slice(1)} />}
        {latest !== undefined && <p className="small muted">What it wrote stands in the <Link to={`/functions/${name}/logs`} search={{ q: latest.answer.request }}>log of this request</Link> <span className="mono">{latest.answer.request}</span> <CopyButton text={latest.answer.request} what="request id" /></p>}
      </div>
    </div>
  );
}

function Earlier({ sent }: { sent: readonly Sent[] }) {
  return (
    <Card title="Earlier calls" flush>
      <table className="plain-table">
        <thead><tr><th>Call</th><th>Status</th><th>Cluster</th><th className="num">Total</th></tr></thead>
        <tbody>{sent.map((each) => <tr key={each.at}><td className="mono break">{each.label}</td><td>{each.answer.status}</td><td>{each.answer.cluster}</td><td className="num nowrap">{duration(each.answer.timings.find((timing) => timing.phase === "total")?.ms)}</td></tr>)}</tbody>
      </table>
    </Card>
  );
}
