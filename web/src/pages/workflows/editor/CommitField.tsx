import { useState, type ReactNode } from "react";
import { TextField } from "@/components";

/** A field whose text counts when it is left, or with Enter: one change, one step back. */
export function CommitField({ label, hint, value, onCommit, error, placeholder, type, disabled }: {
  label: ReactNode;
  hint?: ReactNode;
  value: string;
  onCommit: (value: string) => void;
  error?: string | undefined;
  placeholder?: string;
  type?: "text" | "number";
  disabled?: boolean;
}) {
  const [typed, setTyped] = useState<{ of: string; text: string } | null>(null);
  // What was typed counts as long as the value below it is the one it was typed over.
  const text = typed !== null && typed.of === value ? typed.text : value;
  const commit = () => {
    if (text !== value) onCommit(text);
    setTyped(null);
  };
  return (
    <TextField label={label} hint={hint} error={error} placeholder={placeholder} type={type} disabled={disabled} value={text} spellCheck={false} autoComplete="off"
      onChange={(event) => setTyped({ of: value, text: event.target.value })} onBlur={commit}
      onKeyDown={(event) => {
        if (event.key === "Enter") {
          event.preventDefault();
          commit();
        } else if (event.key === "Escape") setTyped(null);
      }} />
  );
}
