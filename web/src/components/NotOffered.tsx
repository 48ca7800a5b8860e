import { Code } from "./Code";
import { Empty } from "./States";

/** The controller is older than the console and has no such operation. */
export function NotOffered({ what, instead }: { what: string; instead?: string }) {
  return (
    <div className="stack">
      <Empty title={`${what}: not offered by this controller`} icon="info">
        The controller answers that it has no such operation. It comes with a newer version; everything else works as before.
      </Empty>
      {instead !== undefined && <div style={{ padding: "0 1rem 1rem" }}><Code text={instead} label="command for the same" /></div>}
    </div>
  );
}
