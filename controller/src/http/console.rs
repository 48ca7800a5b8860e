//! The console and the documentation: files of `web/dist`, embedded at build time, and the security headers for browsers.
//!
//! Every view of the console has a path of its own, which the page itself interprets: a browser that requests any of them gets the page.

mod site;

use std::sync::LazyLock;

use actix_web::http::header::{self, HeaderMap};
use actix_web::web::{self, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use rust_embed::Embed;

use super::error::{ApiError, nothing_here};
use site::{FileRequest, FoundFile, Site};

/// The content security policy: only content from this server, nothing inline, and no framing. Pictures in a function's answer are shown from the
/// page's own memory (`blob:`).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; \
                      font-src 'self'; worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// The text at the paths of console and documentation if they were not built.
const NOT_BUILT: &str = "This controller was built without its console and documentation. To build it with the console, run in its source folder:\n\n\
                         \x20   cd web && npm ci && npm run build\n\nand build the controller again (make up does all of that). \
                         The API is there: /api/openapi.json tells of it.\n";

/// The files embedded in this controller.
#[derive(Embed)]
#[folder = "../web/dist"]
#[allow_missing = true]
struct Files;

static SITE: LazyLock<Site> = LazyLock::new(Site::of::<Files>);

/// Which of console and documentation are embedded in this controller.
#[must_use]
pub fn built_in() -> Vec<&'static str> {
    let pages = [("console", "index.html"), ("docs", "docs/index.html")];
    let there = pages.iter().filter(|(_, page)| Files::get(page).is_some());
    there.map(|(part, _)| *part).collect()
}

/// Serves the console at every path without another handler.
pub(crate) fn routes(config: &mut ServiceConfig) {
    config.default_service(web::to(anything));
}

async fn anything(request: HttpRequest) -> Result<HttpResponse, ApiError> {
    match answer(&SITE, &request) {
        Some(response) => Ok(response),
        None => nothing_here(request).await,
    }
}

/// The response with the requested file; `None` if the site has none.
fn answer(site: &Site, request: &HttpRequest) -> Option<HttpResponse> {
    let headers = request.headers();
    let file_request = FileRequest {
        method: request.method().as_str(),
        path: request.path(),
        wants_page: text(headers, header::ACCEPT).contains("text/html"),
        takes_gzip: takes_gzip(text(headers, header::ACCEPT_ENCODING)),
    };
    let found = match site.find(file_request) {
        Some(found) => found,
        None if matches!(file_request.path, "/" | site::DOCS) && file_request.only_reads() => {
            return Some(
                framed(HttpResponse::Ok())
                    .content_type("text/plain; charset=utf-8")
                    .body(NOT_BUILT),
            );
        }
        None => return None,
    };
    Some(respond(&found, text(headers, header::IF_NONE_MATCH)))
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

/// Whether gzip is accepted (RFC 9110, section 12.5.3).
fn takes_gzip(accepted: &str) -> bool {
    accepted.split(',').any(|one| {
        let mut parts = one.split(';').map(str::trim);
        let named = parts
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        named && !parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

/// Adds the headers that all responses have.
fn framed(mut response: actix_web::HttpResponseBuilder) -> actix_web::HttpResponseBuilder {
    response
        .insert_header(("content-security-policy", POLICY))
        .insert_header(("x-content-type-options", "nosniff"))
        .insert_header(("referrer-policy", "no-referrer"))
        .insert_header(("cross-origin-opener-policy", "same-origin"))
        .insert_header(("cache-control", "no-cache"));
    response
}

fn respond(found: &FoundFile<'_>, known: &str) -> HttpResponse {
    let tag = found.tag();
    let unchanged = known
        .split(',')
        .any(|one| one.trim().trim_start_matches("W/") == tag);
    let mut response = framed(match unchanged {
        true => HttpResponse::NotModified(),
        false => HttpResponse::Ok(),
    });
    response
        .insert_header((header::ETAG, tag))
        .insert_header((header::VARY, "accept-encoding"));
    if found.file.is_hashed {
        response.insert_header(("cache-control", "public, max-age=31536000, immutable"));
    }
    if unchanged {
        return response.finish();
    }
    // Sent for `identity` as well, so that intermediaries do not compress again.
    response.insert_header((header::CONTENT_ENCODING, found.encoding()));
    response.content_type(found.file.kind).body(found.bytes())
}

#[cfg(test)]
mod tests;
