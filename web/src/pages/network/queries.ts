/** What the network pages ask for. Nodes tell how they are every few seconds; their figures are asked for as often. */
import { queryOptions } from "@tanstack/react-query";
import { allPages, api, body, type Schemas } from "@/api/client";

const OFTEN = 5000;

export const clustersQuery = queryOptions({
  queryKey: ["clusters"],
  queryFn: () => allPages((cursor) => api.GET("/v1/clusters", { params: { query: { cursor, limit: 500 } } })),
  refetchInterval: OFTEN,
});

export const clusterQuery = (cluster: string) => queryOptions({
  queryKey: ["clusters", cluster],
  queryFn: () => body(api.GET("/v1/clusters/{cluster}", { params: { path: { cluster } } })),
  refetchInterval: OFTEN,
});

export const nodesQuery = queryOptions({
  queryKey: ["nodes"],
  queryFn: () => allPages((cursor) => api.GET("/v1/nodes", { params: { query: { cursor, limit: 500 } } })),
  refetchInterval: OFTEN,
});

export const nodeQuery = (node: string) => queryOptions({
  queryKey: ["nodes", node],
  queryFn: () => body(api.GET("/v1/nodes/{node}", { params: { path: { node } } })),
  refetchInterval: OFTEN,
});

/** The most clusters whose devices are shown on one page. */
export const CLUSTERS_MOST = 60;
const AT_A_TIME = 4;

/** The last status of every living node, of one cluster after another. */
export const statusesQuery = (clusters: readonly string[]) => queryOptions({
  queryKey: ["clusters", "statuses", clusters],
  queryFn: async (): Promise<Schemas["NodeStatus"][]> => {
    const left = clusters.slice(0, CLUSTERS_MOST);
    const found: Schemas["NodeStatus"][] = [];
    const work = async () => {
      for (let cluster = left.shift(); cluster !== undefined; cluster = left.shift()) {
        const detail = await body(api.GET("/v1/clusters/{cluster}", { params: { path: { cluster } } }));
        found.push(...detail.statuses);
      }
    };
    await Promise.all(Array.from({ length: AT_A_TIME }, work));
    return found.sort((a, b) => a.node.localeCompare(b.node));
  },
  refetchInterval: 2 * OFTEN,
});
