/** Icons: 16 px strokes, drawn here so that nothing is fetched. */

const PATHS = {
  overview: "M2.5 13.5h11M4.5 13.5V8m3.5 5.5v-11m3.5 11V6",
  functions: "M8.5 2 3.5 9h4l-1 5 5-7h-4z",
  workflows: "M2 3h4v4H2zM10 9h4v4h-4zM6 5h3a2 2 0 0 1 2 2v2",
  jobs: "M3 4.5h10M3 8h10M3 11.5h6",
  network: "M8 2.5v3M8 10.5v3M2.5 8h3M10.5 8h3M8 10.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5z",
  dns: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM2 8h12M8 2c2 2 2 10 0 12M8 2c-2 2-2 10 0 12",
  billing: "M2.5 4h11v8.5h-11zM2.5 6.8h11M5 10h2.5",
  access: "M6 8a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM1.5 13.5c0-2.5 2-4 4.5-4s4.5 1.5 4.5 4M11 3.2a2.5 2.5 0 0 1 0 4.6M12 9.8c1.6.5 2.5 1.8 2.5 3.7",
  account: "M8 8a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM2.5 14c0-3 2.5-4.5 5.5-4.5s5.5 1.5 5.5 4.5",
  audit: "M4 2.5h6l2.5 2.5v8.5h-8.5zM10 2.5V5h2.5M6 8h4M6 10.5h4",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.5 10.5 14 14",
  close: "M4 4l8 8M12 4l-8 8",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  check: "M3 8.5 6.5 12 13 4.5",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  plus: "M8 3v10M3 8h10",
  trash: "M3 4.5h10M6 4.5v-2h4v2M4.5 4.5l.6 9h5.8l.6-9",
  warn: "M8 2 1.5 13.5h13zM8 6.5v3.2M8 11.5v.3",
  info: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 7.5V11M8 5v.3",
  lock: "M4 7.5h8v6H4zM5.5 7.5V5a2.5 2.5 0 0 1 5 0v2.5",
  empty: "M2 9l2-6h8l2 6v4.5H2zM2 9h3.5l1 2h3l1-2H14",
  sun: "M8 10.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM8 1.5v1.5M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M3.4 12.6l1-1M11.6 4.4l1-1",
  moon: "M13.5 9.5A6 6 0 0 1 6.5 2.5a6 6 0 1 0 7 7z",
  system: "M2 3h12v8H2zM6 13.5h4M8 11v2.5",
  clock: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 4.5V8l2.5 1.5",
  up: "M4 10l4-4 4 4",
  down: "M4 6l4 4 4-4",
  right: "M6 4l4 4-4 4",
  external: "M9 3h4v4M13 3 7.5 8.5M11 9.5v3.5H3V5h3.5",
  upload: "M8 10.5v-8M4.5 6 8 2.5 11.5 6M2.5 11v2.5h11V11",
  download: "M8 2.5v8M4.5 7 8 10.5 11.5 7M2.5 11v2.5h11V11",
  play: "M5 3l8 5-8 5z",
  pause: "M5 3v10M11 3v10",
  refresh: "M13 8a5 5 0 1 1-1.5-3.6M13 2v3h-3",
  undo: "M3 6.5h6.5a3.5 3.5 0 0 1 0 7H6M3 6.5 6 3.5M3 6.5l3 3",
  more: "M3.5 8h.1M8 8h.1M12.5 8h.1",
  out: "M6.5 2.5h-4v11h4M10 5l3 3-3 3M13 8H6",
  filter: "M2 3.5h12L9.5 9v4.5l-3-1.5V9z",
  edit: "M10.5 3 13 5.5 5.5 13H3v-2.5z",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 16 16" fill="none" stroke="currentColor" strokeWidth={name === "more" ? 2.2 : 1.4}
      strokeLinecap="round" strokeLinejoin="round" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
