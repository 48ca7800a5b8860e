/** What is asked of the controller about a domain. */
import { api, body, type Schemas } from "@/api/client";

export type Domain = Schemas["DomainInfo"];

/** Looks for the proof of a domain now. */
export function verified({ app, host }: Pick<Domain, "app" | "host">): Promise<Domain> {
  return body(api.POST("/v1/apps/{app}/domains/{host}/verify", { params: { path: { app, host } } }));
}

/** Asks for a domain that was removed. The records are the same as before, so that one which had been proven is at once. */
export async function broughtBack({ app, host, state }: Pick<Domain, "app" | "host" | "state">): Promise<Domain> {
  const added = await body(api.POST("/v1/apps/{app}/domains", { params: { path: { app } }, body: { host } }));
  return state === "pending" ? added : verified(added);
}
