/** The mark: one call in, the best of several ways on. */
export function Logo({ size = 28 }: { size?: number }) {
  return (
    <svg width={size} height={size} viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="8" fill="#4338ca" />
      <g fill="none" stroke="#fff" strokeWidth="2.4" strokeLinecap="round">
        <path d="M9 16h5l4-7h5" />
        <path d="M14 16h9" opacity=".55" />
        <path d="M14 16l4 7h5" opacity=".55" />
      </g>
      <circle cx="8.5" cy="16" r="2.6" fill="#fff" />
    </svg>
  );
}
