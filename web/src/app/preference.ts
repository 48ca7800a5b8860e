/** A choice that the browser remembers. Browsers that keep nothing forget it when the page is closed. */

export interface Preference<T extends string> {
  get: () => T;
  set: (value: T) => void;
  subscribe: (listener: () => void) => () => void;
}

export function preference<T extends string>(key: string, values: readonly T[], fallback: T): Preference<T> {
  const listeners = new Set<() => void>();
  const stored = read(key);
  let value = values.find((each) => each === stored) ?? fallback;
  return {
    get: () => value,
    set: (next) => {
      value = next;
      write(key, next);
      for (const listener of listeners) listener();
    },
    subscribe: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

function read(key: string): string | null {
  try {
    return window.localStorage.getItem(key);
  } catch {
    return null;
  }
}

function write(key: string, value: string): void {
  try {
    window.localStorage.setItem(key, value);
  } catch {
    // Nothing is kept; the choice holds until the page is closed.
  }
}
