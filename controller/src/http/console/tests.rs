use std::io::Read as _;

use actix_web::body::to_bytes;
use actix_web::http::Method;
use actix_web::test::TestRequest;
use fdn_core::{ErrorCode, Problem};

use super::*;

/// A console of two files, with three pages of documentation.
#[derive(Embed)]
#[folder = "src/http/console/fixture"]
struct Fixture;

/// A console that was not built.
#[derive(Embed)]
#[folder = "src/http/console/nothing"]
#[allow_missing = true]
struct Nothing;

const SCRIPT: &str = "/assets/app-0a1b2c.js";

fn ask(
    site: &Site,
    method: Method,
    path: &str,
    headers: &[(&'static str, &str)],
) -> Option<HttpResponse> {
    let mut request = TestRequest::with_uri(path).method(method);
    for (name, value) in headers {
        request = request.insert_header((*name, *value));
    }
    answer(site, &request.to_http_request())
}

fn get(site: &Site, path: &str, headers: &[(&'static str, &str)]) -> Option<HttpResponse> {
    ask(site, Method::GET, path, headers)
}

fn value(response: &HttpResponse, name: &str) -> String {
    let value = response.headers().get(name);
    value
        .and_then(|value| value.to_str().ok())
        .unwrap_or("none")
        .to_owned()
}

async fn body(response: HttpResponse) -> Vec<u8> {
    to_bytes(response.into_body())
        .await
        .expect("in memory")
        .to_vec()
}

#[actix_web::test]
async fn the_page_is_sent_for_every_view_and_for_nothing_else() {
    let site = Site::of::<Fixture>();
    let browser = [("accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
    for path in [
        "/",
        "/index.html",
        "/functions/hello?tab=logs",
        "/dns",
        "/dns/lookup",
        "/v1x",
    ] {
        let page = get(&site, path, &browser).unwrap_or_else(|| panic!("{path} is a view"));
        assert_eq!(page.status(), 200, "{path}");
        assert_eq!(value(&page, "content-type"), "text/html; charset=utf-8");
        assert_eq!(value(&page, "cache-control"), "no-cache");
        assert!(body(page).await.starts_with(b"<!doctype html>"), "{path}");
    }
    for path in [
        "/v1",
        "/v1/nothing",
        "/api/x",
        "/agent/v1/x",
        "/dns/v1/x",
        "/internal/v1/x",
        "/metrics/x",
        "/assets/gone.js",
        "/docs/gone.html",
        "/docs/gone",
        "/docs/operations",
        "/docs/errors/",
        "/docs/.html",
    ] {
        assert!(get(&site, path, &browser).is_none(), "{path}");
    }
    assert!(
        get(&site, "/functions", &[("accept", "application/json")]).is_none(),
        "a program wants no page"
    );
    assert!(
        ask(&site, Method::POST, "/", &browser).is_none(),
        "a page takes no changes"
    );
    assert!(ask(&site, Method::HEAD, "/", &browser).is_some());
    assert!(get(&site, "/../Cargo.toml", &[]).is_none());
}

#[actix_web::test]
async fn the_documentation_is_served_to_everybody() {
    let site = Site::of::<Fixture>();
    for (path, title) in [
        ("/docs", "The documentation"),
        ("/docs/", "The documentation"),
        ("/docs/index.html", "The documentation"),
        ("/docs/operations/dns.html", "DNS"),
        ("/docs/operations/dns", "DNS"),
    ] {
        let page = get(&site, path, &[]).unwrap_or_else(|| panic!("{path} is a page"));
        assert_eq!(page.status(), 200, "{path}");
        assert_eq!(value(&page, "content-type"), "text/html; charset=utf-8");
        assert_eq!(value(&page, "cache-control"), "no-cache");
        let text = String::from_utf8(body(page).await).expect("text");
        assert!(
            text.contains(&format!("<title>{title}</title>")),
            "{path}: {text}"
        );
    }
}

#[actix_web::test]
async fn the_type_of_a_problem_leads_to_its_page() {
    let site = Site::of::<Fixture>();
    let kind = Problem::new(ErrorCode::BadRequest, "why").kind;
    let (path, _) = kind.split_once('#').expect("a heading of a page");
    let page = get(&site, path, &[]).unwrap_or_else(|| panic!("{path} is a page"));
    assert_eq!(page.status(), 200);
    let text = String::from_utf8(body(page).await).expect("text");
    assert!(text.contains("<title>Error codes</title>"), "{text}");
    assert!(
        get(&site, "/index", &[]).is_none(),
        "only pages of the documentation have two names"
    );
}

#[actix_web::test]
async fn what_never_changes_is_kept_and_what_did_not_change_is_not_sent_again() {
    let site = Site::of::<Fixture>();
    let file = get(&site, SCRIPT, &[]).expect("a file");
    assert_eq!(
        value(&file, "content-type"),
        "text/javascript; charset=utf-8"
    );
    assert_eq!(
        value(&file, "cache-control"),
        "public, max-age=31536000, immutable"
    );
    assert_eq!(value(&file, "content-encoding"), "identity");
    let tag = value(&file, "etag");
    let again = get(
        &site,
        SCRIPT,
        &[("if-none-match", &format!("\"x\", W/{tag}"))],
    )
    .expect("a file");
    assert_eq!(again.status(), 304);
    assert_eq!(value(&again, "etag"), tag);
    assert!(body(again).await.is_empty());
    let other = get(&site, SCRIPT, &[("if-none-match", "\"x\"")]).expect("a file");
    assert_eq!(other.status(), 200);
}

#[actix_web::test]
async fn large_texts_are_sent_zipped_to_those_who_can_unzip() {
    let site = Site::of::<Fixture>();
    let plain = get(&site, SCRIPT, &[("accept-encoding", "br, gzip;q=0")]).expect("a file");
    let zipped = get(&site, SCRIPT, &[("accept-encoding", "br, gzip;q=0.8")]).expect("a file");
    assert_eq!(
        (
            value(&plain, "content-encoding"),
            value(&zipped, "content-encoding")
        ),
        ("identity".into(), "gzip".into())
    );
    assert_ne!(value(&plain, "etag"), value(&zipped, "etag"));
    assert_eq!(value(&zipped, "vary"), "accept-encoding");
    let (plain, zipped) = (body(plain).await, body(zipped).await);
    assert!(
        zipped.len() * 2 < plain.len(),
        "{} of {}",
        zipped.len(),
        plain.len()
    );
    let mut unzipped = Vec::new();
    flate2::read::GzDecoder::new(zipped.as_slice())
        .read_to_end(&mut unzipped)
        .expect("gzip");
    assert_eq!(unzipped, plain);
    let page = get(&site, "/", &[("accept-encoding", "gzip")]).expect("the page");
    assert_eq!(value(&page, "content-encoding"), "identity", "not worth it");
}

#[actix_web::test]
async fn nothing_inline_is_allowed_and_nobody_frames_it() {
    let page = get(&Site::of::<Fixture>(), "/", &[]).expect("the page");
    let policy = value(&page, "content-security-policy");
    assert!(
        policy.starts_with("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
        "{policy}"
    );
    assert!(
        !policy.contains("unsafe") && !policy.contains("http"),
        "{policy}"
    );
    assert_eq!(value(&page, "x-content-type-options"), "nosniff");
    assert_eq!(value(&page, "referrer-policy"), "no-referrer");
}

#[actix_web::test]
async fn without_a_console_it_is_said_how_to_get_one() {
    let site = Site::of::<Nothing>();
    let said = get(&site, "/", &[]).expect("an answer");
    assert_eq!(value(&said, "content-type"), "text/plain; charset=utf-8");
    let text = String::from_utf8(body(said).await).expect("text");
    assert!(text.contains("npm run build"), "{text}");
    assert!(get(&site, "/functions", &[("accept", "text/html")]).is_none());
}
