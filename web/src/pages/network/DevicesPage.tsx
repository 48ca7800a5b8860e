import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMay } from "@/api/session";
import { useParam } from "@/app/search";
import { Card, Empty, Loaded, LongList, matches, NoPermission, Notice, SearchBox, Stat, Stats } from "@/components";
import { count, mebibytes, plural } from "@/format";
import { DeviceBar } from "./Devices";
import { byNode, colours } from "./figures";
import styles from "./Network.module.css";
import { NetworkFrame } from "./parts";
import { CLUSTERS_MOST, clustersQuery, statusesQuery } from "./queries";

/** `/network/devices` */
export function DevicesPage() {
  const look = useMay("look-machines");
  const clusters = useQuery({ ...clustersQuery, enabled: look });
  const names = clusters.data?.map((cluster) => cluster.cluster) ?? [];
  const statuses = useQuery({ ...statusesQuery(names), enabled: clusters.data !== undefined });
  const [filter] = useParam("q");
  const all = statuses.data?.flatMap((status) => (status.devices ?? []).map((device) => ({ status, device }))) ?? [];
  const palette = colours(all.map(({ device }) => device));
  const found = all.filter(({ status, device }) => matches(filter, status.node, status.cluster, device.model, device.id, ...(device.slices ?? []).map((slice) => slice.app)));
  const nodes = byNode(found.map(({ status, device }) => [status.node, device] as const));
  if (!look) return <NetworkFrame title="Devices"><Card><NoPermission detail="Looking into machines takes the right of an operator of the network." /></Card></NetworkFrame>;
  return (
    <NetworkFrame title="Devices" lead="GPUs of all living nodes, and who holds which slice of them.">
      {names.length > CLUSTERS_MOST && <Notice>Devices of the first {count(CLUSTERS_MOST)} of {count(names.length)} clusters are shown. The page of a cluster shows all of its own.</Notice>}
      {all.length > 0 && (
        <Stats>
          <Stat label="Devices" value={count(all.length)} note={`${count(all.filter(({ device }) => device.state === "out_of_service").length)} out of service`} />
          <Stat label="Memory reserved" value={mebibytes(all.reduce((sum, { device }) => sum + device.bound_mib, 0))} unit={`of ${mebibytes(all.reduce((sum, { device }) => sum + device.memory_mib, 0))}`} />
          <Stat label="Slices" value={count(all.reduce((sum, { device }) => sum + (device.slices?.length ?? 0), 0))} />
        </Stats>
      )}
      <Card flush>
        <Loaded query={clusters}>{() => <Loaded query={statuses} isEmpty={() => all.length === 0} empty={<Empty title="No node has a device" icon="network">Agents find NVIDIA GPUs by themselves when the driver is there; functions ask for slices of them in their manifest.</Empty>}>
          {() => (
            <>
              <div className="toolbar"><SearchBox label="Filter by node, model or app" found={found.length} /><span className="muted small end">{plural(found.length, "device")}</span></div>
              {found.length === 0 && <Empty title="No device matches" icon="search">Take a word out of the filter.</Empty>}
              <div style={{ padding: "0 1rem" }}>
                <LongList label="Devices by node" rows={nodes} rowKey={([node]) => node} rowHeight={160} className={styles.onNodes}>
                  {([node, own]) => (
                    <>
                      <h3><Link to={`/network/nodes/${node}`}>{node}</Link></h3>
                      {own.map((device) => <DeviceBar key={device.id} node={node} device={device} palette={palette} />)}
                    </>
                  )}
                </LongList>
              </div>
            </>
          )}
        </Loaded>}</Loaded>
      </Card>
    </NetworkFrame>
  );
}
