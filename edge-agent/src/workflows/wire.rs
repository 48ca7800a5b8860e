//! The wire format of a stage call between gateways: `POST /fdn.stage.v1/APP/STAGE`, with the function's header fields unchanged and the call's
//! own fields added.
//!
//! The response is the function's, marked as such, or tells how the call failed.
//!
//! `POST /fdn.stage.v1/APP/STAGE/ahead`, without a body, announces a call. A gateway that does not support announcements takes it for a call of
//! an impossible stage and refuses it, without the header [`AHEAD`].

use std::time::Duration;

use bytes::Bytes;
use fdn_core::api::header;
use fdn_core::{AppName, HostName, Millis, StageName};
use fdn_scheduling::prewarm::Answer;
use fdn_scheduling::run::{Failure, FailureKind};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::Full;

use super::call::StageCall;

/// The path prefix of stage calls.
const PREFIX: &str = "/fdn.stage.v1/";
/// The name prefix of the call's own header fields.
const OWN: &str = "fdn-call-";

const METHOD: HeaderName = HeaderName::from_static("fdn-call-method");
const TARGET: HeaderName = HeaderName::from_static("fdn-call-target");
const HOST: HeaderName = HeaderName::from_static("fdn-call-host");
const APP_HOST: HeaderName = HeaderName::from_static("fdn-call-app-host");
const CLIENT: HeaderName = HeaderName::from_static("fdn-call-client");
const VERSION: HeaderName = HeaderName::from_static("fdn-call-version");
/// The network's token, on connections without certificates.
pub(super) const TOKEN: HeaderName = HeaderName::from_static("fdn-call-token");
/// How the call ended: `answered`, or the kind of failure.
pub(super) const OUTCOME: HeaderName = HeaderName::from_static(header::CALL_OUTCOME);
/// Why the call failed.
pub(super) const REASON: HeaderName = HeaderName::from_static("fdn-call-reason");
/// The function answered.
pub(super) const ANSWERED: HeaderValue = HeaderValue::from_static("answered");

/// The path suffix of announcements.
const AHEAD_PATH: &str = "/ahead";
/// The time in ms until the announced call is expected.
const WITHIN: HeaderName = HeaderName::from_static("fdn-call-within");
/// The answer to an announcement.
const AHEAD: HeaderName = HeaderName::from_static("fdn-call-ahead");
/// How long a start takes there, in ms.
const COLD: HeaderName = HeaderName::from_static("fdn-call-cold");

/// The word for a kind of failure.
pub(super) const fn word(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::NotStarted => header::NOT_STARTED,
        FailureKind::Lost => "lost",
        FailureKind::Answered => "failed",
        FailureKind::Refused => "refused",
    }
}

/// The kind of failure that a word means; an unknown word counts as [`FailureKind::Lost`], which claims the least.
pub(super) fn kind(word: &str) -> FailureKind {
    match word {
        header::NOT_STARTED => FailureKind::NotStarted,
        "failed" => FailureKind::Answered,
        "refused" => FailureKind::Refused,
        _ => FailureKind::Lost,
    }
}

/// Text as a header value, of at most 1,024 characters; characters that are not allowed become `?`. For reasons, and for values that are short
/// and plain by themselves: what a client sent goes through [`HeaderValue::from_str`], or it would arrive as something else.
pub(super) fn field(text: &str) -> HeaderValue {
    let plain: String = text
        .chars()
        .take(1024)
        .map(|c| if (' '..='~').contains(&c) { c } else { '?' })
        .collect();
    HeaderValue::from_str(&plain).unwrap_or(HeaderValue::from_static("?"))
}

