/** The part of the address behind `?`: filters, order, the chosen tenant. Plain texts, so that an address is what a person would write. */
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback } from "react";

export type Search = Record<string, string | undefined>;

export function parseSearch(text: string): Search {
  return Object.fromEntries(new URLSearchParams(text));
}

export function stringifySearch(search: Record<string, unknown>): string {
  const kept = Object.entries(search).filter((entry): entry is [string, string] => typeof entry[1] === "string" && entry[1] !== "");
  return kept.length === 0 ? "" : `?${new URLSearchParams(kept).toString().replaceAll("%2F", "/").replaceAll("%3A", ":")}`;
}

/** One parameter of the address. The fallback is not written into it. Changes replace the entry in the history unless `push` is set. */
export function useParam(name: string, fallback = "", push = false): [string, (value: string) => void] {
  const search: Search = useSearch({ strict: false });
  const navigate = useNavigate();
  const set = useCallback((value: string) => {
    const next = (before: Search): Search => ({ ...before, [name]: value === fallback ? undefined : value });
    void navigate({ to: ".", search: next, replace: !push, resetScroll: false });
  }, [navigate, name, fallback, push]);
  return [search[name] ?? fallback, set];
}

/** The tenant that the person looks at; `undefined` is all of them. */
export function useTenant(): string | undefined {
  const search: Search = useSearch({ strict: false });
  return search["tenant"];
}

/** Sets several parameters of the address at once; an empty text takes one out. Changes replace the entry in the history unless `push` is set. */
export function useSetParams(push = false): (values: Search) => void {
  const navigate = useNavigate();
  return useCallback((values: Search) => {
    const next = (before: Search): Search => ({ ...before, ...values });
    void navigate({ to: ".", search: next, replace: !push, resetScroll: false });
  }, [navigate, push]);
}
