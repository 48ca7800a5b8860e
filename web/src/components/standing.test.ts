import { InfiniteQueryObserver, QueryClient } from "@tanstack/react-query";
import { expect, it } from "vitest";
import { standing, type Paged } from "./standing";

const PAGES: Paged = { data: { pages: [1, 2] }, error: null, hasNextPage: true, isFetchingNextPage: false, isFetchNextPageError: false };

it("stops at the last page, and a filter after so many", () => {
  expect(standing(PAGES, false, 2)).toBe("on");
  expect(standing(PAGES, true, 3)).toBe("on");
  expect(standing(PAGES, true, 2)).toBe("limit");
  expect(standing({ ...PAGES, isFetchingNextPage: true }, true, 2)).toBe("asking");
  expect(standing({ ...PAGES, hasNextPage: false }, true, 2)).toBe("all");
});

it("asks for a page that failed only once by itself", async () => {
  const asked: number[] = [];
  const queries = new QueryClient();
  const list = new InfiniteQueryObserver(queries, {
    queryKey: ["rows"],
    queryFn: ({ pageParam }) => {
      asked.push(pageParam);
      if (asked.length === 2) throw new Error("no answer");
      return Promise.resolve(pageParam);
    },
    initialPageParam: 1,
    getNextPageParam: (last) => (last < 3 ? last + 1 : undefined),
    retry: false,
  });
  const stop = list.subscribe(() => undefined);
  await list.refetch({ cancelRefetch: false });
  // The end of the rows stays in sight, so each new state asks.
  const goOn = async () => {
    for (let turn = 0; turn < 10 && standing(list.getCurrentResult(), false, 5) === "on"; turn += 1) await list.fetchNextPage();
    return standing(list.getCurrentResult(), false, 5);
  };
  expect(await goOn()).toBe("failed");
  expect(asked).toEqual([1, 2]);
  expect(list.getCurrentResult().isFetchNextPageError).toBe(true);
  await list.fetchNextPage();
  expect(await goOn()).toBe("all");
  expect(asked).toEqual([1, 2, 2, 3]);
  stop();
  queries.clear();
});
