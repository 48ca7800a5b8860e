import { Icon } from "@/components";
import { duration } from "@/format";
import type { Step, StepState } from "./pipeline";
import css from "./upload.module.css";

const WORDS: Readonly<Record<StepState, string>> = { waiting: "waiting", running: "running", passed: "passed", failed: "refused", skipped: "not reached" };

/** The steps of the validation, one below the other. */
export function Pipeline({ steps }: { steps: readonly Step[] }) {
  return (
    <ol className={css["steps"]} aria-label="Validation">
      {steps.map((step) => (
        <li key={step.id} data-state={step.state} className={css["step"]}>
          <span className={css["mark"]}>
            {step.state === "running" && <span className="spinner" />}
            {step.state === "passed" && <Icon name="check" size={13} />}
            {step.state === "failed" && <Icon name="close" size={13} />}
          </span>
          <span className={css["title"]}>
            {step.title} <span className="visually-hidden">{WORDS[step.state]}</span>
            {step.took !== null && <span className="faint small"> {duration(step.took)}</span>}
            {step.result !== null && <span className={css["result"]}>{step.result}</span>}
          </span>
        </li>
      ))}
    </ol>
  );
}
