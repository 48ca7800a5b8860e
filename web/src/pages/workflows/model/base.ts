/** What a drawing is based on, and how it stands to what is deployed. */
import { same, type Draft } from "./draft";

/** A deployed workflow; without a version, one that is not deployed yet. */
export interface Deployed {
  readonly version: number | undefined;
  /** For `If-Match`. */
  readonly tag: string | null;
  readonly draft: Draft;
}

/** What a drawing was begun on. */
export interface Base extends Deployed {
  /**
   * After a deploy of the page's own: the tag of what stood there until then. As long as the page is shown that, it has not heard of its deploy
   * everywhere.
   */
  readonly over?: string | null;
}

export interface Standing {
  /** Something was drawn that is not deployed. */
  readonly drawn: boolean;
  /** Another version was deployed since the drawing was begun. */
  readonly behind: boolean;
  /** What is deployed can take the place of the drawing: nothing is lost by it. */
  readonly load: boolean;
  /** What a deploy must find. The tag also changes where the version stays, as by two rollbacks; then the drawing is based on it all the same. */
  readonly tag: string | null;
}

/** `open`: something was typed that no drawing could be made of yet. */
export function standing(base: Base, shown: Deployed, draft: Draft, open: boolean): Standing {
  const now = base.over !== undefined && base.over === shown.tag ? base : shown;
  const drawn = !same(draft, base.draft);
  const behind = now.version !== undefined && base.version !== now.version;
  const load = now.version !== undefined && !drawn && !open && (behind || !same(base.draft, now.draft));
  return { drawn, behind, load, tag: behind ? base.tag : now.tag };
}
