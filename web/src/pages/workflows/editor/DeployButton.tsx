import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { api, body } from "@/api/client";
import { useTenant } from "@/app/search";
import { Button, Dialog, ErrorNotice, useToast } from "@/components";
import { plural } from "@/format";
import type { Draft } from "../model/draft";
import { bodyOf } from "./useDryRun";

/** Makes the draft the current version. The message afterwards takes it back. */
export function DeployButton({ app, isNew, draft, disabled, reason, onDeployed }: {
  app: string;
  isNew: boolean;
  draft: Draft;
  disabled: boolean;
  reason: string | undefined;
  onDeployed: (version: number) => void;
}) {
  const tenant = useTenant();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const say = useToast();
  const [done, setDone] = useState<string | null>(null);
  const deploy = useMutation({
    mutationFn: () => body(api.PUT("/v1/apps/{app}/workflow", { params: { path: { app }, query: { tenant } }, body: bodyOf(draft) })),
    onSuccess: async (detail) => {
      onDeployed(detail.version);
      const undo = async () => {
        await api.POST("/v1/apps/{app}/rollback", { params: { path: { app } }, body: {} });
        await queries.invalidateQueries({ queryKey: ["workflows"] });
      };
      say({ text: `${detail.app} is now v${detail.version}, ${plural(draft.stages.length, "stage")}`, ...(isNew ? {} : { undo }) });
      await Promise.all([queries.invalidateQueries({ queryKey: ["apps"] }), queries.invalidateQueries({ queryKey: ["workflows"] })]);
      if (isNew) setDone(detail.app);
    },
  });
  // In an effect, so that the page knows by then that nothing is left to lose.
  useEffect(() => {
    if (done !== null) void navigate({ to: `/workflows/${done}` });
  }, [done, navigate]);
  return (
    <>
      <Button small kind="primary" busy={deploy.isPending} disabled={disabled} title={reason} onClick={() => deploy.mutate()}>Deploy</Button>
      {deploy.isError && (
        <Dialog title="Not deployed" onClose={() => deploy.reset()} foot={<Button onClick={() => deploy.reset()}>Back to the drawing</Button>}>
          <ErrorNotice error={deploy.error} />
        </Dialog>
      )}
    </>
  );
}
