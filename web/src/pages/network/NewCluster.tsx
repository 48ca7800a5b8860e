import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, body } from "@/api/client";
import { Button, Dialog, ErrorNotice, TextField, useToast } from "@/components";

/** Two numbers, or `null` when the text is no position. */
function position(text: string): { lat: number; lon: number } | null | undefined {
  if (text.trim() === "") return undefined;
  const [lat, lon, ...rest] = text.split(",").map((part) => (part.trim() === "" ? Number.NaN : Number(part)));
  if (lat === undefined || lon === undefined || rest.length > 0 || !(Math.abs(lat) <= 90) || !(Math.abs(lon) <= 180)) return null;
  return { lat, lon };
}

export function NewCluster({ onClose }: { onClose: () => void }) {
  const [cluster, setCluster] = useState("");
  const [region, setRegion] = useState("");
  const [place, setPlace] = useState("");
  const queries = useQueryClient();
  const say = useToast();
  const location = position(place);
  const [key] = useState(() => crypto.randomUUID());
  const create = useMutation({
    mutationFn: () => body(api.POST("/v1/clusters", { params: { header: { "idempotency-key": key } }, body: { cluster, region, ...(location == null ? {} : { location }) } })),
    onSuccess: async (made) => {
      say(`Cluster ${made.cluster} is there; let a machine into it next`);
      await queries.invalidateQueries({ queryKey: ["clusters"] });
      onClose();
    },
  });
  const foot = <><Button onClick={onClose}>Cancel</Button><Button type="submit" kind="primary" busy={create.isPending} disabled={cluster === "" || region === "" || location === null}>Make the cluster</Button></>;
  return (
    <Dialog title="New cluster" onClose={onClose} foot={foot} onSubmit={() => create.mutate()}>
      <TextField label="Name" value={cluster} onChange={(event) => setCluster(event.target.value)} placeholder="eu-north" autoComplete="off" spellCheck={false} />
      <TextField label="Region" value={region} onChange={(event) => setRegion(event.target.value)} placeholder="eu-north" hint="Made if it is new." autoComplete="off" spellCheck={false} />
      <TextField label="Position" value={place} onChange={(event) => setPlace(event.target.value)} placeholder="59.33, 18.07" hint="Latitude and longitude in degrees; needed for a region that is new."
        error={location === null ? "Two numbers: latitude from -90 to 90, longitude from -180 to 180." : undefined} autoComplete="off" />
      <ErrorNotice error={create.error} />
    </Dialog>
  );
}
