import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { api, tagged } from "@/api/client";
import { ApiError } from "@/api/problem";
import { useTenant } from "@/app/search";
import { Button, Dialog, ErrorNotice, useToast } from "@/components";
import { plural } from "@/format";
import { workflowQuery } from "../data";
import type { Deployed } from "../model/base";
import type { Draft } from "../model/draft";
import { bodyOf } from "./useDryRun";

/** Makes the draft the current version. The message afterwards takes it back. */
export function DeployButton({ app, isNew, draft, tag, disabled, reason, onDeployed, handOn }: {
  app: string;
  isNew: boolean;
  draft: Draft;
  /** Of what the draft is based on: a deploy of somebody else since then is not overwritten. */
  tag: string | null;
  disabled: boolean;
  reason: string | undefined;
  /** Hears what was sent, which may be drawn on by then. */
  onDeployed: (deployed: Deployed) => void;
  /** Of a new workflow, before its own page is opened. */
  handOn: (app: string, sent: Draft) => void;
}) {
  const tenant = useTenant();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const say = useToast();
  const [done, setDone] = useState<{ app: string; sent: Draft } | null>(null);
  const deploy = useMutation({
    mutationFn: (sent: Draft) => tagged(api.PUT("/v1/apps/{app}/workflow", { params: { path: { app }, query: { tenant }, header: tag === null ? {} : { "if-match": tag } }, body: bodyOf(sent) })),
    onSuccess: async (answer, sent) => {
      const detail = answer.value;
      const { queryKey } = workflowQuery(detail.app);
      // What was asked for before must not take the place of what is deployed now.
      await queries.cancelQueries({ queryKey, exact: true });
      queries.setQueryData(queryKey, answer);
      onDeployed({ version: detail.version, tag: answer.tag, draft: sent });
      const undo = async () => {
        await api.POST("/v1/apps/{app}/rollback", { params: { path: { app } }, body: {} });
        await queries.invalidateQueries({ queryKey: ["workflows"] });
      };
      say({ text: `${detail.app} is now v${detail.version}, ${plural(sent.stages.length, "stage")}`, ...(isNew ? {} : { undo }) });
      await Promise.all([queries.invalidateQueries({ queryKey: ["apps"] }), queries.invalidateQueries({ queryKey: ["workflows"] })]);
      if (isNew) setDone({ app: detail.app, sent });
    },
    onError: async (error) => {
      if (error instanceof ApiError && error.status === 412) await queries.invalidateQueries({ queryKey: ["workflows"] });
    },
  });
  // In an effect, so that the page knows by then that nothing is left to lose.
  useEffect(() => {
    if (done === null) return;
    handOn(done.app, done.sent);
    void navigate({ to: `/workflows/${done.app}` });
  }, [done, handOn, navigate]);
  return (
    <>
      <Button small kind="primary" busy={deploy.isPending} disabled={disabled} title={reason} onClick={() => deploy.mutate(draft)}>Deploy</Button>
      {deploy.isError && (
        <Dialog title="Not deployed" onClose={() => deploy.reset()} foot={<Button onClick={() => deploy.reset()}>Back to the drawing</Button>}>
          <ErrorNotice error={deploy.error} />
        </Dialog>
      )}
    </>
  );
}
