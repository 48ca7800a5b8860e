import { useEffect, type ReactNode } from "react";

/** The head of a page: where one is, its title, what can be done. The title takes the focus when the route changes (see `app/focus`). */
export function PageHead({ title, crumbs, lead, actions, documentTitle }: {
  title: ReactNode;
  /** The way here: links, outermost first. */
  crumbs?: ReactNode;
  lead?: ReactNode;
  actions?: ReactNode;
  /** For the browser's tab, when `title` is no text. */
  documentTitle?: string;
}) {
  const text = documentTitle ?? (typeof title === "string" ? title : "");
  useEffect(() => {
    document.title = text === "" ? "FDN" : `${text} · FDN`;
  }, [text]);
  return (
    <div className="page-head">
      <div>
        {crumbs !== undefined && <nav className="crumbs" aria-label="Where you are">{crumbs}</nav>}
        <h1 tabIndex={-1} data-page-title>{title}</h1>
        {lead !== undefined && <div className="lead">{lead}</div>}
      </div>
      {actions !== undefined && <div className="row">{actions}</div>}
    </div>
  );
}
