import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import type { Schemas } from "@/api/client";
import { useMay } from "@/api/session";
import { useParam } from "@/app/search";
import { Card, Empty, Loaded, matches, NoPermission, SearchBox, Table } from "@/components";
import { NODE_COLUMNS } from "./nodeColumns";
import { NetworkFrame } from "./parts";
import { nodesQuery } from "./queries";

const STATES: readonly Schemas["NodeState"][] = ["joined", "alive", "draining", "drained", "lost"];

/** `/network/nodes` */
export function NodesPage() {
  const look = useMay("look-machines");
  const operate = useMay("operate-machines");
  const list = useQuery({ ...nodesQuery, enabled: look });
  const navigate = useNavigate();
  const [filter] = useParam("q");
  const [state, setState] = useParam("state");
  if (!look) return <NetworkFrame title="Nodes"><Card><NoPermission detail="Looking into machines takes the right of an operator of the network." /></Card></NetworkFrame>;
  return (
    <NetworkFrame title="Nodes" lead="Every machine that was let in, whether it lives or not.">
      <Card flush>
        <Loaded query={list} empty={<Empty title="No node yet" icon="network" action={operate ? <Link to="/network/join" className="button primary">Join a node</Link> : undefined}>Let a machine in with a join token and one command.</Empty>}>
          {(rows) => {
            const found = rows.filter((node) => matches(filter, node.node, node.cluster, node.gateway, node.version) && (state === "" || node.state === state));
            return (
              <>
                <div className="toolbar">
                  <SearchBox label="Filter by node, cluster, address or version" found={found.length} />
                  <select className="input compact" aria-label="State" value={state} onChange={(event) => setState(event.target.value)}>
                    <option value="">All states</option>
                    {STATES.map((each) => <option key={each} value={each}>{each}</option>)}
                  </select>
                </div>
                {found.length === 0 ? <Empty title="No node matches" icon="search">Take a word out of the filter, or choose all states.</Empty>
                  : <Table label="Nodes" rows={found} columns={NODE_COLUMNS} rowKey={(node) => node.node} defaultSort="node" rowHeight={52} onOpen={(node) => void navigate({ to: `/network/nodes/${node.node}` })} />}
              </>
            );
          }}
        </Loaded>
      </Card>
    </NetworkFrame>
  );
}
