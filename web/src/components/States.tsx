/** What a page shows while it has nothing to show: loading, empty, failed, not allowed. */
import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { ApiError, advice } from "@/api/problem";
import { Button } from "./Button";
import { CopyButton } from "./Code";
import { Icon, type IconName } from "./Icon";

/** Grey lines in the place of what is coming. */
export function Loading({ lines = 4, label = "Loading" }: { lines?: number; label?: string }) {
  return (
    <div className="stack-s" role="status" aria-label={label} style={{ padding: "1rem" }}>
      {Array.from({ length: lines }, (_, index) => (
        <div key={index} className="skeleton" style={{ width: `${100 - ((index * 23) % 47)}%` }} />
      ))}
    </div>
  );
}

/** Nothing is here yet; `children` says what to do next. */
export function Empty({ title, children, icon = "empty", action, slim = false }: {
  title: string;
  children?: ReactNode;
  icon?: IconName;
  action?: ReactNode;
  /** Beside other things, where a large sign would take more room than it says. */
  slim?: boolean;
}) {
  return (
    <div className={slim ? "state slim" : "state"}>
      {!slim && <Icon name={icon} size={24} />}
      <h3>{title}</h3>
      {children !== undefined && <p>{children}</p>}
      {action}
    </div>
  );
}

/** The caller may not look at this. */
export function NoPermission({ detail }: { detail?: string }) {
  return (
    <div className="state">
      <Icon name="lock" size={24} />
      <h3>You may not look at this</h3>
      <p>{detail ?? "Your role has no right to it."} Ask an owner of the tenant, or an admin of the network, for the right.</p>
    </div>
  );
}

/** An error in full: what, what to do, its code and the request id. */
export function Failed({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  if (error instanceof ApiError && error.forbidden) return <NoPermission detail={sentence(error.message)} />;
  return (
    <div className="state" role="alert">
      <Icon name="warn" size={24} />
      <h3>{error instanceof ApiError ? sentence(error.title) : "This did not work"}</h3>
      <p className="break">{messageOf(error)}</p>
      {error instanceof ApiError && <p>{advice(error)}</p>}
      <ErrorFacts error={error} />
      {onRetry !== undefined && <Button icon="refresh" onClick={onRetry}>Try again</Button>}
    </div>
  );
}

/** An error beside a form or a button. */
export function ErrorNotice({ error }: { error: unknown }) {
  if (error === null || error === undefined) return null;
  return (
    <div className="notice bad" role="alert">
      <Icon name="warn" />
      <div>
        <div>{sentence(messageOf(error))}</div>
        {error instanceof ApiError && <div className="muted">{advice(error)}</div>}
        <ErrorFacts error={error} />
      </div>
    </div>
  );
}

function ErrorFacts({ error }: { error: unknown }) {
  if (!(error instanceof ApiError)) return null;
  return (
    <div className="row small muted">
      <span className="mono">{error.code}</span>
      {error.requestId !== null && (
        <span className="row-tight">request <span className="mono break">{error.requestId}</span> <CopyButton text={error.requestId} what="request id" /></span>
      )}
    </div>
  );
}

/** The text of whatever was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : "Something went wrong.";
}

/** With a capital at the beginning and a full stop at the end. */
export function sentence(text: string): string {
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(begun) ? begun : `${begun}.`;
}

/** A remark in the course of a page. */
export function Notice({ tone = "info", children }: { tone?: "info" | "good" | "warn" | "bad"; children: ReactNode }) {
  const icon: IconName = tone === "good" ? "check" : tone === "info" ? "info" : "warn";
  return (
    <div className={`notice ${tone}`}>
      <Icon name={icon} />
      <div>{children}</div>
    </div>
  );
}

/** Another version was deployed while changes were made to the one before: which of the two counts is for the person to say. */
export function Meanwhile({ version, keep, children, onLoad, onKeep }: {
  version: number;
  /** What the button says that keeps the changes. */
  keep: string;
  /** What the changes are based on. */
  children: ReactNode;
  onLoad: () => void;
  onKeep: () => void;
}) {
  return (
    <Notice tone="warn">Version {version} was deployed meanwhile. {children}{" "}
      <Button small onClick={onLoad}>Load version {version}</Button> <Button small onClick={onKeep}>{keep}</Button></Notice>
  );
}

/** What a query gave, or the state it is in. Data that is there stays while a later request fails; the failure is shown above it. */
export function Loaded<T>({ query, children, empty, isEmpty, lines }: {
  query: UseQueryResult<T>;
  children: (data: T) => ReactNode;
  /** Shown when `isEmpty` says so (an empty array, if not given). */
  empty?: ReactNode;
  isEmpty?: (data: T) => boolean;
  lines?: number;
}) {
  const { data, error, isPending, refetch } = query;
  if (data === undefined) {
    if (isPending) return <Loading lines={lines ?? 4} />;
    return <Failed error={error} onRetry={() => void refetch()} />;
  }
  const nothing = isEmpty === undefined ? Array.isArray(data) && data.length === 0 : isEmpty(data);
  if (nothing && empty !== undefined) return empty;
  return (
    <>
      {error !== null && <ErrorNotice error={error} />}
      {children(data)}
    </>
  );
}
