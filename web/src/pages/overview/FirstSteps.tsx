/** What to do first, as long as nothing is deployed. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { allPages, api, body } from "@/api/client";
import { Card, Code, Icon } from "@/components";
import { plural } from "@/format";
import { useMay } from "@/api/session";
import css from "./overview.module.css";

export function FirstSteps() {
  const may = useMay("deploy");
  const clusters = useQuery({ queryKey: ["clusters"], queryFn: () => allPages((cursor) => api.GET("/v1/clusters", { params: { query: { cursor } } })), staleTime: 30_000 });
  const network = useQuery({ queryKey: ["network"], queryFn: () => body(api.GET("/v1/network")), staleTime: 3_600_000 });
  const nodes = (clusters.data ?? []).reduce((sum, cluster) => sum + cluster.nodes_alive, 0);
  const zone = network.data?.zone ?? "fn.test";
  const dns = network.data?.dns ?? "127.0.0.1:5300";
  const [host, port] = [dns.slice(0, dns.lastIndexOf(":")), dns.slice(dns.lastIndexOf(":") + 1)];
  return (
    <Card title="First steps">
      <ol className={css["first"]}>
        <Step number={1} done={nodes > 0} title={nodes > 0 ? `The network runs: ${plural(nodes, "node")} in ${plural(clusters.data?.length ?? 0, "cluster")}` : "Join a machine"}>
          {nodes > 0 ? "Functions have somewhere to run." : <>A machine becomes a node with one command, which <Link to="/network">Clusters and nodes</Link> shows.</>}
        </Step>
        <Step number={2} title="Deploy a function">
          {may ? <span className="row"><Link className="button primary" to="/functions/catalogue">Take a ready one</Link><Link className="button" to="/functions/new">Upload your own</Link></span> : "Ask somebody who may change apps to deploy one."}
          <Code text="fdn deploy hello functions/hello/hello.wasm" label="command that deploys" />
        </Step>
        <Step number={3} title="Call it from anywhere">
          The DNS answers each client with the best cluster for it.
          <Code text={`dig @${host} -p ${port} hello.${zone} +subnet=203.0.113.0/24\nfdn invoke hello -d world`} label="commands that resolve and call" />
        </Step>
        <Step number={4} title="Choose your password">
          The first one was printed when the network started. <Link to="/account">Change it</Link>, and add people under <Link to="/access">Access</Link>.
        </Step>
      </ol>
    </Card>
  );
}

function Step({ number, title, done = false, children }: { number: number; title: string; done?: boolean; children: ReactNode }) {
  return (
    <li>
      <span className={css["digit"]} data-done={done}>{done ? <Icon name="check" size={14} /> : number}</span>
      <div className="stack-s"><h3>{title}</h3><div className="stack-s muted">{children}</div></div>
    </li>
  );
}