/// Builds the request that carries a call.
///
/// # Errors
/// When the call has no valid URI, or the client's request line cannot be sent as it is.
pub(super) fn request(call: &StageCall) -> Result<Request<Full<Bytes>>, Failure> {
    let refused = || Failure::new(FailureKind::Refused, "the call cannot be expressed");
    let whole = |text: &str| HeaderValue::from_str(text).map_err(|_| refused());
    let uri: Uri = format!("http://{}{PREFIX}{}/{}", call.host, call.app, call.stage)
        .parse()
        .map_err(|_| refused())?;
    let mut request = Request::new(Full::new(call.body.clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    *request.version_mut() = http::Version::HTTP_2;
    let bytes = |bytes: &Bytes| HeaderValue::from_maybe_shared(bytes.clone());
    let headers = request.headers_mut();
    headers.clone_from(&call.headers);
    headers.insert(METHOD, whole(call.method.as_str())?);
    headers.insert(TARGET, whole(&call.uri.to_string())?);
    headers.insert(HOST, whole(&call.requested_host)?);
    headers.insert(APP_HOST, field(call.host.as_str()));
    headers.insert(VERSION, field(&call.version));
    let told = [
        (CLIENT, &call.client),
        (
            HeaderName::from_static(header::REQUEST_ID),
            &call.ids.request,
        ),
        (
            HeaderName::from_static("traceparent"),
            &call.ids.trace.parent,
        ),
    ];
    for (name, value) in told {
        if let Ok(value) = bytes(value) {
            headers.insert(name, value);
        }
    }
    let left = call.left.as_millis().to_string();
    headers.insert(HeaderName::from_static(header::DEADLINE), field(&left));
    headers.insert(
        HeaderName::from_static(header::ATTEMPT),
        HeaderValue::from(call.attempt),
    );
    Ok(request)
}

/// A stage call as received, without its body.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) app: AppName,
    pub(super) stage: StageName,
    pub(super) app_host: String,
    pub(super) version: String,
    pub(super) method: String,
    pub(super) target: String,
    pub(super) host: String,
    pub(super) client: Bytes,
    pub(super) left: Duration,
    pub(super) attempt: String,
}

/// Whether a request is a stage call or an announcement.
pub(super) fn is_one(uri: &Uri) -> bool {
    uri.path().starts_with(PREFIX)
}

/// Parses a stage call and removes the call's own fields from `headers`; `None` if it is not a stage call.
pub(super) fn receive(method: &Method, uri: &Uri, headers: &mut HeaderMap) -> Option<Received> {
    let (app, stage) = uri.path().strip_prefix(PREFIX)?.split_once('/')?;
    if *method != Method::POST {
        return None;
    }
    let text = |name: &HeaderName| Some(headers.get(name)?.to_str().ok()?.to_owned());
    let deadline = HeaderName::from_static(header::DEADLINE);
    let attempt = HeaderName::from_static(header::ATTEMPT);
    let received = Received {
        app: app.parse().ok()?,
        stage: stage.parse().ok()?,
        app_host: text(&APP_HOST)?,
        version: text(&VERSION)?,
        method: text(&METHOD)?,
        target: text(&TARGET)?,
        host: text(&HOST)?,
        client: Bytes::copy_from_slice(headers.get(CLIENT)?.as_bytes()),
        left: Duration::from_millis(text(&deadline)?.parse().ok()?),
        attempt: text(&attempt)?,
    };
    strip(headers);
    Some(received)
}

/// The announcement of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Announced {
    pub(super) app: AppName,
    pub(super) host: HostName,
    pub(super) stage: StageName,
    pub(super) version: String,
    /// The time until the call is expected.
    pub(super) within: Millis,
}

/// Builds the request of an announcement.
///
/// # Errors
/// When it has no valid URI.
pub(super) fn announcement(call: &Announced) -> Result<Request<Full<Bytes>>, Failure> {
    let refused = |_| Failure::new(FailureKind::Refused, "the call cannot be expressed");
    let Announced {
        app, host, stage, ..
    } = call;
    let uri = format!("http://{host}{PREFIX}{app}/{stage}{AHEAD_PATH}");
    let mut request = Request::new(Full::default());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri.parse().map_err(refused)?;
    *request.version_mut() = http::Version::HTTP_2;
    let headers = request.headers_mut();
    headers.insert(APP_HOST, field(host.as_str()));
    headers.insert(VERSION, field(&call.version));
    headers.insert(WITHIN, millis(call.within));
    Ok(request)
}

/// Whether a request is an announcement.
pub(super) fn is_announcement(uri: &Uri) -> bool {
    announced_at(uri).is_some()
}

fn announced_at(uri: &Uri) -> Option<(&str, &str)> {
    let path = uri.path().strip_prefix(PREFIX)?;
    path.strip_suffix(AHEAD_PATH)?.split_once('/')
}

/// Parses an announcement; `None` if it is not one.
pub(super) fn announced(uri: &Uri, headers: &HeaderMap) -> Option<Announced> {
    let (app, stage) = announced_at(uri)?;
    let text = |name: &HeaderName| headers.get(name)?.to_str().ok();
    Some(Announced {
        app: app.parse().ok()?,
        host: text(&APP_HOST)?.parse().ok()?,
        stage: stage.parse().ok()?,
        version: text(&VERSION)?.to_owned(),
        within: time(text(&WITHIN)?)?,
    })
}

/// Adds the answer to an announcement to `headers`.
pub(super) fn answer_ahead(answer: Answer, headers: &mut HeaderMap) {
    headers.insert(OUTCOME, ANSWERED);
    headers.insert(AHEAD, field(answer.as_str()));
    if let Answer::Later(cold) = answer {
        headers.insert(COLD, millis(cold));
    }
}

/// The answer to an announcement; `None` if the gateway does not support announcements.
pub(super) fn ahead(headers: &HeaderMap) -> Option<Answer> {
    let text = |name: &HeaderName| headers.get(name)?.to_str().ok();
    Some(match text(&AHEAD)? {
        "started" => Answer::Started,
        "warm" => Answer::Warm,
        "no_room" => Answer::NoRoom,
        "later" => Answer::Later(text(&COLD).and_then(time)?),
        _ => Answer::Unknown,
    })
}

/// A time in whole milliseconds, rounded down.
fn millis(time: Millis) -> HeaderValue {
    HeaderValue::from(time.get().max(0.0) as u64)
}

fn time(text: &str) -> Option<Millis> {
    text.parse::<u32>().ok().map(|ms| Millis::new(ms.into()))
}

