/** The regions on a map of the world, with their health, their load, and the traffic of clients to each. Loaded after the rest of the page. */
import { geoNaturalEarth1, geoPath } from "d3-geo";
import { useId, useState } from "react";
import { feature } from "topojson-client";
import type { GeometryCollection, Topology } from "topojson-specification";
import land from "world-atlas/land-110m.json";
import type { Schemas } from "@/api/client";
import { useSize } from "@/components/chart";
import { percent, perSecond, plural } from "@/format";
import { along, aside, bow, HEALTH, loadOf, sides, spread, unplaced } from "./traffic";
import css from "./overview.module.css";

type TrafficMap = Schemas["TrafficMap"];
type Cluster = Schemas["TrafficCluster"];
type Flow = Schemas["TrafficFlow"];
type Place = Schemas["GeoPoint"];
type Point = readonly [number, number];

const WIDTH = 960;
const HEIGHT = 436;

const topology = land as unknown as Topology<{ land: GeometryCollection }>;
const projection = geoNaturalEarth1().fitExtent([[6, 8], [WIDTH - 6, 496]], { type: "Sphere" });
const drawn = geoPath(projection);
const LAND = drawn(feature(topology, topology.objects.land)) ?? "";

function at(place: Place): [number, number] {
  return projection([place.lon, place.lat]) ?? [0, 0];
}

/** The way of clients to a cluster: a bow, or, across the edge of the map, the shortest way on the globe, which goes on at the other edge. */
function way(from: Place, start: Point, to: Place, end: Point): string {
  if (Math.abs(from.lon - to.lon) <= 180) return bow(start, end);
  return drawn({ type: "LineString", coordinates: [[from.lon, from.lat], [to.lon, to.lat]] }) ?? "";
}

export function WorldMap({ traffic }: { traffic: TrafficMap }) {
  const [chosen, setChosen] = useState<string | null>(null);
  const [place, width] = useSize();
  const title = useId();
  // Signs and letters keep their size on the screen, however large the map is.
  const unit = width === 0 ? 1 : Math.min(2, WIDTH / width);
  const clusters = new Map(traffic.clusters.map((cluster) => [cluster.cluster, cluster.location]));
  const busiest = Math.max(1e-9, ...traffic.flows.map((flow) => flow.share));
  const positions = spread(traffic.clusters.map((cluster) => ({ id: cluster.cluster, at: at(cluster.location) })), 30 * unit);
  const shown = traffic.clusters.find((cluster) => cluster.cluster === chosen);
  const lines = traffic.flows.flatMap((flow) => {
    const to = clusters.get(flow.cluster);
    const end = positions.get(flow.cluster);
    if (to === undefined || end === undefined || flow.location == null) return [];
    // Clients who are where their cluster is would lie below its sign.
    const start = aside(at(flow.location), end, 30 * unit);
    return [{ flow, start, d: way(flow.location, start, to, end), over: along(start, end) }];
  });
  const left = sides([...positions].map(([id, point]) => ({ id, at: point })), lines.flatMap((line) => [line.start, ...line.over]), unit, WIDTH);
  return (
    <div className={css["map"]} ref={place}>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="group" aria-labelledby={title}>
        <title id={title}>{`Map of ${plural(traffic.clusters.length, "cluster")} and ${plural(traffic.flows.length, "place")} of clients`}</title>
        <path d={LAND} className={css["land"]} />
        <g aria-hidden="true">
          {lines.map(({ flow, start, d }) => (
            <Line key={`${flow.cluster} ${flow.example}`} flow={flow} d={d} at={start} weight={(1.2 + 2.2 * Math.sqrt(flow.share / busiest)) * unit} quiet={chosen !== null && chosen !== flow.cluster} />
          ))}
        </g>
        {traffic.clusters.map((cluster) => (
          <Marker key={cluster.cluster} cluster={cluster} flows={traffic.flows} at={positions.get(cluster.cluster) ?? at(cluster.location)} unit={unit} left={left.has(cluster.cluster)} chosen={chosen === cluster.cluster} onChoose={setChosen} />
        ))}
      </svg>
      <p className={css["caption"]} aria-live="polite">{shown === undefined ? about(traffic) : describe(shown, traffic.flows)}</p>
    </div>
  );
}

