import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { usePathParam } from "@/app/params";
import { notOffered } from "@/api/offered";
import { At, Card, Copyable, Loaded } from "@/components";
import { NotOffered } from "@/components/NotOffered";
import { workflowQuery } from "../data";
import { Frame } from "../Frame";
import { ofDefinition } from "../model/draft";
import { runQuery } from "./queries";
import { RunView } from "./RunView";

/** `/workflows/NAME/runs/RUN` */
export function OneRunPage() {
  const app = usePathParam("app");
  const id = usePathParam("run");
  const run = useQuery(runQuery(app, id));
  const workflow = useQuery(workflowQuery(app));
  const draft = useMemo(() => (workflow.data === undefined ? undefined : ofDefinition(workflow.data.value.definition)), [workflow.data]);
  return (
    <Frame app={app} lead={<span className="row">Run <Copyable text={id} what="id of the run" />{run.data !== undefined && <At at={run.data.started_at} />}</span>}>
      {notOffered(run.error) ? <Card><NotOffered what="Runs of workflows" /></Card>
        : <Loaded query={run}>{(data) => <RunView run={data} draft={draft} revision={workflow.data?.value.revision ?? undefined} />}</Loaded>}
    </Frame>
  );
}
