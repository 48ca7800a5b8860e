//! Translates heads of requests and responses between client and guest.
//!
//! Connection-specific fields are not forwarded (RFC 9110, section 7.6.1). Towards the guest the gateway adds the client (`x-forwarded-for`,
//! `-host`, `-proto`), the request id and the trace. actix still uses version 0.2 of the `http` crate, so names and values have to be converted.

use std::net::IpAddr;

use actix_http::header::{self as actix_header, HeaderMap as ActixHeaders};
use actix_http::{RequestHead, Version};
use bytes::{BufMut, Bytes, BytesMut};
use fdn_core::ErrorCode;
use fdn_core::api::header;
use fdn_core::policy::key::looks_like_key;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Method, Uri};
use rand::RngExt;

use super::problem::ProblemResponse;
use super::trace::{Trace, write_hex};

/// The longest request id that is accepted from a client, in bytes.
const REQUEST_ID_MAX: usize = 128;

/// Names of fields for actix, which would make a new name from a text at each request.
const REQUEST_ID_FIELD: actix_header::HeaderName =
    actix_header::HeaderName::from_static(header::REQUEST_ID);
const TRACEPARENT_FIELD: actix_header::HeaderName =
    actix_header::HeaderName::from_static("traceparent");
/// The field with the caller's identity, in requests between gateways.
pub(crate) const IDENTITY_FIELD: actix_header::HeaderName =
    actix_header::HeaderName::from_static(header::IDENTITY);

/// The identifiers of one request.
#[derive(Clone, Debug)]
pub struct Ids {
    /// The request id: the client's if it is acceptable, else a new one.
    pub request: Bytes,
    /// The trace context.
    pub trace: Trace,
}

impl Ids {
    /// The ids of a request with these headers.
    #[must_use]
    pub fn of(headers: &ActixHeaders) -> Self {
        let mut rng = rand::rng();
        let given = headers
            .get(REQUEST_ID_FIELD)
            .map(|value| value.as_bytes())
            .filter(|id| is_sane(id));
        let request = match given {
            Some(id) => Bytes::copy_from_slice(id),
            None => {
                let mut id = [0; 32];
                write_hex(&rng.random::<u128>().to_be_bytes(), &mut id);
                Bytes::copy_from_slice(&id)
            }
        };
        // Two of them are as bad as none: it is unknown which one is meant.
        let mut parents = headers.get_all(TRACEPARENT_FIELD);
        let parent = parents.next().filter(|_| parents.next().is_none());
        let parent = parent.map(|value| value.as_bytes());
        Self {
            request,
            trace: Trace::of(parent, rng.random(), rng.random()),
        }
    }
}

/// Whether a client's request id can be used: short, and only of characters that are safe in logs and headers.
fn is_sane(id: &[u8]) -> bool {
    (1..=REQUEST_ID_MAX).contains(&id.len())
        && id
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.:/+=@~".contains(b))
}

/// The client of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address as a header's value.
    pub address: Bytes,
    /// Its address; `None` on a connection without one.
    pub ip: Option<IpAddr>,
    /// Whether its `x-forwarded-host` and `x-forwarded-proto` are trusted.
    pub trusted: bool,
    /// Whether it is a trusted proxy, which adds its client's address to `x-forwarded-for`.
    pub proxy: bool,
    /// Whether the connection uses TLS.
    pub secure: bool,
}

impl Peer {
    /// The client whose address another gateway of the network passed on. That gateway has removed what it did not trust, but passes on
    /// `x-forwarded-for` for the function as it came: only the address that it names itself counts.
    pub(crate) fn forwarded(address: Bytes) -> Self {
        let text = std::str::from_utf8(&address).ok();
        Self {
            ip: text.and_then(|text| text.parse().ok()),
            address,
            trusted: true,
            proxy: false,
            secure: false,
        }
    }

    /// A client at `address`, or a `trusted` proxy there, without TLS.
    #[must_use]
    pub fn new(address: Option<IpAddr>, trusted: bool) -> Self {
        Self {
            address: address_text(address),
            ip: address,
            trusted,
            proxy: trusted,
            secure: false,
        }
    }

