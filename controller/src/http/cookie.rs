//! The session cookie of browsers, and the cookie of a login in progress.
//!
//! `HttpOnly`: scripts cannot read it. `SameSite=Strict`: other sites' pages do not send it. `Secure`, with a `__Host-` name that only this host can
//! have set, unless the browser reached the controller on its own machine over plain HTTP, where browsers refuse such cookies: over TLS, behind a
//! proxy and from other machines it is always used.

use std::net::IpAddr;
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::header;
use fdn_core::DurationMs;

const SECURE_NAME: &str = "__Host-fdn-session";
const PLAIN_NAME: &str = "fdn-session";

/// The value of the session cookie, if one was sent.
pub(super) fn session(request: &HttpRequest) -> Option<String> {
    let name = if secure(request) {
        SECURE_NAME
    } else {
        PLAIN_NAME
    };
    value(request, name)
}

/// The value of a cookie, if it was sent.
fn value(request: &HttpRequest, name: &str) -> Option<String> {
    request
        .headers()
        .get_all(header::COOKIE)
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value.to_owned())
}

/// The header that sets the session cookie.
pub(super) fn set(request: &HttpRequest, value: &str, lifetime: DurationMs) -> String {
    let (name, secure) = if secure(request) {
        (SECURE_NAME, "; Secure")
    } else {
        (PLAIN_NAME, "")
    };
    let seconds = lifetime.as_millis() / 1000;
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}")
}

/// The cookie of a login with the identity provider that is in progress.
pub(super) fn login(request: &HttpRequest) -> Option<String> {
    value(request, login_name(request))
}

/// The header that sets the login cookie. Unlike the session cookie it is sent when the provider's page redirects back here.
pub(super) fn set_login(request: &HttpRequest, value: &str, lifetime: Duration) -> String {
    let secure = if secure(request) { "; Secure" } else { "" };
    let (name, seconds) = (login_name(request), lifetime.as_secs());
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}")
}

/// The header that removes the login cookie.
pub(super) fn forget_login(request: &HttpRequest) -> String {
    set_login(request, "", Duration::ZERO)
}

fn login_name(request: &HttpRequest) -> &'static str {
    if secure(request) {
        "__Host-fdn-login"
    } else {
        "fdn-login"
    }
}

/// The header that removes the session cookie.
pub(super) fn remove(request: &HttpRequest) -> String {
    set(request, "", DurationMs::from_millis(0))
}

fn secure(request: &HttpRequest) -> bool {
    let peer = request.peer_addr().map(|peer| peer.ip().to_canonical());
    let host = request
        .headers()
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let forwarded = request.headers().contains_key("x-forwarded-for")
        || request.headers().contains_key("x-forwarded-proto")
        || request.headers().contains_key(header::FORWARDED);
    let encrypted = request.app_config().secure();
    encrypted || forwarded || !plain_loopback(peer, host.unwrap_or_default())
}

/// Whether the peer and the host name that the browser used are both this machine. Behind a proxy on this machine the host name is the public one.
fn plain_loopback(peer: Option<IpAddr>, host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let named = name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    named && peer.is_some_and(|peer| peer.is_loopback())
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    fn from(peer: &str, host: &str) -> TestRequest {
        TestRequest::default()
            .peer_addr(peer.parse().expect("address"))
            .insert_header((header::HOST, host))
    }

    #[test]
    fn cookies_are_secure_but_on_ones_own_machine() {
        let day = DurationMs::from_secs(86_400);
        for host in ["localhost:8600", "127.0.0.1:8600", "[::1]:8600"] {
            let request = from("127.0.0.1:9", host).to_http_request();
            assert_eq!(
                set(&request, "v", day),
                "fdn-session=v; Path=/; HttpOnly; SameSite=Strict; Max-Age=86400"
            );
        }
        for (peer, host) in [
            ("127.0.0.1:9", "fdn.example.org"),
            ("192.0.2.1:9", "localhost"),
            ("127.0.0.1:9", ""),
        ] {
            let set = set(&from(peer, host).to_http_request(), "v", day);
            assert!(set.starts_with("__Host-fdn-session=v;"), "{set}");
            assert!(set.ends_with("; Secure"), "{set}");
        }
        let proxied = from("127.0.0.1:9", "localhost")
            .insert_header(("x-forwarded-proto", "https"))
            .to_http_request();
        assert!(set(&proxied, "v", day).ends_with("; Secure"));
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let request = from("127.0.0.1:9", "localhost")
            .insert_header((header::COOKIE, "a=1; fdn-session=secret; b=2"))
            .to_http_request();
        assert_eq!(session(&request).as_deref(), Some("secret"));
        let other = from("192.0.2.1:9", "fdn.example.org")
            .insert_header((header::COOKIE, "fdn-session=planted"))
            .to_http_request();
        assert_eq!(session(&other), None, "only __Host- counts there");
    }
}
