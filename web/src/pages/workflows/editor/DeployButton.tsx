import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { api, tagged } from "@/api/client";
import { ApiError } from "@/api/problem";
import { wayBack } from "@/api/rollback";
import { useTenant } from "@/app/search";
import { Button, Dialog, ErrorNotice, useToast } from "@/components";
import { plural } from "@/format";
import { workflowQuery } from "../data";
import type { Deployed } from "../model/base";
import type { Draft } from "../model/draft";
import { bodyOf } from "./useDryRun";

interface Sending {
  draft: Draft;
  tag: string | null;
  before: number | undefined;
}

/** Makes the draft the current version. The message afterwards takes it back. */
export function DeployButton({ app, isNew, draft, tag, before, disabled, reason, onDeployed, handOn }: {
  app: string;
  isNew: boolean;
  draft: Draft;
  /** Of what the draft is based on: a deploy of somebody else since then is not overwritten. */
  tag: string | null;
  /** The version that the draft is based on, which the message goes back to. */
  before: number | undefined;
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
    mutationFn: (sending: Sending) => tagged(api.PUT("/v1/apps/{app}/workflow", { params: { path: { app }, query: { tenant }, header: sending.tag === null ? {} : { "if-match": sending.tag } }, body: bodyOf(sending.draft) })),
    onSuccess: async (answer, sending) => {
      const sent = sending.draft;
      const detail = answer.value;
      const { queryKey } = workflowQuery(detail.app);
      // What was asked for before must not take the place of what is deployed now.
      await queries.cancelQueries({ queryKey, exact: true });
      queries.setQueryData(queryKey, answer);
      onDeployed({ version: detail.version, tag: answer.tag, draft: sent });
      const back = wayBack(detail.app, sending.before, answer);
      const undo = back === undefined ? undefined : async () => {
        try {
          await back();
        } finally {
          await queries.invalidateQueries({ queryKey: ["workflows"] });
        }
      };
      say({ text: `${detail.app} is now v${detail.version}, ${plural(sent.stages.length, "stage")}`, undo });
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
      <Button small kind="primary" busy={deploy.isPending} disabled={disabled} title={reason} onClick={() => deploy.mutate({ draft, tag, before })}>Deploy</Button>
      {deploy.isError && (
        <Dialog title="Not deployed" onClose={() => deploy.reset()} foot={<Button onClick={() => deploy.reset()}>Back to the drawing</Button>}>
          <ErrorNotice error={deploy.error} />
        </Dialog>
      )}
    </>
  );
}
