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