    /// The same client, on a connection with or without TLS.
    #[must_use]
    pub fn over_tls(mut self, secure: bool) -> Self {
        self.secure = secure;
        self
    }
}

/// An address as a header's value.
pub(crate) fn address_text(address: Option<IpAddr>) -> Bytes {
    let text = address.map_or_else(|| "unknown".to_owned(), |a| a.to_canonical().to_string());
    Bytes::from(text)
}

/// The host of a request, as the client wrote it: from the target (HTTP/2, or absolute form, RFC 9112, section 3.2.2), else from the `host`
/// field.
#[must_use]
pub fn host(head: &RequestHead) -> Option<&str> {
    if let Some(authority) = head.uri.authority() {
        // Without user information, which clients should not send.
        return Some(authority.as_str().rsplit('@').next().unwrap_or_default());
    }
    head.headers().get(actix_header::HOST)?.to_str().ok()
}

/// The length of the body as the client announced it.
#[must_use]
pub fn content_length(headers: &ActixHeaders) -> Option<u64> {
    headers
        .get(actix_header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

/// The request for the guest, without its body.
///
/// # Errors
/// When method or target cannot be represented, or the method is CONNECT.
pub fn to_guest(
    head: &RequestHead,
    host: &str,
    ids: &Ids,
    peer: &Peer,
    identity: Identity<'_>,
) -> Result<http::Request<()>, ProblemResponse> {
    let refused = || {
        ProblemResponse::new(
            ErrorCode::BadRequest,
            "this method or target cannot be handed to a function",
        )
    };
    let mut request = http::Request::new(());
    *request.method_mut() =
        Method::from_bytes(head.method.as_str().as_bytes()).map_err(|_| refused())?;
    if request.method() == Method::CONNECT {
        return Err(refused());
    }
    let target = head
        .uri
        .path_and_query()
        .map_or("/", |target| target.as_str());
    *request.uri_mut() =
        Uri::from_maybe_shared(Bytes::copy_from_slice(target.as_bytes())).map_err(|_| refused())?;
    headers_to_guest(head, host, ids, peer, request.headers_mut());
    identity.add_headers(request.headers_mut());
    Ok(request)
}

/// The caller's identity, as the app's policy established it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Identity<'a> {
    /// The value of the identity header for functions.
    pub value: Option<&'a http::HeaderValue>,
    /// Whether it was proved by an API key, which is not forwarded beyond the gateway.
    pub by_key: bool,
}

impl Identity<'_> {
    /// Adds the identity to the guest's headers and removes the API key that proved it.
    pub(crate) fn add_headers(self, out: &mut HeaderMap) {
        if self.by_key {
            out.remove(header::API_KEY);
            let bearer = out.get(http::header::AUTHORIZATION);
            let bearer = bearer.and_then(|value| value.to_str().ok()?.split_once(' '));
            if bearer.is_some_and(|(_, token)| looks_like_key(token.trim())) {
                out.remove(http::header::AUTHORIZATION);
            }
        }
        if let Some(identity) = self.value {
            out.insert(IDENTITY, identity.clone());
        }
    }
}

