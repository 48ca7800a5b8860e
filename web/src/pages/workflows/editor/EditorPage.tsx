/** The page that a workflow is drawn on: canvas, stages, file, all in step. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { usePathParam } from "@/app/params";
import { useMay } from "@/api/session";
import { ApiError } from "@/api/problem";
import { useParam, useTenant } from "@/app/search";
import { Card, Empty, Failed, Loading, Loaded, NoPermission, PageHead, TextField } from "@/components";
import { useApps, useFunctions, workflowQuery } from "../data";
import { Frame } from "../Frame";
import type { Deployed } from "../model/base";
import { EMPTY, ofDefinition } from "../model/draft";
import { DesignView } from "./DesignView";

const NOTHING: Deployed = { version: undefined, tag: null, draft: EMPTY };

/** `/workflows/new` */
export function NewWorkflowPage() {
  const tenant = useTenant();
  const [name, setName] = useParam("app");
  const apps = useApps(tenant);
  const functions = useFunctions(apps.data);
  const taken = apps.data?.some((app) => app.app === name) === true ? "There is an app of this name already." : undefined;
  const may = useMay("deploy", tenant);
  const wrong = name !== "" && !/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(name) ? "Lower-case letters, digits and hyphens; a letter or digit first and last." : taken;
  const nameField = (
    <TextField label="Name of the workflow" value={name} error={wrong} onChange={(event) => setName(event.target.value.toLowerCase())} placeholder="photo" autoComplete="off" spellCheck={false}
      hint="Its host name begins with it." />
  );
  if (!may) {
    return (
      <>
        <PageHead title="New workflow" crumbs={<Link to="/workflows">Workflows</Link>} />
        <Card><NoPermission detail="Making a workflow takes the right to deploy." /></Card>
      </>
    );
  }
  return (
    <>
      <PageHead title="New workflow" crumbs={<Link to="/workflows">Workflows</Link>} lead="Add stages, connect them, deploy. What is wrong is told as you draw." />
      <Loaded query={apps} empty={<Card><NoFunctions /></Card>}>
        {() => <DesignView app={name} nameField={nameField} nameWrong={wrong ?? (name === "" ? "Give the workflow a name." : undefined)} deployed={NOTHING} functions={functions} />}
      </Loaded>
    </>
  );
}

function NoFunctions() {
  return (
    <Empty title="No function is deployed yet" icon="functions" action={<Link to="/functions" className="button primary">Go to functions</Link>}>
      Stages run functions. Deploy some first; the catalogue has ready ones.
    </Empty>
  );
}

/** `/workflows/NAME` */
export function WorkflowPage() {
  const name = usePathParam("app");
  const tenant = useTenant();
  const apps = useApps(tenant);
  const functions = useFunctions(apps.data);
  const workflow = useQuery(workflowQuery(name));
  const { error } = workflow;
  const data = workflow.data?.value;
  const readOnly = !useMay("deploy", tenant);
  if (error instanceof ApiError && error.status === 404 && data === undefined) {
    return (
      <>
        <PageHead title={name} crumbs={<Link to="/workflows">Workflows</Link>} />
        <Card>
          <Empty title="There is no such workflow" icon="workflows" action={<Link to="/workflows" className="button">To the workflows</Link>}>
            {`${name} is not deployed, or it is a plain function: then it is among the functions.`}
          </Empty>
        </Card>
      </>
    );
  }
  return (
    <Frame app={name} lead={data === undefined ? undefined : <><span className="mono">{data.host}</span> · version {data.version}</>}>
      {data !== undefined ? <DesignView key={data.app} app={data.app} deployed={{ version: data.version, tag: workflow.data?.tag ?? null, draft: ofDefinition(data.definition) }} placement={data.placement} functions={functions} readOnly={readOnly} />
        : error === null ? <Loading lines={8} /> : <Failed error={error} onRetry={() => void workflow.refetch()} />}
    </Frame>
  );
}
