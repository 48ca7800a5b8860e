import { useQuery } from "@tanstack/react-query";
import { readings, type Figures, type Reading } from "@/api/figures";
import { useParam } from "@/app/search";
import { Card, Loaded, Segmented } from "@/components";
import { LineChart, type Series } from "@/components/chart";
import { duration, percent, perSecond } from "@/format";
import { figuresQuery, type Window } from "../queries";
import { useApp, useAppName } from "./useApp";

const COLORS = ["--series-1", "--series-2", "--series-3", "--series-4", "--series-5", "--series-6"] as const;

export function Metrics() {
  const name = useAppName();
  const [range, setRange] = useParam("window", "15m");
  const span: Window = range === "24h" ? "24h" : "15m";
  const total = useQuery(figuresQuery("total", span, { app: name }));
  const clusters = useQuery(figuresQuery("cluster", span, { app: name }));
  const marks = useDeploys();
  const switcher = <Segmented label="Range" value={span} onChange={setRange} options={[{ value: "15m", label: "15 min" }, { value: "24h", label: "24 h" }]} />;
  return (
    <div className="stack">
      <div className="row between"><p className="muted">Each point is {span === "15m" ? "10 seconds" : "5 minutes"}. Dashed lines are deploys.</p>{switcher}</div>
      <Loaded query={total} lines={8}>
        {(data) => {
          const one = data.series[0];
          const line = (label: string, reading: Reading, color: string, area = false): Series => ({ name: label, points: readings(data, one, reading), color, area });
          const common = { from: data.from, to: data.to, marks };
          return (
            <div className="halves">
              <Card><LineChart {...common} title="Calls per second" format={perSecond} atLeast={0.2} series={[line("calls", "rate", "--series-1", true)]} /></Card>
              <Card><LineChart {...common} title="Time to answer" format={duration} atLeast={1} series={[line("p50", "p50", "--series-2"), line("p99", "p99", "--series-4")]} /></Card>
              <Card><LineChart {...common} title="Errors" format={percent} atLeast={0.01} series={[line("answers 5xx", "errors", "--bad", true)]} /></Card>
              <Card><LineChart {...common} title="Cold starts per second" format={perSecond} atLeast={0.2} series={[line("cold starts", "cold", "--series-5", true)]} /></Card>
            </div>
          );
        }}
      </Loaded>
      <Card><Loaded query={clusters} lines={5}>{(data) => <ByCluster figures={data} marks={marks} />}</Loaded></Card>
    </div>
  );
}

function ByCluster({ figures, marks }: { figures: Figures; marks: readonly { at: number; label: string }[] }) {
  const series = figures.series.slice(0, COLORS.length).map((each, index): Series => ({ name: each.key, points: readings(figures, each, "rate"), color: COLORS[index] ?? "--series-1" }));
  if (series.length === 0) return <p className="muted">No cluster has had a call in this time.</p>;
  return <LineChart title="Calls per second, by cluster" format={perSecond} from={figures.from} to={figures.to} atLeast={0.2} marks={marks} series={series} />;
}

function useDeploys(): { at: number; label: string }[] {
  const versions = useApp().data?.value.versions ?? [];
  return versions.map((version) => ({ at: version.created_at, label: `v${version.version}` }));
}