fn headers_to_guest(head: &RequestHead, host: &str, ids: &Ids, peer: &Peer, out: &mut HeaderMap) {
    let headers = head.headers();
    let bound = connection_options(headers);
    let mut forwarded_for = BytesMut::new();
    let mut cookies = BytesMut::new();
    // All values lie in one block, instead of one allocation for each.
    let size = headers.iter().map(|(_, value)| value.len()).sum();
    let mut block = BytesMut::with_capacity(size);
    out.reserve(headers.len() + 6);
    for (name, value) in headers {
        let (text, bytes) = (name.as_str(), value.as_bytes());
        match text {
            "connection"
            | "keep-alive"
            | "proxy-connection"
            | "transfer-encoding"
            | "te"
            | "trailer"
            | "upgrade"
            | "http2-settings"
            | "expect"
            | "host"
            | "traceparent"
            // Only a gateway may say who called.
            | header::IDENTITY
            | header::JOB
            | header::REQUEST_ID => {}
            "x-forwarded-for" => append_list(&mut forwarded_for, b", ", bytes),
            "x-forwarded-host" | "x-forwarded-proto" if !peer.trusted => {}
            "tracestate" if !ids.trace.continued => {}
            // HTTP/2 may split cookies (RFC 9113, section 8.2.3); receivers without HTTP/2 get them as one field.
            "cookie" if head.version == Version::HTTP_2 => {
                append_list(&mut cookies, b"; ", bytes);
            }
            _ if bound.iter().any(|option| option.eq_ignore_ascii_case(text)) => {}
            _ if is_disguised(text) => {}
            _ => {
                block.put_slice(bytes);
                if let (Ok(name), Ok(value)) = (
                    HeaderName::from_bytes(text.as_bytes()),
                    HeaderValue::from_maybe_shared(block.split().freeze()),
                ) {
                    out.append(name, value);
                }
            }
        }
    }
    append_list(&mut forwarded_for, b", ", &peer.address);
    let mut set = |name: HeaderName, value: Bytes| {
        if let Ok(value) = HeaderValue::from_maybe_shared(value) {
            out.insert(name, value);
        }
    };
    if !cookies.is_empty() {
        set(http::header::COOKIE, cookies.freeze());
    }
    let host = Bytes::copy_from_slice(host.as_bytes());
    set(http::header::HOST, host.clone());
    set(FORWARDED_FOR, forwarded_for.freeze());
    set(REQUEST_ID, ids.request.clone());
    set(TRACEPARENT, ids.trace.parent.clone());
    if !out.contains_key(FORWARDED_HOST)
        && let Ok(value) = HeaderValue::from_maybe_shared(host)
    {
        out.insert(FORWARDED_HOST, value);
    }
    if !out.contains_key(FORWARDED_PROTO) {
        let scheme = if peer.secure { "https" } else { "http" };
        out.insert(FORWARDED_PROTO, HeaderValue::from_static(scheme));
    }
}

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub(crate) const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const IDENTITY: HeaderName = HeaderName::from_static(header::IDENTITY);
const REQUEST_ID: HeaderName = HeaderName::from_static(header::REQUEST_ID);
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

fn append_list(list: &mut BytesMut, separator: &[u8], item: &[u8]) {
    if !list.is_empty() {
        list.put_slice(separator);
    }
    list.put_slice(item);
}

/// Whether a client's field is one that only gateways may set, but for `_` in place of `-`. Servers with CGI conventions make the same variable of
/// both, so that a client could speak for the network.
pub(crate) fn is_disguised(name: &str) -> bool {
    if !name.contains('_') {
        return false;
    }
    let meant = name.replace('_', "-");
    meant == header::REQUEST_ID
        || ["x-fdn-", "x-forwarded-", "fdn-call-"]
            .iter()
            .any(|prefix| meant.starts_with(prefix))
}

/// The fields that the client's `connection` header names and that are therefore not forwarded, except those that are never forwarded anyway.
pub(crate) fn connection_options(headers: &ActixHeaders) -> Vec<&str> {
    let values = headers.get_all(actix_header::CONNECTION);
    options(values.filter_map(|value| value.to_str().ok()))
}

/// The fields that these values of a `connection` header name, except those that are never forwarded anyway.
fn options<'a>(values: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    values
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|option| {
            !option.is_empty()
                && !["close", "keep-alive", "upgrade", "te"]
                    .iter()
                    .any(|known| option.eq_ignore_ascii_case(known))
        })
        .collect()
}

/// Copies the header fields of an answer to the client's response, without connection-specific ones. Returns the length that the answer
/// announces, which is sent as the body's own size instead.
pub fn to_client(answer: &HeaderMap, out: &mut ActixHeaders) -> Option<u64> {
    copy(answer, out, |_| true)
}

