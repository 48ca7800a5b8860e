/** How an app's calls are split between versions: changed only as long as the split is what the person has seen. */
import { api, tagged, type Schemas, type Tagged } from "./client";
import { ApiError } from "./problem";

/** Sets the split; an empty one sends all calls to the current version. The tag is that of the split as it was shown. */
export async function setTraffic(app: string, traffic: Schemas["Traffic"], tag: string | null): Promise<Tagged<Schemas["TrafficInfo"]>> {
  try {
    return await tagged(api.PUT("/v1/apps/{app}/traffic", { params: { path: { app }, header: tag === null ? {} : { "if-match": tag } }, body: traffic }));
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 412) throw error;
    const { code, title, requestId } = error;
    throw new ApiError(412, { code, title, detail: `The calls of ${app} were split in another way meanwhile, so nothing was changed.` }, requestId);
  }
}
