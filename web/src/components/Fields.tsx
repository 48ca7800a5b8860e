/** Form fields: each with a label, a hint, and an error that is read out with it. */
import { useId, type InputHTMLAttributes, type ReactNode, type SelectHTMLAttributes, type TextareaHTMLAttributes } from "react";

export interface ControlProps {
  id: string;
  "aria-describedby"?: string;
  "aria-invalid"?: true;
}

interface FieldProps {
  label: ReactNode;
  hint?: ReactNode;
  error?: string | null | undefined;
}

/** The frame of a field; `children` gets what the control needs to belong to it. */
export function Field({ label, hint, error, children }: FieldProps & { children: (control: ControlProps) => ReactNode }) {
  const id = useId();
  const failed = error !== undefined && error !== null && error !== "";
  const described = [hint !== undefined && `${id}-hint`, failed && `${id}-error`].filter(Boolean).join(" ");
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {children({ id, ...(described === "" ? {} : { "aria-describedby": described }), ...(failed ? { "aria-invalid": true } : {}) })}
      {hint !== undefined && <div className="hint" id={`${id}-hint`}>{hint}</div>}
      {failed && <div className="error" id={`${id}-error`} role="alert">{error}</div>}
    </div>
  );
}

export function TextField({ label, hint, error, className, ...input }: FieldProps & InputHTMLAttributes<HTMLInputElement>) {
  return (
    <Field label={label} hint={hint} error={error}>
      {(control) => <input type="text" {...input} {...control} className={`input ${className ?? ""}`} />}
    </Field>
  );
}

export function TextArea({ label, hint, error, className, ...input }: FieldProps & TextareaHTMLAttributes<HTMLTextAreaElement>) {
  return (
    <Field label={label} hint={hint} error={error}>
      {(control) => <textarea {...input} {...control} className={`input ${className ?? ""}`} />}
    </Field>
  );
}

export function SelectField({ label, hint, error, options, ...input }: FieldProps & SelectHTMLAttributes<HTMLSelectElement> & { options: readonly { value: string; label: string }[] }) {
  return (
    <Field label={label} hint={hint} error={error}>
      {(control) => (
        <select {...input} {...control} className="input">
          {options.map((option) => <option key={option.value} value={option.value}>{option.label}</option>)}
        </select>
      )}
    </Field>
  );
}

export function Check({ label, hint, ...input }: { label: ReactNode; hint?: ReactNode } & InputHTMLAttributes<HTMLInputElement>) {
  return (
    <label className="check">
      <input type="checkbox" {...input} />
      <span>
        {label}
        {hint !== undefined && <span className="hint muted small">{hint}</span>}
      </span>
    </label>
  );
}
