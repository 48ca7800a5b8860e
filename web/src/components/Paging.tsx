/** Lists that come page by page: the end of their rows brings the next page, and so does a filter that finds nothing yet. */
import { useEffect, useState } from "react";
import { plural } from "@/format";
import { Button } from "./Button";
import { LOOKED, standing, type Paged, type Standing } from "./standing";
import { ErrorNotice } from "./States";

interface List extends Paged {
  fetchNextPage: () => Promise<unknown>;
  refetch: () => Promise<unknown>;
}

export interface Paging {
  standing: Standing;
  /** Whether nothing was found yet, and the filter goes on looking. */
  looking: boolean;
  /** For `Table`. */
  onEnd: (() => void) | undefined;
  /** Asks again after an error. */
  again: () => void;
  /** Lets the filter look through more pages. */
  further: () => void;
  error: Error | null;
}

/** `found` rows pass the filter, which only knows those that were asked for; `filtered` says whether there is one. */
export function usePaging(list: List, filtered: boolean, found: number): Paging {
  const [limit, setLimit] = useState(LOOKED);
  const now = standing(list, filtered, limit);
  const { fetchNextPage, refetch, hasNextPage, isFetchNextPageError, error } = list;
  const pages = list.data?.pages.length ?? 0;
  const looking = filtered && found === 0 && pages > 0 && (now === "on" || now === "asking");
  const look = looking && now === "on";
  useEffect(() => {
    if (look) void fetchNextPage();
  }, [look, pages, fetchNextPage]);
  return {
    standing: now,
    looking,
    onEnd: hasNextPage ? () => { if (now === "on") void fetchNextPage(); } : undefined,
    again: () => void (isFetchNextPageError ? fetchNextPage() : refetch()),
    further: () => setLimit(pages + LOOKED),
    error,
  };
}

/** Below the rows: what is still missing from them, and the way on. A button that was pressed stays while it is asked, and with it the focus. */
export function PagingFoot({ paging, rows, what, whats }: {
  paging: Paging;
  /** How many were looked through. */
  rows: number;
  what: string;
  whats?: string;
}) {
  const [pressed, press] = useState<Standing>("on");
  const { standing: now, looking, error } = paging;
  if (pressed === "failed" && (now === "on" || now === "all")) press("on");
  const waits = (pressed === "failed" && now === "asking") || (pressed === "limit" && looking);
  const act = (deed: () => void) => {
    press(now);
    deed();
  };
  switch (waits ? pressed : now) {
    case "failed":
      return <div className="card-foot stack-s"><ErrorNotice error={error} /><div><Button small icon="refresh" busy={waits} onClick={() => act(paging.again)}>Try again</Button></div></div>;
    case "limit":
      return <div className="card-foot row"><span role="status">The filter looked through {plural(rows, what, whats)}; there are more.</span><Button small busy={waits} onClick={() => act(paging.further)}>Look further</Button></div>;
    case "asking":
      return <div className="card-foot" role="status">Loading more …</div>;
    case "all":
    case "on":
      return null;
  }
}
