/** The answer of a call: what came, how long each phase took, who served it. */
import { useEffect, useState } from "react";
import { Code, Notice, Pairs, Tabs } from "@/components";
import { bytes, duration, plural } from "@/format";
import { fromBase64, headerOf, hexdump, pretty, type TryAnswer } from "./tryRequest";

const PHASES: Readonly<Record<string, string>> = {
  connect: "Connecting to the gateway",
  network: "On the way, and at the gateway",
  wait: "Waiting for a free instance",
  start: "Starting an instance",
  exec: "Running",
};

export function Answer({ answer }: { answer: TryAnswer }) {
  const [tab, setTab] = useState<"body" | "headers">("body");
  const type = headerOf(answer.headers, "content-type");
  return (
    <div className="stack">
      <Pairs items={[
        ["Served by", <span key="s"><b>{answer.cluster}</b>{answer.node !== undefined && `, node ${answer.node}`}{answer.version !== undefined && `, v${answer.version}`}</span>],
        ["Through", <span key="g" className="mono">{answer.gateway}</span>],
        ["Body", `${bytes(answer.body_bytes)}${type === null ? "" : `, ${type}`}`],
        (answer.stages?.length ?? 0) > 0 && ["Stages", (answer.stages ?? []).map((stage) => `${stage.stage} in ${stage.cluster}`).join(", ")],
      ]} />
      <Timings timings={answer.timings} />
      {answer.truncated && <Notice tone="warn">The answer is longer than what is shown here.</Notice>}
      <Tabs label="Parts of the answer" value={tab} onChange={setTab} items={[{ value: "body", label: "Body" }, { value: "headers", label: plural(answer.headers.length, "header") }]}>
        <div style={{ paddingBlockStart: "0.75rem" }}>
          {tab === "headers" ? <Code text={answer.headers.map((header) => header.join(": ")).join("\n")} label="headers" wrap /> : <Body answer={answer} type={type} />}
        </div>
      </Tabs>
    </div>
  );
}

function Body({ answer, type }: { answer: TryAnswer; type: string | null }) {
  if (answer.body_bytes === 0) return <p className="muted">The body is empty.</p>;
  if (answer.encoding === "text") return <Code text={pretty(answer.body, type)} label="body" wrap maxHeight="24rem" />;
  const bytes = fromBase64(answer.body);
  return (
    <div className="stack">
      {type !== null && /^image\/(png|jpeg|gif|webp)/.test(type) && !answer.truncated && <Picture bytes={bytes} type={type} />}
      <Code text={hexdump(bytes)} label="first bytes of the body" copy={false} maxHeight="16rem" />
    </div>
  );
}

/** Drawn on a canvas: the policy allows pictures of the console's own only, and no blob: addresses. */
function Picture({ bytes, type }: { bytes: Uint8Array<ArrayBuffer>; type: string }) {
  const [canvas, setCanvas] = useState<HTMLCanvasElement | null>(null);
  useEffect(() => {
    if (canvas === null) return undefined;
    let gone = false;
    void createImageBitmap(new Blob([bytes], { type })).then((picture) => {
      if (gone) return;
      canvas.width = picture.width;
      canvas.height = picture.height;
      canvas.getContext("2d")?.drawImage(picture, 0, 0);
    }, () => undefined);
    return () => {
      gone = true;
    };
  }, [canvas, bytes, type]);
  return <canvas ref={setCanvas} role="img" aria-label="The picture in the body" style={{ maxWidth: "100%", maxHeight: "22rem", objectFit: "contain", alignSelf: "flex-start" }} />;
}

function Timings({ timings }: { timings: TryAnswer["timings"] }) {
  const total = timings.find((timing) => timing.phase === "total")?.ms ?? 0;
  const phases = timings.filter((timing) => timing.phase !== "total");
  return (
    <div className="stack-s">
      <div className="row between small"><span className="strong">Time by phase</span><span>total <b>{duration(total)}</b></span></div>
      <div className="sharebar" aria-hidden="true">
        {phases.map((timing, index) => <i key={timing.phase} style={{ width: `${total > 0 ? ((timing.ms ?? 0) / total) * 100 : 0}%`, background: `var(--series-${(index % 6) + 1})` }} />)}
      </div>
      <ul className="stack-s small">
        {phases.map((timing, index) => (
          <li key={timing.phase} className="row-tight between">
            <span className="row-tight"><i className="key-dot" style={{ background: `var(--series-${(index % 6) + 1})` }} />{PHASES[timing.phase] ?? timing.phase}</span>
            <span className="strong">{duration(timing.ms)}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}
