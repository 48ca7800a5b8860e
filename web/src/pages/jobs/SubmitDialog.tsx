import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, body } from "@/api/client";
import { useParam, useTenant } from "@/app/search";
import { Button, Dialog, ErrorNotice, Field, Notice, SelectField, TextArea, TextField, useToast } from "@/components";
import { Code } from "@/components/Code";
import { bytes } from "@/format";
import { spanFault } from "@/format/durations";

export const PRIORITIES = Array.from({ length: 10 }, (_, index) => ({ value: String(9 - index), label: index === 0 ? "9, first" : index === 4 ? "5, as usual" : index === 9 ? "0, last" : String(9 - index) }));

export function SubmitDialog({ apps, onClose }: { apps: readonly string[]; onClose: () => void }) {
  const tenant = useTenant();
  const [wanted] = useParam("app");
  const [app, setApp] = useState(apps.includes(wanted) ? wanted : apps[0] ?? "");
  const [text, setText] = useState("");
  const [file, setFile] = useState<File | null>(null);
  const [type, setType] = useState("");
  const [target, setTarget] = useState("/");
  const [priority, setPriority] = useState("5");
  const [maxAge, setMaxAge] = useState("");
  const [deadline, setDeadline] = useState("");
  const [webhook, setWebhook] = useState("");
  const [key] = useState(() => crypto.randomUUID());
  const queries = useQueryClient();
  const navigate = useNavigate();
  const say = useToast();
  const wrong = { maxAge: spanFault(maxAge), deadline: spanFault(deadline), target: target.startsWith("/") ? undefined : "It begins with /." };
  const submit = useMutation({
    mutationFn: () => body(api.POST("/v1/apps/{app}/jobs", {
      params: {
        path: { app },
        // The same key with each press, so that a connection that broke makes no second job.
        header: { "idempotency-key": key },
        query: { tenant, target, priority: Number(priority), max_age: maxAge || undefined, deadline: deadline || undefined, webhook: webhook || undefined },
      },
      headers: { "content-type": type || file?.type || "application/octet-stream" },
      body: [],
      bodySerializer: () => file ?? text,
    })),
    onSuccess: async (receipt) => {
      await queries.invalidateQueries({ queryKey: ["jobs"] });
      if (typeof receipt.webhook_secret === "string") return;
      say("The job was accepted");
      await navigate({ to: `/jobs/${receipt.id}` });
    },
  });
  const secret = submit.data?.webhook_secret;
  if (submit.data !== undefined && typeof secret === "string") {
    const { id } = submit.data;
    return (
      <Dialog title="The job was accepted" onClose={onClose} foot={<Button kind="primary" onClick={() => void navigate({ to: `/jobs/${id}` })}>To the job</Button>}>
        <Notice>The webhook is signed with this key, one for all jobs of {app}.</Notice>
        <Code text={secret} label="key of the webhook's signature" wrap />
      </Dialog>
    );
  }
  const foot = <><Button onClick={onClose}>Cancel</Button><Button type="submit" kind="primary" busy={submit.isPending} disabled={app === "" || Object.values(wrong).some((fault) => fault !== undefined)}>Submit</Button></>;
  return (
    <Dialog wide title="Submit a job" onClose={onClose} foot={foot} onSubmit={() => submit.mutate()}>
      <div className="cards">
        <SelectField label="App" value={app} onChange={(event) => setApp(event.target.value)} options={apps.map((value) => ({ value, label: value }))} />
        <TextField label="Path and query" value={target} onChange={(event) => setTarget(event.target.value)} error={wrong.target} spellCheck={false} />
      </div>
      <Field label="Input from a file" hint={file === null ? "Or a text below." : `${file.name}, ${bytes(file.size)}`}>
        {(control) => <input {...control} type="file" className="input" onChange={(event) => setFile(event.target.files?.[0] ?? null)} />}
      </Field>
      {file === null && <TextArea label="Input as text" rows={4} value={text} onChange={(event) => setText(event.target.value)} spellCheck={false} className="mono" />}
      <div className="cards">
        <TextField label="Media type" value={type} onChange={(event) => setType(event.target.value)} placeholder={file?.type || "application/octet-stream"} spellCheck={false} />
        <SelectField label="Priority" value={priority} onChange={(event) => setPriority(event.target.value)} options={PRIORITIES} />
        <TextField label="May wait for" value={maxAge} onChange={(event) => setMaxAge(event.target.value)} placeholder="the network's default" error={wrong.maxAge} />
        <TextField label="Must end within" value={deadline} onChange={(event) => setDeadline(event.target.value)} placeholder="no deadline" error={wrong.deadline} />
      </div>
      <TextField label="Webhook" type="url" value={webhook} onChange={(event) => setWebhook(event.target.value)} placeholder="https://example.org/done" hint="Told when the job has ended." />
      <ErrorNotice error={submit.error} />
    </Dialog>
  );
}
