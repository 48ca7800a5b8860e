/** Which version of an app is current: changed only as long as the app is what the person has seen. */
import { api, tagged, type Schemas, type Tagged } from "./client";
import { ApiError } from "./problem";

/**
 * Makes another version current; `null` is the one that was current before. The tag is that of the app as it was shown. It also holds `null` to
 * one version: once somebody else has made another one current, this is refused.
 */
export async function rollBack(app: string, version: number | null, tag: string | null): Promise<Tagged<Schemas["AppDetail"]>> {
  try {
    return await tagged(api.POST("/v1/apps/{app}/rollback", { params: { path: { app }, header: tag === null ? {} : { "if-match": tag } }, body: { version } }));
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 412) throw error;
    const { code, title, requestId } = error;
    throw new ApiError(412, { code, title, detail: `Another version of ${app} was made current meanwhile, so nothing was changed.` }, requestId);
  }
}

/** The way back from a change that made a version current, to the version before; none if it is still that one. */
export function wayBack(app: string, before: number | undefined, { value, tag }: Tagged<{ version: number }>): (() => Promise<Tagged<Schemas["AppDetail"]>>) | undefined {
  if (before === undefined || before === value.version) return undefined;
  return () => rollBack(app, before, tag);
}
