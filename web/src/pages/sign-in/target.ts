/** Where a sign-in leads: an address inside the console only, so that no link to this page can lead elsewhere. */
export function inside(to: string): string {
  return /^\/(?![/\\])/.test(to) && !to.startsWith("/sign-in") ? to : "/";
}