/// Removes the header fields that only gateways may send each other.
pub(super) fn strip(headers: &mut HeaderMap) {
    let own: Vec<HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().starts_with(OWN))
        .cloned()
        .collect();
    for name in own {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::head::Ids;
    use crate::workflows::budget::Budget;

    fn call() -> StageCall {
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("image/png"));
        headers.insert("fdn-call-token", HeaderValue::from_static("guessed"));
        StageCall {
            app: "photo".parse().expect("app"),
            host: "photo.fn.test".parse().expect("host"),
            stage: "resize".parse().expect("stage"),
            version: "image@v3".to_owned(),
            attempt: 2,
            method: Method::PUT,
            uri: Uri::from_static("/?w=3"),
            headers,
            body: Bytes::from_static(b"x"),
            requested_host: "PHOTO.fn.test:8080".to_owned(),
            client: Bytes::from_static(b"192.0.2.1"),
            ids: Ids::of(&actix_http::header::HeaderMap::new()),
            left: Duration::from_millis(1500),
            budget: Budget::new(10),
        }
    }

    #[test]
    fn a_call_arrives_as_it_was_sent() {
        let sent = request(&call()).expect("a request");
        let (mut parts, _) = sent.into_parts();
        let got = receive(&parts.method, &parts.uri, &mut parts.headers).expect("a call");
        assert_eq!((got.app.as_str(), got.stage.as_str()), ("photo", "resize"));
        assert_eq!((got.method.as_str(), got.target.as_str()), ("PUT", "/?w=3"));
        assert_eq!(got.host, "PHOTO.fn.test:8080");
        assert_eq!(got.left, Duration::from_millis(1500));
        assert_eq!(
            (got.version.as_str(), got.attempt.as_str()),
            ("image@v3", "2")
        );
        let left: Vec<&str> = parts.headers.keys().map(HeaderName::as_str).collect();
        assert!(left.contains(&"content-type") && left.contains(&"x-request-id"));
        assert!(!left.iter().any(|name| name.starts_with(OWN)), "{left:?}");
    }

    #[test]
    fn a_long_target_arrives_whole_and_what_cannot_be_sent_is_refused() {
        let target = format!("/search?q={}", "a".repeat(60_000));
        let long = StageCall {
            uri: target.parse().expect("a target"),
            ..call()
        };
        let (mut parts, _) = request(&long).expect("a request").into_parts();
        let got = receive(&parts.method, &parts.uri, &mut parts.headers).expect("a call");
        assert!(got.target == target, "{} characters", got.target.len());
        let broken = StageCall {
            requested_host: "a\nb".to_owned(),
            ..call()
        };
        let refusal = request(&broken).expect_err("no header value");
        assert_eq!(refusal.kind, FailureKind::Refused);
    }

    #[test]
    fn anything_else_is_no_call() {
        for path in [
            "/",
            "/fdn.stage.v1/photo",
            "/fdn.stage.v1/photo/Not_A_Stage",
            "/fdn.peer.v1/a/b",
        ] {
            let mut sent = request(&call()).expect("a request");
            let uri: Uri = path.parse().expect("a path");
            let found = receive(&Method::POST, &uri, sent.headers_mut());
            assert!(found.is_none(), "{path}");
        }
        let mut sent = request(&call()).expect("a request");
        let uri = sent.uri().clone();
        assert!(receive(&Method::GET, &uri, sent.headers_mut()).is_none());
    }

    #[test]
    fn a_call_that_will_come_is_told_of_and_answered() {
        let told = Announced {
            app: "photo".parse().expect("app"),
            host: "photo.fn.test".parse().expect("host"),
            // A stage whose name equals the path suffix.
            stage: "ahead".parse().expect("stage"),
            version: "image@v3".to_owned(),
            within: Millis::new(250.0),
        };
        let sent = announcement(&told).expect("a request");
        assert!(is_announcement(sent.uri()) && is_one(sent.uri()));
        assert_eq!(announced(sent.uri(), sent.headers()), Some(told));
        // A gateway without support for announcements must see no stage call, so that nothing runs.
        let (mut parts, _) = sent.into_parts();
        let found = receive(&parts.method, &parts.uri, &mut parts.headers);
        assert!(found.is_none());
        let call = Uri::from_static("/fdn.stage.v1/photo/ahead");
        assert!(!is_announcement(&call), "a call of a stage of that name");
        for answer in [
            Answer::Started,
            Answer::Warm,
            Answer::NoRoom,
            Answer::Later(Millis::new(80.0)),
            Answer::Unknown,
        ] {
            let mut headers = HeaderMap::new();
            answer_ahead(answer, &mut headers);
            assert_eq!(ahead(&headers), Some(answer));
        }
        assert_eq!(ahead(&HeaderMap::new()), None, "an older gateway");
    }

    #[test]
    fn words_and_kinds_are_one() {
        for one in [
            FailureKind::NotStarted,
            FailureKind::Lost,
            FailureKind::Answered,
            FailureKind::Refused,
        ] {
            assert_eq!(kind(word(one)), one);
        }
        assert_eq!(kind("something new"), FailureKind::Lost);
        assert_eq!(field("a\nb\u{e9}"), "a?b?");
    }
}
