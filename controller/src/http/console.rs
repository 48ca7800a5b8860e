//! The one plain page at `/`: regions, functions, an upload form. Its parts are files of their own, so that the policy can forbid everything
//! inline.

use actix_web::HttpResponse;
use actix_web::web::{self, ServiceConfig};

/// Only what this server itself sends, and nothing inline; nobody may frame the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Adds the page.
pub(crate) fn routes(config: &mut ServiceConfig) {
    for (path, kind, text) in [
        (
            "/",
            "text/html; charset=utf-8",
            include_str!("../../../web/index.html"),
        ),
        (
            "/console.css",
            "text/css; charset=utf-8",
            include_str!("../../../web/console.css"),
        ),
        (
            "/console.js",
            "text/javascript; charset=utf-8",
            include_str!("../../../web/console.js"),
        ),
    ] {
        config.route(path, web::get().to(move || async move { file(kind, text) }));
    }
}

fn file(kind: &'static str, text: &'static str) -> HttpResponse {
    HttpResponse::Ok()
        .content_type(kind)
        .insert_header(("content-security-policy", POLICY))
        .insert_header(("x-content-type-options", "nosniff"))
        .insert_header(("referrer-policy", "no-referrer"))
        .insert_header(("cache-control", "no-cache"))
        .body(text)
}

#[cfg(test)]
mod tests {
    #[test]
    fn nothing_on_the_page_is_inline() {
        let page = include_str!("../../../web/index.html");
        assert!(page.contains("<script src=\"/console.js\" defer></script>"));
        for inline in [
            "<script>",
            "<style",
            " style=",
            " onclick=",
            " onsubmit=",
            "javascript:",
            "http://",
            "https://",
        ] {
            assert!(!page.contains(inline), "{inline}");
        }
        let script = include_str!("../../../web/console.js");
        for stored in [
            "localStorage",
            "sessionStorage",
            "cookie",
            "innerHTML",
            "eval(",
        ] {
            assert!(!script.contains(stored), "{stored}");
        }
    }
}
