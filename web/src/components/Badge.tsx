import type { ReactNode } from "react";

export type Tone = "good" | "warn" | "bad" | "info" | "accent" | "neutral";

/** A state in a word. Colour never says it alone. */
export function Badge({ tone = "neutral", dot = false, children, title }: { tone?: Tone; dot?: boolean; children: ReactNode; title?: string }) {
  return <span className={`badge ${tone === "neutral" ? "" : tone}${dot ? " dot" : ""}`} title={title}>{children}</span>;
}

/** A share between 0 and 1 as a bar; `label` says what it is a share of. */
export function Bar({ share, label, tone }: { share: number; label: string; tone?: "good" | "warn" | "bad" }) {
  const percent = Math.round(Math.min(1, Math.max(0, Number.isFinite(share) ? share : 0)) * 100);
  return (
    <div className={`bar ${tone ?? ""}`} role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={100} aria-valuenow={percent} title={label}>
      <i style={{ width: `${percent}%` }} />
    </div>
  );
}
