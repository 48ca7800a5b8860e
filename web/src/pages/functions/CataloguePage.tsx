import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, body, type Schemas } from "@/api/client";
import { useMay } from "@/api/session";
import { useTenant } from "@/app/search";
import { Badge, Button, Card, Dialog, Empty, ErrorNotice, Loaded, PageHead, TextField, useToast } from "@/components";
import { bytes, shortDigest } from "@/format";
import { nameProblem } from "./upload/name";
import { appsQuery, catalogueQuery } from "./queries";

type Entry = Schemas["CatalogueEntry"];

export function CataloguePage() {
  const catalogue = useQuery(catalogueQuery);
  const [chosen, setChosen] = useState<Entry | null>(null);
  const may = useMay("deploy");
  return (
    <>
      <PageHead title="Catalogue" crumbs={<Link to="/functions">Functions</Link>} lead="Functions that come with the network, ready to deploy. Their sources are in its repository." />
      <Loaded query={catalogue} empty={<Card><Empty title="The catalogue is empty">This controller was built without ready-made functions. Upload one of your own.</Empty></Card>}>
        {(entries) => (
          <div className="cards">
            {entries.map((entry) => (
              <Card key={entry.name} className="fill" title={entry.name} actions={<Badge>{entry.language}</Badge>}>
                <div className="stack">
                  <p className="muted">{entry.summary.charAt(0).toUpperCase() + entry.summary.slice(1)}.</p>
                  <div className="row between">
                    <span className="small faint">{bytes(entry.size)} · <span className="mono">{shortDigest(entry.digest)}</span></span>
                    {may && <Button icon="upload" onClick={() => setChosen(entry)} aria-label={`Deploy ${entry.name}`}>Deploy</Button>}
                  </div>
                </div>
              </Card>
            ))}
          </div>
        )}
      </Loaded>
      {chosen !== null && <DeployEntry entry={chosen} onClose={() => setChosen(null)} />}
    </>
  );
}

function DeployEntry({ entry, onClose }: { entry: Entry; onClose: () => void }) {
  const tenant = useTenant();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const say = useToast();
  const apps = useQuery(appsQuery(tenant));
  const [name, setName] = useState<string>(entry.name);
  const deploy = useMutation({
    mutationFn: () => body(api.POST("/v1/catalogue/{name}/deploy", { params: { path: { name: entry.name }, query: { tenant } }, body: { app: name } })),
    onSuccess: async (answer) => {
      await queries.invalidateQueries({ queryKey: ["apps"] });
      say(answer.unchanged ? `${answer.app} has this version already` : `${answer.app} v${answer.version} is deployed at ${answer.host}`);
      await navigate({ to: `/functions/${answer.app}` });
    },
  });
  const taken = apps.data?.some((app) => app.app === name) === true;
  return (
    <Dialog title={`Deploy ${entry.name}`} onClose={onClose} onSubmit={() => { if (nameProblem(name) === null) deploy.mutate(); }}
      foot={<><Button onClick={onClose}>Cancel</Button><Button type="submit" kind="primary" busy={deploy.isPending}>Deploy</Button></>}>
      <TextField label="Name" value={name} error={nameProblem(name)} onChange={(event) => setName(event.target.value)} autoComplete="off" spellCheck={false}
        hint={taken ? `${name} exists: this becomes its next version.` : "The first label of its host name."} />
      <ErrorNotice error={deploy.error} />
    </Dialog>
  );
}
