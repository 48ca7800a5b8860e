/** The upload itself. `fetch` cannot tell how much of a body was sent, so this is an XMLHttpRequest. */
import { changeHeaders, type Schemas } from "@/api/client";
import { ApiError, problemOf } from "@/api/problem";

export interface Upload {
  app: string;
  component: File;
  manifest: string | null;
  labels: string | null;
  tenant: string | undefined;
  /** The same for every try of the same upload, so that a repeated one is made once. */
  key: string;
}

/** Codes after which a key is good for nothing. */
const SPENT = new Set(["FDN-2014", "FDN-2016"]);

/** The keys of uploads: each has its own, and the same one again until it is answered, since a lost answer does not say that nothing was done. */
export class UploadKeys {
  private last: { upload: string; key: string } | null = null;

  of({ app, component, manifest, labels, tenant }: Omit<Upload, "key">): string {
    const upload = JSON.stringify([app, component.name, component.size, component.lastModified, manifest, labels, tenant]);
    if (this.last?.upload !== upload) this.last = { upload, key: crypto.getRandomValues(new Uint32Array(4)).join("-") };
    return this.last.key;
  }

  /**
   * What came of the last one. Of one that was refused the controller forgets the key, unless the file was another one (FDN-2014) or it was done
   * and the answer is not kept (FDN-2016): with that key it would say so for ever.
   */
  ended(error: ApiError | null): void {
    if (error === null || SPENT.has(error.code)) this.last = null;
  }
}

export interface Sending {
  done: Promise<Schemas["DeployResponse"]>;
  cancel: () => void;
}

/** Sends it; `progress` hears of the part that has left this machine, from 0 to 1. */
export function send(upload: Upload, progress: (sent: number) => void): Sending {
  const request = new XMLHttpRequest();
  const done = new Promise<Schemas["DeployResponse"]>((resolve, reject) => {
    const query = upload.tenant === undefined ? "" : `?tenant=${encodeURIComponent(upload.tenant)}`;
    request.open("POST", `/v1/apps/${encodeURIComponent(upload.app)}/versions${query}`);
    for (const [name, value] of Object.entries({ ...changeHeaders(), "idempotency-key": upload.key })) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => progress(event.total > 0 ? event.loaded / event.total : 0);
    request.upload.onload = () => progress(1);
    request.onload = () => {
      if (request.status === 200) resolve(JSON.parse(request.responseText) as Schemas["DeployResponse"]);
      else reject(problemOf(request.status, request.responseText, request.getResponseHeader("x-request-id")));
    };
    request.onerror = () => reject(new ApiError(0, { title: "The upload broke off", detail: "The connection closed before the controller answered. Nothing is stored twice: send it again." }));
    request.onabort = () => reject(new ApiError(0, { title: "Cancelled", detail: "The upload was cancelled." }));
    request.send(form(upload));
  });
  return { done, cancel: () => request.abort() };
}

function form(upload: Upload): FormData {
  const parts = new FormData();
  if (upload.manifest !== null) parts.append("manifest", new Blob([upload.manifest], { type: "application/toml" }), "fdn.toml");
  if (upload.labels !== null) parts.append("labels", upload.labels);
  parts.append("component", upload.component);
  return parts;
}
