import { useEffect, useMemo, useRef, useState } from "react";
import { useParam } from "@/app/search";
import { Button, Card, Empty, ErrorNotice, SearchBox, Segmented } from "@/components";
import { LogLines, saveLog } from "@/components/LogLines";
import { count, plural } from "@/format";
import { follow, LogBuffer, shown, type LogLine } from "./logStream";
import { useApp, useAppName } from "./useApp";

const MOST = 10_000;
const TAIL = 500;

export function Logs() {
  const name = useAppName();
  return <Inner key={name} name={name} />;
}

function Inner({ name }: { name: string }) {
  const app = useApp().data?.value;
  const [paused, setPaused] = useState(false);
  const { lines, dropped, live, error, clear } = useLines(name, paused);
  const [text] = useParam("q");
  const [stream, setStream] = useParam("stream");
  const [node, setNode] = useParam("node");
  const found = useMemo(() => lines.filter((line) => shown(line, { text, stream, node })), [lines, text, stream, node]);
  const nodes = useMemo(() => [...new Set([...(app?.nodes ?? []).map((each) => each.node), ...lines.map((line) => line.node)])].sort(), [app, lines]);
  const versions = new Set(found.map((line) => line.version)).size > 1;
  return (
    <Card flush>
      <div className="toolbar">
        <SearchBox label="Filter by text, request or instance" found={found.length} />
        <Segmented label="Stream" value={stream} onChange={setStream} options={[{ value: "", label: "All" }, { value: "stdout", label: "stdout" }, { value: "stderr", label: "stderr" }, { value: "system", label: "system" }]} />
        <select className="input compact" aria-label="Node" value={node} onChange={(event) => setNode(event.target.value)}>
          <option value="">All nodes</option>
          {nodes.map((each) => <option key={each} value={each}>{each}</option>)}
        </select>
        <span className="end" />
        <span className="live" data-on={live} role="status">{paused ? "Paused" : live ? "Live" : "Connecting"}</span>
        <Button icon={paused ? "play" : "pause"} onClick={() => setPaused(!paused)}>{paused ? "Go on" : "Pause"}</Button>
        <Button icon="download" disabled={found.length === 0} onClick={() => saveLog(name, found)}>Download</Button>
        <Button icon="trash" aria-label="Clear the view" disabled={lines.length === 0} onClick={clear} />
      </div>
      {error !== null && <div className="card-body"><ErrorNotice error={error} /></div>}
      {found.length === 0 ? (
        lines.length === 0 ? <Empty title="Nothing was written yet" icon="audit">What the function prints to its standard output and error arrives here within a second. Call it from the tab “Try it”.</Empty>
          : <Empty title="Nothing matches" icon="search">{plural(lines.length, "line")} {lines.length === 1 ? "does" : "do"} not match the filter.</Empty>
      ) : <LogLines label="Lines of the log" lines={found} versions={versions} paused={paused} />}
      <div className="card-foot">{plural(found.length, "line")}{dropped > 0 && `; ${count(dropped)} older ones went, the last ${count(MOST)} are kept`}</div>
    </Card>
  );
}

function useLines(name: string, paused: boolean) {
  const buffer = useRef<LogBuffer>(null);
  const [lines, setLines] = useState<readonly LogLine[]>([]);
  const [dropped, setDropped] = useState(0);
  const [live, setLive] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const hold = useRef(paused);
  const show = () => {
    setLines(buffer.current?.all ?? []);
    setDropped(buffer.current?.dropped ?? 0);
  };
  useEffect(() => {
    hold.current = paused;
    if (!paused) show();
  }, [paused]);
  useEffect(() => {
    buffer.current ??= new LogBuffer(MOST);
    const stop = new AbortController();
    // Many lines may come at once; the page is drawn once a frame.
    let frame = 0;
    const draw = () => {
      frame = 0;
      if (!hold.current) show();
    };
    const run = async () => {
      for (let pause = 500, repeated = false; !stop.signal.aborted; repeated = true) {
        let first = repeated;
        try {
          await follow(name, TAIL, stop.signal, () => {
            pause = 500;
            setLive(true);
            setError(null);
          }, (more) => {
            buffer.current?.add(more, first);
            first = false;
            if (frame === 0) frame = requestAnimationFrame(draw);
          });
        } catch (thrown) {
          if (ended(stop.signal)) return;
          setError(thrown);
        }
        setLive(false);
        await new Promise((resolve) => setTimeout(resolve, pause));
        pause = Math.min(15_000, pause * 2);
      }
    };
    void run();
    return () => {
      stop.abort();
      cancelAnimationFrame(frame);
    };
  }, [name]);
  const clear = () => {
    buffer.current = new LogBuffer(MOST);
    show();
  };
  return { lines, dropped, live, error, clear };
}

/** A signal is ended from outside, which the type checker does not see in a loop that looked at it before. */
function ended(signal: AbortSignal): boolean {
  return signal.aborted;
}
