//! Checks whether an instance answers: at its start, and then periodically.

use std::time::Duration;

use futures::FutureExt;
use http::Method;
use http::header::{ACCEPT, USER_AGENT};
use http_body_util::BodyExt;
use tokio::time::Instant;

use super::HttpLink;
use crate::body::{Request, empty_body};
use crate::call::CallFailure;
use crate::spec::Readiness;
use crate::state::{InstanceState, StateCell};

/// How instances are checked while they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthChecks {
    /// The pause between two checks.
    pub interval: Duration,
    /// The time limit for an answer.
    pub timeout: Duration,
    /// How many checks in a row must fail for an instance to count as unresponsive.
    pub failures: u32,
}

impl Default for HealthChecks {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(10),
            timeout: Duration::from_secs(5),
            failures: 3,
        }
    }
}

/// The first and the longest pause between two checks of a starting instance. A server that needs 30 ms is detected after 31.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Why a check failed.
#[derive(Debug)]
pub(crate) struct CheckFailed {
    pub(crate) reason: String,
    /// Whether it did not even accept the request, so it is not merely busy.
    pub(crate) refused: bool,
}

/// Checks once: any answer below 500 counts as success.
pub(crate) async fn check(
    link: &HttpLink,
    readiness: &Readiness,
    timeout: Duration,
) -> Result<(), CheckFailed> {
    let failed = |reason: String, refused| Err(CheckFailed { reason, refused });
    let request = http::Request::builder()
        .method(Method::GET)
        .uri(&readiness.path)
        .header(USER_AGENT, "fdn-readiness")
        .header(ACCEPT, "*/*")
        .body(empty_body());
    let request: Request = match request {
        Ok(request) => request,
        Err(error) => return failed(format!("path {:?}: {error}", readiness.path), true),
    };
    let asking = async {
        let response = link.call(request).await?;
        let status = response.status();
        // What has already arrived is read, so that the connection can be reused; nothing is waited for.
        drop(response.into_body().frame().now_or_never());
        Ok::<_, CallFailure>(status)
    };
    match tokio::time::timeout(timeout, asking).await {
        Ok(Ok(status)) if status.as_u16() < 500 => Ok(()),
        Ok(Ok(status)) => failed(format!("it answered {status}"), false),
        Ok(Err(failure)) => {
            let refused = matches!(failure, CallFailure::NotSent { .. });
            failed(failure.to_string(), refused)
        }
        Err(_) => failed(format!("no answer within {timeout:?}"), false),
    }
}

/// Checks until an instance answers; returns the last failure if it does not in time.
pub(crate) async fn until_ready(link: &HttpLink, readiness: &Readiness) -> Result<(), String> {
    let deadline = Instant::now() + readiness.timeout;
    let mut pause = FIRST_PAUSE;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let failed = match check(link, readiness, left).await {
            Ok(()) => return Ok(()),
            Err(failed) => failed,
        };
        if Instant::now() + pause >= deadline {
            return Err(failed.reason);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Checks an instance for as long as it lives and switches its state between `Ready` and `Unresponsive`.
///
/// A check that merely takes too long does not count while calls are running: the function may be busy with them.
pub(crate) async fn watch(
    state: &StateCell,
    link: &HttpLink,
    readiness: &Readiness,
    checks: HealthChecks,
) {
    let mut failures = 0;
    loop {
        tokio::select! {
            _ = state.ended() => return,
            () = tokio::time::sleep(checks.interval) => {}
        }
        if state.get() == InstanceState::Paused {
            continue;
        }
        let busy = link.in_flight() > 0;
        match check(link, readiness, checks.timeout).await {
            Ok(()) => {
                failures = 0;
                state.set_health(InstanceState::Ready);
            }
            Err(failed) if busy && !failed.refused => {}
            // It was paused during the check.
            Err(_) if state.get() == InstanceState::Paused => {}
            Err(failed) => {
                failures += 1;
                if failures >= checks.failures {
                    state.set_health(InstanceState::Unresponsive {
                        reason: failed.reason,
                    });
                }
            }
        }
    }
}
