//! The protocol between nodes about instances that one runs for the other: paths, header fields and lines.
//!
//! ```text
//! any method  /fdn.peer.v1/call/TASK/PATH?QUERY   a call; the answer carries `fdn-outcome`
//! GET         /fdn.peer.v1/watch/TASK[?new]       lines of JSON ([`InstanceReport`]), one for each change, until the instance is gone
//! POST        /fdn.peer.v1/stop/TASK?MILLIS       [`OrderResult`]
//! POST        /fdn.peer.v1/release/TASK          [`OrderResult`]: the node that runs it may keep it as its own
//! POST        /fdn.peer.v1/pause/TASK, resume/TASK   [`OrderResult`]
//! ```

use std::time::Duration;

use bytes::Bytes;
use fdn_cluster::TaskId;
use fdn_cluster::peer::PREFIX;
use fdn_core::ErrorCode;
use fdn_instances::{Description, Exit, InstanceError, InstanceState, Kind, LogLine, RuntimeError};
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, Uri};
use serde::{Deserialize, Serialize};

/// How a call ended on the other node: [`ANSWERED`], [`NOT_SENT`] or [`INTERRUPTED`].
pub(super) const OUTCOME: HeaderName = HeaderName::from_static("fdn-outcome");
/// Why the call has no response.
pub(super) const REASON: HeaderName = HeaderName::from_static("fdn-reason");
/// The error code of an interrupted call.
pub(super) const CODE: HeaderName = HeaderName::from_static("fdn-code");

pub(super) const ANSWERED: HeaderValue = HeaderValue::from_static("answered");
pub(super) const NOT_SENT: HeaderValue = HeaderValue::from_static("not-sent");
pub(super) const INTERRUPTED: HeaderValue = HeaderValue::from_static("interrupted");

/// The largest line and response that is read, in bytes: a description and an instance's last log lines fit well.
pub(super) const LINE_MAX: usize = 1 << 20;

/// The operation on an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Call,
    Watch,
    Stop,
    Release,
    Pause,
    Resume,
}

impl Verb {
    const ALL: [Self; 6] = [
        Self::Call,
        Self::Watch,
        Self::Stop,
        Self::Release,
        Self::Pause,
        Self::Resume,
    ];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Watch => "watch",
            Self::Stop => "stop",
            Self::Release => "release",
            Self::Pause => "pause",
            Self::Resume => "resume",
        }
    }
}

/// The URI of a request; `rest` begins with `/` or `?`, or is empty.
pub(super) fn target(verb: Verb, task: TaskId, rest: &str) -> Result<Uri, http::Error> {
    // HTTP/2 requires an authority, which nobody reads.
    let path = format!("http://fdn{PREFIX}{}/{:016x}{rest}", verb.as_str(), task.0);
    Ok(path.parse::<Uri>()?)
}

/// Parses a URI: the operation, the task, and the rest.
pub(super) fn read(uri: &Uri) -> Option<(Verb, TaskId, &str)> {
    let text = uri.path_and_query()?.as_str().strip_prefix(PREFIX)?;
    let (verb, rest) = text.split_once('/')?;
    let verb = Verb::ALL.into_iter().find(|known| known.as_str() == verb)?;
    let (task, rest) = rest.split_at_checked(16)?;
    let is_whole = rest.is_empty() || rest.starts_with(['/', '?']);
    let task = u64::from_str_radix(task, 16).ok().filter(|_| is_whole)?;
    Some((verb, TaskId(task), rest))
}

/// A report about an instance to the node that requested it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum InstanceReport {
    /// The instance is being started.
    Starting,
    /// The instance failed to start.
    Failed(Failure),
    /// The instance was started.
    Started(Box<Description>),
    /// The instance answers.
    Ready,
    /// The instance is paused.
    Paused,
    /// The instance does not answer.
    Unresponsive { reason: String, log: Vec<LogLine> },
    /// The instance is gone. This is the last line.
    Exited { exit: Exit, log: Vec<LogLine> },
}

/// Why an instance was not started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Failure {
    pub(super) code: ErrorCode,
    pub(super) reason: String,
    pub(super) log: Vec<LogLine>,
    /// Whether another node may succeed, because the fault is not the function's.
    pub(super) elsewhere: bool,
}

impl InstanceReport {
    pub(super) fn of(state: &InstanceState, log: impl FnOnce() -> Vec<LogLine>) -> Self {
        match state {
            InstanceState::Starting => Self::Starting,
            InstanceState::Ready => Self::Ready,
            InstanceState::Paused => Self::Paused,
            InstanceState::Unresponsive { reason } => Self::Unresponsive {
                reason: reason.clone(),
                log: log(),
            },
            InstanceState::Exited(exit) => Self::Exited {
                exit: exit.clone(),
                log: log(),
            },
        }
    }

