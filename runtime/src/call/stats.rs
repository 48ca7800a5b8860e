//! Measurements of one call.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use fdn_core::InstanceId;

use super::shared::Shared;

/// Measurements of one call so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallStats {
    /// Time until an instance was ready: making one, or taking an idle one.
    pub instantiate: Duration,
    /// Time from then until the guest returned, or was cut.
    pub exec: Duration,
    /// CPU time of the guest, instantiation included.
    pub cpu: Duration,
    /// From the start of the call until the response head was set.
    pub first_byte: Duration,
    /// The most memory that the instance held, in bytes.
    pub memory_peak: u64,
    /// Bytes of the response body that were passed to the caller.
    pub response_bytes: u64,
    /// Whether the instance had served a call before.
    pub reused: bool,
    /// Whether the call moved to a background thread.
    pub heavy: bool,
    /// Whether the guest has ended, so that these figures are final.
    pub finished: bool,
    /// The instance, once there is one.
    pub instance: Option<InstanceId>,
}

/// Reads the measurements of a call while it runs and after it has ended.
#[derive(Clone)]
pub struct StatsHandle(pub(super) Arc<Shared>);

impl StatsHandle {
    /// The measurements now.
    #[must_use]
    pub fn snapshot(&self) -> CallStats {
        self.0.stats()
    }

    /// Waits until the guest has ended. For a guest that goes on after its answer: while the answer is read, its body waits for that.
    pub async fn finished(&self) {
        poll_fn(|cx| match self.0.outcome_or_wake(cx.waker()) {
            Some(_) => Poll::Ready(()),
            None => Poll::Pending,
        })
        .await;
    }
}