function Line({ flow, d, at: [x, y], weight, quiet }: { flow: Flow; d: string; at: Point; weight: number; quiet: boolean }) {
  const words = `${flow.prefixes === 1 ? flow.example : `${plural(flow.prefixes, "prefix", "prefixes")} such as ${flow.example}`}: ${percent(flow.share)} of the demand, about ${perSecond(flow.calls_per_second)}, to ${flow.cluster}`;
  return (
    <g opacity={quiet ? 0.12 : 1}>
      <title>{words}</title>
      <path d={d} className={css["arc"]} strokeWidth={weight} />
      {/* In hundredths of its way, so that what moves does so everywhere alike, however long the way is. */}
      <path d={d} className={css["pulse"]} strokeWidth={weight} pathLength={100} />
      <circle cx={x} cy={y} r={weight * 0.9 + 1.2} className={css["client"]} />
    </g>
  );
}

/** What is drawn, and what cannot be. */
function about({ flows }: TrafficMap): string {
  if (flows.length === 0) return "No client has asked DNS for a function yet. Lines will lead from where clients are to the cluster that they are sent to.";
  const away = unplaced(flows);
  const rest = away === 0 ? "" : ` ${away > 0.995 ? "Where the clients are is not known, so no lines are drawn." : `Clients whose place is not known, ${percent(away)} of the demand, have no line.`}`;
  return away > 0.995 ? `Rings are how busy a cluster is.${rest}` : `Lines lead from clients to the cluster that DNS sends them to. Rings are how busy a cluster is.${rest}`;
}

function describe(cluster: Cluster, flows: readonly Flow[]): string {
  const own = flows.filter((flow) => flow.cluster === cluster.cluster);
  const prefixes = own.reduce((sum, flow) => sum + flow.prefixes, 0);
  const demand = own.reduce((sum, flow) => sum + flow.share, 0);
  const clients = prefixes === 0 ? "no clients" : `${plural(prefixes, "client prefix", "client prefixes")} with ${percent(demand)} of the demand`;
  return `${cluster.cluster} in ${cluster.region}: ${HEALTH[cluster.health].words}, ${cluster.nodes_alive} of ${plural(cluster.nodes_total, "node")}, ${percent(loadOf(cluster))} busy, ${perSecond(cluster.calls_per_second)}, ${percent(cluster.error_rate)} errors, ${clients}`;
}

const RADIUS = 8;
const ROUND = 2 * Math.PI * (RADIUS + 3.5);

function Marker({ cluster, flows, at: [x, y], unit, left, chosen, onChoose }: { cluster: Cluster; flows: readonly Flow[]; at: Point; unit: number; left: boolean; chosen: boolean; onChoose: (cluster: string | null) => void }) {
  const color = `var(--${HEALTH[cluster.health].tone})`;
  return (
    <g className={css["marker"]} tabIndex={0} role="img" aria-label={describe(cluster, flows)} data-chosen={chosen} transform={`translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${unit.toFixed(3)})`}
      onPointerEnter={() => onChoose(cluster.cluster)} onPointerLeave={() => onChoose(null)} onFocus={() => onChoose(cluster.cluster)} onBlur={() => onChoose(null)}>
      <circle r={RADIUS + 7} className={css["halo"]} />
      <circle r={RADIUS + 3.5} className={css["ring"]} />
      <circle r={RADIUS + 3.5} className={css["load"]} stroke={color} strokeDasharray={`${(loadOf(cluster) * ROUND).toFixed(1)} ${ROUND.toFixed(1)}`} transform="rotate(-90)" />
      <circle r={RADIUS - 2} fill={color} />
      <text x={left ? -18 : 18} y={-1} textAnchor={left ? "end" : "start"} className={css["name"]}>{cluster.cluster}</text>
      <text x={left ? -18 : 18} y={12} textAnchor={left ? "end" : "start"} className={css["rate"]}>{perSecond(cluster.calls_per_second)}</text>
    </g>
  );
}