    pub(super) fn line(&self) -> Bytes {
        // Every value of this type can be serialized.
        let mut bytes = serde_json::to_vec(self).unwrap_or_default();
        bytes.push(b'\n');
        Bytes::from(bytes)
    }
}

/// The result of an order to an instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OrderResult {
    Stopped(Exit),
    Changed,
    Unsupported(Kind),
    Ended(Exit),
    Engine { kind: Kind, reason: String },
}

impl OrderResult {
    pub(super) fn of(error: &InstanceError, kind: Kind) -> Self {
        match error {
            InstanceError::Unsupported { kind, .. } => Self::Unsupported(*kind),
            InstanceError::Ended(exit) => Self::Ended(exit.clone()),
            other => Self::Engine {
                kind,
                reason: super::chain(other),
            },
        }
    }

    /// Converts to a result of the `Instance` trait; the exit counts for a stop only.
    pub(super) fn result(self, operation: &'static str) -> Result<Exit, InstanceError> {
        match self {
            Self::Stopped(exit) => Ok(exit),
            Self::Changed => Ok(Exit::lost()),
            Self::Unsupported(kind) => Err(InstanceError::Unsupported { kind, operation }),
            Self::Ended(exit) => Err(InstanceError::Ended(exit)),
            Self::Engine { kind, reason } => Err(InstanceError::Engine(RuntimeError::Refused {
                kind,
                operation,
                reason,
            })),
        }
    }
}

/// Removes hop-by-hop header fields (RFC 9110, section 7.6.1) and FDN's own.
pub(super) fn strip(headers: &mut HeaderMap) {
    use http::header::{CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
    for name in [CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
    for name in ["keep-alive", "proxy-connection"] {
        headers.remove(name);
    }
    for name in [OUTCOME, REASON, CODE, fdn_cluster::peer::NODE] {
        headers.remove(name);
    }
}

/// Text as a header value, of at most 512 characters; characters that are not allowed become spaces.
pub(super) fn field(text: &str) -> HeaderValue {
    const LENGTH_MAX: usize = 512;
    let printable = |c: char| if c.is_ascii_graphic() { c } else { ' ' };
    let text: String = text.chars().take(LENGTH_MAX).map(printable).collect();
    HeaderValue::from_str(text.trim()).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

/// How long an instance may take to end, at most an hour.
pub(super) fn grace(rest: &str) -> Duration {
    let millis = rest.strip_prefix('?').and_then(|text| text.parse().ok());
    Duration::from_millis(millis.unwrap_or(0)).min(Duration::from_secs(3600))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn targets_are_read_as_they_were_written() {
        let task = TaskId(0xABCDEF);
        for (verb, rest) in [
            (Verb::Call, "/a/b?c=d"),
            (Verb::Call, "/"),
            (Verb::Watch, "?new"),
            (Verb::Stop, "?1500"),
            (Verb::Pause, ""),
        ] {
            let uri = target(verb, task, rest).expect("a target");
            assert_eq!(read(&uri), Some((verb, task, rest)));
        }
        for bad in [
            "/",
            "/other/call/0000000000000001/",
            "/fdn.peer.v1/call/1/",
            "/fdn.peer.v1/call/0000000000000001x",
            "/fdn.peer.v1/call/000000000000000g/",
            "/fdn.peer.v1/kill/0000000000000001/",
        ] {
            assert_eq!(read(&bad.parse().expect("a path")), None, "{bad}");
        }
        assert_eq!(grace("?1500"), Duration::from_millis(1500));
        assert_eq!(grace("?now"), Duration::ZERO);
    }

    #[test]
    fn failures_come_back_as_they_were() {
        let unsupported = InstanceError::Unsupported {
            kind: Kind::Wasm,
            operation: "pause",
        };
        let back = OrderResult::of(&unsupported, Kind::Fake).result("pause");
        assert_eq!(back, Err(unsupported));
        let ended = InstanceError::Ended(Exit::ended(3));
        assert_eq!(
            OrderResult::of(&ended, Kind::Fake).result("stop"),
            Err(ended)
        );
    }

    proptest! {
        #[test]
        fn any_text_is_a_field(text: String) {
            prop_assert!(field(&text).to_str().is_ok());
        }

        #[test]
        fn any_path_is_read_without_a_fault(text in "/fdn.peer.v1/[a-z]{0,6}/[0-9a-fx]{0,20}[/?]?[a-z]{0,4}") {
            if let Ok(uri) = text.parse() {
                let _ = read(&uri);
            }
        }
    }
}
