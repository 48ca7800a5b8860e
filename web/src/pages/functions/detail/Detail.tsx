/** One function: its head, its tabs, and what can be done to the whole of it. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link, Outlet, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, body } from "@/api/client";
import { rollBack, wayBack } from "@/api/rollback";
import { Button, Confirm, Copyable, Icon, Loaded, PageHead, TabLinks, useToast, useToastError } from "@/components";
import { count } from "@/format";
import { Readiness } from "../parts";
import type { AppDetail } from "../queries";
import { useApp, useAppName, useMayHere } from "./useApp";

const TABS = [
  ["", "Summary"],
  ["versions", "Versions"],
  ["try", "Try it"],
  ["calls", "Calls"],
  ["logs", "Logs"],
  ["metrics", "Metrics"],
  ["settings", "Settings"],
  ["domains", "Domains"],
  ["explain", "Explain"],
] as const;

export function Detail() {
  const name = useAppName();
  const app = useApp();
  return (
    <>
      <PageHead title={name} crumbs={<Link to="/functions">Functions</Link>}
        lead={app.data === undefined ? undefined : <span className="row"><Copyable text={app.data.value.host} what="host name" /><Readiness app={app.data.value} /></span>}
        actions={app.data === undefined ? undefined : <Actions app={app.data.value} tag={app.data.tag} />} />
      {app.data !== undefined || app.isPending ? <TabLinks label={`Parts of ${name}`} items={TABS.map(([path, label]) => ({ to: path === "" ? `/functions/${name}` : `/functions/${name}/${path}`, label }))} /> : null}
      <Loaded query={app}>{() => <Outlet />}</Loaded>
    </>
  );
}

function Actions({ app, tag }: { app: AppDetail; tag: string | null }) {
  const may = useMayHere("deploy");
  const [deleting, setDeleting] = useState(false);
  const queries = useQueryClient();
  const navigate = useNavigate();
  const say = useToast();
  if (!may) return null;
  const remove = async () => {
    await body(api.DELETE("/v1/apps/{app}", { params: { path: { app: app.app }, header: tag === null ? {} : { "if-match": tag } } }));
    await navigate({ to: "/functions" });
    queries.removeQueries({ queryKey: ["app", app.app] });
    await queries.invalidateQueries({ queryKey: ["apps"] });
    say(`${app.app} is deleted`);
  };
  return (
    <>
      <RollBack app={app} tag={tag} />
      <Link className="button primary" to="/functions/new" search={{ app: app.app }}><Icon name="upload" />New version</Link>
      <Button kind="danger" icon="trash" aria-label={`Delete ${app.app}`} onClick={() => setDeleting(true)} />
      {deleting && (
        <Confirm title={`Delete ${app.app}?`} action="Delete for ever" word={app.app} onConfirm={remove} onClose={() => setDeleting(false)}>
          <p>The app, {app.versions.length === 1 ? "its version" : `all ${count(app.versions.length)} versions`} and its settings go; calls of <span className="mono">{app.host}</span> fail at once. This cannot be undone.</p>
        </Confirm>
      )}
    </>
  );
}

/** Back to the version that was current before; the toast takes that back again. */
function RollBack({ app, tag }: { app: AppDetail; tag: string | null }) {
  const back = useRollBack(app.app);
  if (app.versions.length < 2) return null;
  return <Button icon="undo" busy={back.isPending} onClick={() => back.mutate({ from: app.version, to: null, tag })}>Roll back</Button>;
}

interface Way {
  from: number;
  /** `null` is the version that was current before. */
  to: number | null;
  /** Of the app as it was shown with `from`. */
  tag: string | null;
}

/** Makes another version current, unless somebody else has meanwhile. */
export function useRollBack(app: string) {
  const queries = useQueryClient();
  const say = useToast();
  const failed = useToastError();
  const anew = async () => {
    await queries.invalidateQueries({ queryKey: ["app", app] });
    await queries.invalidateQueries({ queryKey: ["apps"] });
  };
  return useMutation({
    mutationFn: async ({ to, tag }: Way) => {
      const answer = await rollBack(app, to, tag);
      await anew();
      return answer;
    },
    onSuccess: (answer, { from }) => {
      const back = wayBack(app, from, answer);
      const undo = back === undefined ? undefined : async () => {
        try {
          await back();
        } finally {
          await anew();
        }
      };
      say({ text: `v${answer.value.version} is current now`, undo });
    },
    onError: async (error) => {
      failed(error);
      await anew();
    },
  });
}
