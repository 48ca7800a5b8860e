import { Handle, Position, type NodeProps } from "@xyflow/react";
import { memo } from "react";
import { Icon, type IconName } from "@/components/Icon";
import { elapsed, withUnits } from "@/format";
import type { StageDraft } from "../model/draft";
import type { StageRun, StageState } from "../model/run";
import type { StageNodeType } from "./Canvas";
import styles from "./StageNode.module.css";

export type StageNodeData = {
  stage: StageDraft;
  mistakes: number;
  cluster: string | undefined;
  run: StageRun | undefined;
  editable: boolean;
  /** Whether data flows downwards on this canvas, not to the right. */
  down: boolean;
};

const MARKS: Readonly<Record<StageState, IconName>> = {
  waiting: "clock", running: "play", done: "check", failed: "close", cancelled: "close", skipped: "right",
};

/** One stage: its name, its function, and what is special about it, or how it stands in a run. */
export const StageNode = memo(function StageNode({ data, selected }: NodeProps<StageNodeType>) {
  const { stage, mistakes, run, cluster } = data;
  const names = [styles.node, selected && styles.selected, mistakes > 0 && styles.wrong, run !== undefined && styles[run.state]];
  return (
    <div className={names.filter(Boolean).join(" ")}>
      <Handle type="target" position={data.down ? Position.Top : Position.Left} isConnectable={data.editable} />
      <div className={styles.head}>
        <span className={`truncate strong ${styles.name}`} title={stage.name}>{stage.name}</span>
        {mistakes > 0 && <span className={styles.mistake} title={`${mistakes} mistakes`}><Icon name="warn" size={14} /></span>}
        {run !== undefined && <span className={styles.state}><Icon name={MARKS[run.state]} size={13} />{run.took === undefined ? run.state : elapsed(run.took)}</span>}
      </div>
      <div className={`truncate ${styles.function}`}>
        {stage.function === "" ? "no function yet" : stage.function}
        {stage.version !== "current" && <span className={styles.version}> v{stage.version}</span>}
      </div>
      <div className={styles.foot}>{run === undefined ? <Rules stage={stage} /> : <span>{runWords(run)}</span>}{cluster !== undefined && <span className={styles.cluster}>{cluster}</span>}</div>
      <Handle type="source" position={data.down ? Position.Bottom : Position.Right} isConnectable={data.editable} />
    </div>
  );
});

function runWords(run: StageRun): string {
  if (run.state === "running") return run.attempts > 1 ? `attempt ${run.attempts}` : "running";
  return run.attempts > 1 ? `${run.state}, attempt ${run.attempts}` : run.state;
}

function Rules({ stage }: { stage: StageDraft }) {
  const rules = [
    stage.needs.length === 0 && "entry",
    stage.when !== "success" && `upon ${stage.when}`,
    stage.timeout !== undefined && `≤ ${withUnits(stage.timeout)}`,
    stage.retries !== undefined && stage.retries.count > 0 && `${stage.retries.count}× again`,
  ];
  return <span className="truncate">{rules.filter((rule) => rule !== false).join(" · ")}</span>;
}
