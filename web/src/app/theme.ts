/** Light, dark, or as the system has it. */
import { useSyncExternalStore } from "react";
import { preference } from "./preference";

export type Theme = "system" | "light" | "dark";

const theme = preference<Theme>("fdn.theme", ["system", "light", "dark"], "system");

function apply(): void {
  const chosen = theme.get();
  if (chosen === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = chosen;
}

/** Puts the choice into effect, before the first paint and after each change. */
export function startTheme(): void {
  apply();
  theme.subscribe(apply);
}

export function useTheme(): { theme: Theme; setTheme: (theme: Theme) => void } {
  return { theme: useSyncExternalStore(theme.subscribe, theme.get), setTheme: theme.set };
}