/// Like [`to_client`], for the answer of a function or a container. Fields by which the network tells what it did stay behind: above all the error
/// code, with which a function could pretend that its call never ran.
pub fn function_to_client(answer: &HeaderMap, out: &mut ActixHeaders) -> Option<u64> {
    copy(answer, out, |name| {
        !matches!(
            name,
            header::ERROR | header::SERVED_BY | header::REVISION | header::PLAN
        )
    })
}

fn copy(answer: &HeaderMap, out: &mut ActixHeaders, may_set: impl Fn(&str) -> bool) -> Option<u64> {
    let named = answer.get_all(http::header::CONNECTION).iter();
    let bound = options(named.filter_map(|value| value.to_str().ok()));
    let mut length = None;
    for (name, value) in answer {
        match name.as_str() {
            "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding" | "te"
            | "trailer" | "upgrade" => {}
            text if !may_set(text) => {}
            "content-length" => {
                length = value.to_str().ok().and_then(|value| value.parse().ok());
            }
            text if bound.iter().any(|option| option.eq_ignore_ascii_case(text)) => {}
            text => {
                if let (Ok(name), Ok(value)) = (
                    actix_header::HeaderName::from_bytes(text.as_bytes()),
                    actix_header::HeaderValue::from_bytes(value.as_bytes()),
                ) {
                    out.append(name, value);
                }
            }
        }
    }
    length
}

#[cfg(test)]
mod tests {
    use actix_http::HttpMessage;
    use actix_http::test::TestRequest;

    use super::*;

    fn guest(headers: &[(&'static str, &'static str)], trusted: bool) -> http::Request<()> {
        let mut request = TestRequest::default();
        request.uri("/p?q=1");
        for header in headers {
            request.append_header(*header);
        }
        let request = request.finish();
        let ids = Ids::of(request.headers());
        let peer = Peer::new(Some("192.0.2.7".parse().expect("address")), trusted);
        to_guest(
            request.head(),
            "hello.fn.test:8080",
            &ids,
            &peer,
            Identity::default(),
        )
        .expect("a request")
    }

