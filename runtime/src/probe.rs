//! The probe: one test call that an upload must answer before it is accepted.
//!
//! It has no network, because an upload runs beside the controller before anybody has accepted it. A function that answers with an error
//! for that reason passes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fdn_core::api::LogStream;
use fdn_core::{Coded, ErrorCode};
use http::HeaderValue;
use http_body_util::BodyExt as _;

use crate::call::{CallContext, RequestBody};
use crate::error::CallError;
use crate::function::Function;
use crate::log::MemoryLog;
use crate::outbound::Network;

/// Marks the probe, so that a function can tell it from a real call.
pub const PROBE_HEADER: &str = "x-fdn-probe";

/// The authority of the probe call; `.invalid` never resolves (RFC 6761).
const PROBE_HOST: &str = "probe.invalid";
/// How many lines of the function's output a failed probe quotes: JavaScript writes an error above its stack, with some lines of the
/// engine below.
const LOG_LINES: usize = 20;

/// The result of a probe that passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeReport {
    /// The HTTP status of the answer.
    pub status: u16,
    /// The size of the body in bytes.
    pub body_size: u64,
    /// How long the whole call took.
    pub took: Duration,
    /// The most memory that the instance held, in bytes.
    pub memory_peak: u64,
    /// Whether it tried to send requests, which a probe may not.
    pub asked_network: bool,
}

/// Why a function did not pass.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The call failed.
    #[error("the probe call `GET /` failed ({}): {error}{hint}{log}", .error.code())]
    Failed {
        /// The error of the call.
        error: CallError,
        /// What to do about it, or empty.
        hint: &'static str,
        /// The last lines of its output, each on its own line, or empty.
        log: String,
    },
    /// The answer was a server error.
    #[error(
        "the probe call `GET /` was answered with status {status}; answer with less than 500{log}"
    )]
    Status {
        /// The HTTP status.
        status: u16,
        /// The last lines of its output, each on its own line, or empty.
        log: String,
    },
}

impl Coded for ProbeError {
    fn code(&self) -> ErrorCode {
        ErrorCode::UploadProbeFailed
    }
}

const NO_NETWORK: &str = "; it tried to send a request and the probe has no network: answer calls with the header `x-fdn-probe` without one, or \
                          answer with an error where a request fails";

/// Sends `GET /` with the header [`PROBE_HEADER`] and reads the whole answer. The context's log is replaced, the call
/// has no network, and the instance is not kept.
///
/// # Errors
/// When the call fails, or the status is 500 or more although the function did not try to use the network.
pub async fn probe(
    function: &Arc<Function>,
    mut context: CallContext,
) -> Result<ProbeReport, ProbeError> {
    let log = Arc::new(MemoryLog::default());
    context.log = log.clone();
    context.reuse = 1;
    let asked = Arc::new(AtomicBool::new(false));
    context.network = Network::Absent(asked.clone());
    let started = Instant::now();
    let mut request = http::Request::new(RequestBody::empty());
    request
        .headers_mut()
        .insert(http::header::HOST, HeaderValue::from_static(PROBE_HOST));
    request
        .headers_mut()
        .insert(PROBE_HEADER, HeaderValue::from_static("1"));
    let call = function.call(context, request);
    let stats = call.stats();
    let failed = |error| ProbeError::Failed {
        error,
        hint: if asked.load(Ordering::Relaxed) {
            NO_NETWORK
        } else {
            ""
        },
        log: last_lines(&log),
    };
    let response = call.response().await.map_err(failed)?;
    let status = response.status().as_u16();
    let mut body = response.into_body();
    let mut body_size = 0;
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame.map_err(failed)?.data_ref() {
            body_size += u64::try_from(data.len()).unwrap_or(u64::MAX);
        }
    }
    let asked_network = asked.load(Ordering::Relaxed);
    if status >= 500 && !asked_network {
        return Err(ProbeError::Status {
            status,
            log: last_lines(&log),
        });
    }
    Ok(ProbeReport {
        status,
        body_size,
        took: started.elapsed(),
        memory_peak: stats.snapshot().memory_peak,
        asked_network,
    })
}

/// The last lines that the function itself wrote. They often say why it failed.
fn last_lines(log: &MemoryLog) -> String {
    let lines: Vec<String> = log
        .lines()
        .into_iter()
        .filter(|(stream, _)| *stream != LogStream::System)
        .map(|(_, text)| text)
        .collect();
    let last = &lines[lines.len().saturating_sub(LOG_LINES)..];
    if last.is_empty() {
        String::new()
    } else {
        format!("; its last output:\n{}", last.join("\n"))
    }
}
