import type { ButtonHTMLAttributes, ReactNode } from "react";
import { Icon, type IconName } from "./Icon";

interface Props extends ButtonHTMLAttributes<HTMLButtonElement> {
  kind?: "primary" | "danger" | "danger solid" | "ghost";
  small?: boolean;
  icon?: IconName;
  /** Work goes on: the button turns, says so, and cannot be pressed again. It keeps the focus, which a disabled one would lose. */
  busy?: boolean;
  children?: ReactNode;
}

/** A button. Without text it needs `aria-label`. */
export function Button({ kind, small, icon, busy = false, children, className, onClick, ...rest }: Props) {
  const bare = children === undefined || children === null;
  const names = ["button", kind, small === true && "small", bare && "icon", className];
  return (
    <button type="button" {...rest} className={names.filter(Boolean).join(" ")} aria-busy={busy || undefined} aria-disabled={busy || undefined}
      onClick={busy ? (event) => event.preventDefault() : onClick}>
      {icon !== undefined && !busy && <Icon name={icon} size={small === true ? 14 : 16} />}
      {children}
    </button>
  );
}

/** One of a few choices, all in sight. */
export function Segmented<T extends string>({ label, value, options, onChange }: {
  label: string;
  value: T;
  options: readonly { value: T; label: ReactNode; title?: string }[];
  onChange: (value: T) => void;
}) {
  return (
    <div className="segmented" role="group" aria-label={label}>
      {options.map((option) => (
        <button key={option.value} type="button" aria-pressed={option.value === value} title={option.title}
          aria-label={typeof option.label === "string" ? undefined : option.title} onClick={() => onChange(option.value)}>
          {option.label}
        </button>
      ))}
    </div>
  );
}
