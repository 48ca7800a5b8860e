import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useEffect, useId, useRef, useState, type DragEvent } from "react";
import { api, body, renewed, type Schemas } from "@/api/client";
import { ApiError, OTHER_SESSION } from "@/api/problem";
import { useMay, useSession } from "@/api/session";
import { useParam, useTenant } from "@/app/search";
import { Button, Card, ErrorNotice, Icon, NoPermission, Notice, PageHead, TextArea, TextField, Code } from "@/components";
import { bytes } from "@/format";
import { appsQuery } from "../queries";
import { nameOf, nameProblem } from "./name";
import { Pipeline } from "./Pipeline";
import { accepted, kindOf, planned, refused, underway, type Step } from "./pipeline";
import { send, UploadKeys } from "./send";
import css from "./upload.module.css";

interface Outcome {
  answer: Schemas["DeployResponse"] | null;
  error: ApiError | null;
}

const NONE: Outcome = { answer: null, error: null };

export function UploadPage() {
  const [preset] = useParam("app");
  const may = useMay("deploy", useChosenTenant());
  if (may) return <Upload />;
  return (
    <>
      <PageHead title={preset === "" ? "Upload a function" : `New version of ${preset}`} documentTitle="Upload a function" crumbs={<Link to="/functions">Functions</Link>} />
      <Card><NoPermission detail="Uploading takes the right to deploy." /></Card>
    </>
  );
}

function Upload() {
  const [preset] = useParam("app");
  const tenant = useChosenTenant();
  const queries = useQueryClient();
  const [typed, setTyped] = useState<string | null>(null);
  const [component, setComponent] = useState<File | null>(null);
  const [manifest, setManifest] = useState("");
  const [steps, setSteps] = useState<Step[] | null>(null);
  const [outcome, setOutcome] = useState<Outcome>(NONE);
  const stopping = useRef<AbortController>(null);
  const keys = useRef<UploadKeys>(null);
  const [busy, setBusy] = useState(false);
  const apps = useQuery(appsQuery(undefined));
  const app = typed ?? (preset !== "" ? preset : component === null ? "" : nameOf(component.name));
  const problem = app === "" && component === null ? null : nameProblem(app);
  const current = apps.data?.find((each) => each.app === app);
  const kind = kindOf(component?.name ?? "", manifest);

  const take = async (files: readonly File[]) => {
    setOutcome(NONE);
    setSteps(null);
    for (const file of files) {
      if (file.name.endsWith(".toml")) setManifest(await file.text());
      else setComponent(file);
    }
  };
  const upload = async () => {
    if (component === null || nameProblem(app) !== null || busy) return;
    setBusy(true);
    setOutcome(NONE);
    setSteps(underway(kind, 0));
    keys.current ??= new UploadKeys();
    const stop = new AbortController();
    stopping.current = stop;
    const wish = { app, component, manifest: manifest.trim() === "" ? null : manifest, labels: null, tenant };
    try {
      // Before a file is sent for nothing: the answer that tells of another session may not even be heard while it is on its way.
      if (!(await renewed())) throw new ApiError(403, { code: OTHER_SESSION, title: "Another session", detail: "Nothing was sent: this browser is signed in as somebody else by now, or as nobody.", step: "upload" });
      if (stop.signal.aborted) throw new ApiError(0, { title: "Cancelled", detail: "The upload was cancelled." });
      const sending = send({ ...wish, key: keys.current.of(wish) }, (sent) => setSteps(underway(kind, sent)));
      stop.signal.addEventListener("abort", sending.cancel);
      const answer = await sending.done;
      keys.current.ended(null);
      setSteps(accepted(kind, answer.validation));
      setOutcome({ answer, error: null });
      await queries.invalidateQueries({ queryKey: ["apps"] });
      await queries.invalidateQueries({ queryKey: ["app", app] });
    } catch (thrown) {
      const error = thrown instanceof ApiError ? thrown : new ApiError(0, { detail: String(thrown) });
      keys.current.ended(error);
      setSteps(refused(kind, error));
      setOutcome({ answer: null, error });
    } finally {
      setBusy(false);
    }
  };
  const again = () => {
    setSteps(null);
    setOutcome(NONE);
    setComponent(null);
  };

  return (
    <>
      <PageHead title={preset === "" ? "Upload a function" : `New version of ${preset}`} documentTitle="Upload a function"
        crumbs={<Link to="/functions">Functions</Link>} lead="It is checked before anything is stored; a file that cannot run is refused with the reason." />
      <div className="halves">
        <Card title="What to deploy">
          <form className="stack" onSubmit={(event) => { event.preventDefault(); void upload(); }}>
            <Drop onFiles={(files) => void take(files)} file={component} disabled={busy} />
            <TextField label="Name" value={app} error={problem} disabled={busy} autoComplete="off" spellCheck={false} required onChange={(event) => setTyped(event.target.value)}
              hint={current === undefined ? "The first label of its host name." : `${app} exists with v${current.version}; this becomes its next version.`} />
            <TextArea label="Manifest (fdn.toml), if you have one" value={manifest} rows={6} className="mono" spellCheck={false} disabled={busy} onChange={(event) => setManifest(event.target.value)}
              placeholder={'memory = "64MiB"\ntimeout = "5s"'} hint="Limits, variables, secrets. Drop the file above together with the component, or write it here. Without one, defaults hold." />
            <div className="row">
              <Button type="submit" kind="primary" icon="upload" busy={busy} disabled={component === null || nameProblem(app) !== null}>Deploy</Button>
              {busy && <Button onClick={() => stopping.current?.abort()}>Cancel</Button>}
            </div>
          </form>
        </Card>
        <Card title="Validation">
          <div className="stack">
            <p className="muted">Nothing is stored unless all steps pass.</p>
            <div aria-live="polite"><Pipeline steps={steps ?? planned(kind)} /></div>
            {outcome.error !== null && <ErrorNotice error={outcome.error} />}
            {outcome.answer !== null && <Deployed answer={outcome.answer} onAgain={again} />}
          </div>
        </Card>
      </div>
    </>
  );
}

