/** Devices with their slices as bars. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, body, type Schemas } from "@/api/client";
import { useMay } from "@/api/session";
import { Ago, Badge, Button, Confirm, useToast } from "@/components";
import { mebibytes, percent, plural } from "@/format";
import { slicesOf, used } from "./figures";
import styles from "./Network.module.css";

type Device = Schemas["DeviceStatus"];

const KINDS: Readonly<Record<Schemas["DeviceKind"], string>> = { gpu: "GPU", mig: "MIG instance", simulated: "simulated" };

export function DeviceBar({ node, device, palette }: { node: string; device: Device; palette: ReadonlyMap<string, number> }) {
  const colour = (app: string) => styles[`c${palette.get(app) ?? 1}`];
  const slices = slicesOf(device);
  const free = device.memory_mib - device.bound_mib;
  const broken = device.state === "out_of_service";
  const share = used(device.memory_mib, free);
  const apps = [...new Map(slices.map((slice) => [slice.app, slices.filter((other) => other.app === slice.app)]))];
  return (
    <div className={broken ? `${styles.device} ${styles.broken}` : styles.device}>
      <div className="row between">
        <span className="row-tight"><span className="strong">{device.model}</span><Badge>{KINDS[device.kind]}</Badge><span className="mono muted truncate" title={device.id}>{device.id}</span></span>
        <span className="row-tight">
          {broken ? <Badge tone="bad" dot>out of service</Badge> : <Badge tone="good" dot>in service</Badge>}
          <span className="nowrap">{mebibytes(device.bound_mib)} of {mebibytes(device.memory_mib)} reserved</span>
        </span>
      </div>
      <div className={styles.slices} role="img" aria-label={`${device.model}: ${percent(share)} of its memory reserved, in ${plural(slices.length, "slice")}`}>
        {slices.map((slice) => (
          <div key={slice.instance} className={`${styles.slice} ${colour(slice.app)}`} style={{ insetInlineStart: `${slice.from * 100}%`, width: `${(slice.to - slice.from) * 100}%` }}
            title={`${slice.app}: ${mebibytes(slice.memory)}${slice.cores === null ? "" : `, ${slice.cores} % of the cores`} (${slice.instance})`} />
        ))}
      </div>
      <ul className={styles.legend}>
        {apps.map(([app, own]) => (
          <li key={app}>
            <span className={`${styles.key} ${colour(app)}`} aria-hidden="true" />
            <span className="strong">{app}</span>
            <span className="muted">{own.map((slice) => `${mebibytes(slice.memory)}${slice.cores === null ? "" : ` at ${slice.cores} %`}`).join(" + ")}</span>
          </li>
        ))}
        <li className="muted">{broken ? "Gives nothing out" : `${mebibytes(free)} free`}</li>
      </ul>
      {device.state === "out_of_service" && <OutOfService node={node} device={device.id} reason={device.reason} since={device.since} />}
    </div>
  );
}

function OutOfService({ node, device, reason, since }: { node: string; device: string; reason: string; since: number }) {
  const [asked, ask] = useState(false);
  const may = useMay("operate-machines");
  const queries = useQueryClient();
  const say = useToast();
  const restore = useMutation({
    mutationFn: () => body(api.POST("/v1/nodes/{node}/restore-device", { params: { path: { node } }, body: { device } })),
    onSuccess: async () => {
      say("The node was told to put it back into service");
      await Promise.all([queries.invalidateQueries({ queryKey: ["nodes"] }), queries.invalidateQueries({ queryKey: ["clusters"] })]);
    },
  });
  return (
    <div className="row between small">
      <span className="bad">{reason} (<Ago at={since} />)</span>
      {may && <Button small onClick={() => ask(true)}>Put back into service</Button>}
      {asked && (
        <Confirm title="Put the device back into service?" action="Put it back" onConfirm={() => restore.mutateAsync()} onClose={() => ask(false)}>
          <p>Do this when the fault was looked into or mended: {reason}. A device that fails again goes out of service again.</p>
        </Confirm>
      )}
    </div>
  );
}