    fn get<'a>(request: &'a http::Request<()>, name: &str) -> Option<&'a str> {
        request
            .headers()
            .get(name)
            .map(|v| v.to_str().expect("text"))
    }

    #[test]
    fn the_guest_learns_who_called() {
        let request = guest(
            &[("x-forwarded-for", "198.51.100.1"), ("x-custom", "1")],
            false,
        );
        assert_eq!(request.uri(), "/p?q=1");
        assert_eq!(
            get(&request, "x-forwarded-for"),
            Some("198.51.100.1, 192.0.2.7")
        );
        assert_eq!(
            get(&request, "x-forwarded-host"),
            Some("hello.fn.test:8080")
        );
        assert_eq!(get(&request, "x-forwarded-proto"), Some("http"));
        assert_eq!(get(&request, "host"), Some("hello.fn.test:8080"));
        assert_eq!(get(&request, "x-custom"), Some("1"));
        assert_eq!(get(&request, "x-request-id").map(str::len), Some(32));
        assert_eq!(get(&request, "traceparent").map(str::len), Some(55));
    }

    #[test]
    fn only_a_trusted_proxy_is_believed() {
        let headers = [
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "public.example"),
        ];
        assert_eq!(
            get(&guest(&headers, false), "x-forwarded-proto"),
            Some("http")
        );
        let trusted = guest(&headers, true);
        assert_eq!(get(&trusted, "x-forwarded-proto"), Some("https"));
        assert_eq!(get(&trusted, "x-forwarded-host"), Some("public.example"));
    }

    #[test]
    fn a_client_cannot_speak_for_the_network_with_another_spelling() {
        let fields = [
            ("x_fdn_identity", "mallory"),
            ("x-fdn_job", "1"),
            ("X_Request_Id", "1"),
            ("x_forwarded_for", "198.51.100.1"),
            ("x-forwarded_proto", "https"),
            ("x_own", "1"),
        ];
        for trusted in [false, true] {
            let request = guest(&fields, trusted);
            let spelled: Vec<&str> = request
                .headers()
                .keys()
                .map(HeaderName::as_str)
                .filter(|name| name.contains('_'))
                .collect();
            assert_eq!(spelled, ["x_own"]);
        }
    }

    #[test]
    fn the_guest_learns_whether_the_client_came_over_tls() {
        let request = TestRequest::default().finish();
        let ids = Ids::of(request.headers());
        for (secure, scheme) in [(true, "https"), (false, "http")] {
            let peer = Peer::new(None, false).over_tls(secure);
            let told = to_guest(
                request.head(),
                "hello.fn.test",
                &ids,
                &peer,
                Identity::default(),
            );
            let told = told.expect("a request");
            assert_eq!(get(&told, "x-forwarded-proto"), Some(scheme));
        }
    }

    #[test]
    fn fields_of_the_connection_stay_behind() {
        let request = guest(
            &[
                ("connection", "keep-alive, X-Hop"),
                ("x-hop", "1"),
                ("keep-alive", "5"),
                ("te", "trailers"),
                ("upgrade", "websocket"),
                ("expect", "100-continue"),
            ],
            false,
        );
        for name in [
            "connection",
            "x-hop",
            "keep-alive",
            "te",
            "upgrade",
            "expect",
        ] {
            assert_eq!(get(&request, name), None, "{name}");
        }
    }

    #[test]
    fn a_trace_is_continued_with_its_state_or_begun_without() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let request = guest(&[("traceparent", parent), ("tracestate", "a=1")], false);
        let sent = get(&request, "traceparent").expect("sent");
        assert!(sent.starts_with(&parent[..36]) && sent.ends_with("-01") && sent != parent);
        assert_eq!(get(&request, "tracestate"), Some("a=1"));
        let request = guest(&[("tracestate", "a=1")], false);
        assert_eq!(get(&request, "tracestate"), None);
        let request = guest(&[("traceparent", parent), ("traceparent", parent)], false);
        assert!(
            !get(&request, "traceparent")
                .expect("sent")
                .contains("0af7651916cd")
        );
    }

    #[test]
    fn a_sane_request_id_is_kept() {
        assert_eq!(
            get(
                &guest(&[("x-request-id", "abc-1.2")], false),
                "x-request-id"
            ),
            Some("abc-1.2")
        );
        for bad in ["", "a b", "<script>", "x\"y"] {
            let request = guest(&[("x-request-id", bad)], false);
            assert_eq!(
                get(&request, "x-request-id").map(str::len),
                Some(32),
                "{bad}"
            );
        }
    }

    #[test]
    fn answers_lose_the_fields_of_the_guests_connection() {
        let mut from = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("x-kept", "1"),
            ("content-length", "12"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
        ] {
            from.append(name, HeaderValue::from_static(value));
        }
        let mut out = ActixHeaders::new();
        assert_eq!(to_client(&from, &mut out), Some(12));
        assert_eq!(out.get_all("set-cookie").count(), 2);
        assert!(!out.contains_key("connection") && !out.contains_key("content-length"));
        assert!(!out.contains_key("x-hop") && out.contains_key("x-kept"));
    }

    #[test]
    fn a_function_does_not_speak_for_the_network() {
        let mut from = HeaderMap::new();
        for (name, value) in [
            (header::ERROR, "FDN-3007"),
            (header::SERVED_BY, "elsewhere/n-1"),
            (header::REVISION, "7"),
            (header::PLAN, "used"),
            ("x-own", "1"),
        ] {
            from.insert(name, HeaderValue::from_static(value));
        }
        let mut out = ActixHeaders::new();
        assert_eq!(function_to_client(&from, &mut out), None);
        assert_eq!(out.len(), 1);
        assert!(out.contains_key("x-own"));
        let mut relayed = ActixHeaders::new();
        to_client(&from, &mut relayed);
        assert!(
            relayed.contains_key(header::ERROR),
            "another gateway's answer keeps its code"
        );
    }
}