/** The tenant that the upload goes to: the chosen one, else the only one that the person is a member of. */
function useChosenTenant(): string | undefined {
  const who = useSession();
  const chosen = useTenant();
  return chosen ?? (who.tenants.length === 1 ? who.tenants[0]?.tenant : undefined);
}

function Drop({ onFiles, file, disabled }: { onFiles: (files: readonly File[]) => void; file: File | null; disabled: boolean }) {
  const [over, setOver] = useState(false);
  const id = useId();
  const input = useRef<HTMLInputElement>(null);
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    if (!disabled) onFiles([...event.dataTransfer.files]);
  };
  const left = (event: DragEvent) => {
    // Also moving on to what stands inside leaves what was moved over.
    if (!(event.relatedTarget instanceof Node && event.currentTarget.contains(event.relatedTarget))) setOver(false);
  };
  useFilesStayHere();
  return (
    <div className={css["drop"]} data-over={over} data-drop onDrop={drop} onDragLeave={left} onDragOver={(event) => {
      event.preventDefault();
      event.dataTransfer.dropEffect = disabled ? "none" : "copy";
      setOver(!disabled);
    }}>
      <Icon name="upload" size={24} />
      {file === null ? (
        <span><strong>Drop a component (.wasm) or an image archive here</strong><br />together with its fdn.toml, if it has one</span>
      ) : (
        <span><strong>{file.name}</strong><br />{bytes(file.size)}</span>
      )}
      <label htmlFor={id} className="visually-hidden">Files to deploy</label>
      <input id={id} ref={input} type="file" multiple hidden disabled={disabled} accept=".wasm,.tar,.gz,.tgz,.toml,application/wasm" onChange={(event) => {
        onFiles([...(event.target.files ?? [])]);
        event.target.value = "";
      }} />
      <Button disabled={disabled} onClick={() => input.current?.click()}>{file === null ? "Choose files" : "Choose others"}</Button>
    </div>
  );
}

/** A file that is let go beside the place for it would take the browser away from the page. */
function useFilesStayHere() {
  useEffect(() => {
    const stay = (event: globalThis.DragEvent) => {
      if (event.dataTransfer?.types.includes("Files") === true) event.preventDefault();
    };
    document.addEventListener("dragover", stay);
    document.addEventListener("drop", stay);
    return () => {
      document.removeEventListener("dragover", stay);
      document.removeEventListener("drop", stay);
    };
  }, []);
}

function Deployed({ answer, onAgain }: { answer: Schemas["DeployResponse"]; onAgain: () => void }) {
  const network = useQuery({ queryKey: ["network"], queryFn: () => body(api.GET("/v1/network")), staleTime: 3_600_000 });
  const dns = network.data?.dns;
  const command = dns === null || dns === undefined ? `curl https://${answer.host}/` : `fdn invoke ${answer.app}`;
  return (
    <>
      <Notice tone="good">
        <strong>{answer.unchanged ? `${answer.app} has this already, as v${answer.version}.` : `${answer.app} v${answer.version} is deployed.`}</strong> It answers at <span className="mono">{answer.host}</span>.
      </Notice>
      <Code text={command} label="command that calls it" />
      <div className="row">
        <Link className="button primary" to={`/functions/${answer.app}/try`}>Try it</Link>
        <Link className="button" to={`/functions/${answer.app}`}>Open {answer.app}</Link>
        <Button kind="ghost" onClick={onAgain}>Upload another</Button>
      </div>
    </>
  );
}
