//! A call's place in an instance.

use std::sync::Arc;
use std::time::Duration;

use fdn_core::{InstanceId, Millis};
use fdn_instances::{CallFailure, Instance, InstanceState, Request, Response};
use fdn_scheduling::invocation::ContainerId;
use tokio::time::{Instant, timeout};

use super::watch::STOPPED;
use super::{Inner, take};
use crate::peers::Way;

/// How long the end of an instance may take to be noticed after it has cut a call.
const NOTICE: Duration = Duration::from_millis(20);

/// A place in an instance that a call holds until this is dropped.
pub struct Seat {
    inner: Arc<Inner>,
    container: ContainerId,
    instance: Arc<dyn Instance>,
    taken: Instant,
    executed: Option<Duration>,
    way: Option<Arc<Way>>,
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat")
            .field("container", &self.container)
            .finish_non_exhaustive()
    }
}

impl Seat {
    pub(super) fn new(
        inner: Arc<Inner>,
        container: ContainerId,
        instance: Arc<dyn Instance>,
        way: Option<Arc<Way>>,
    ) -> Self {
        Self {
            inner,
            container,
            instance,
            taken: Instant::now(),
            executed: None,
            way,
        }
    }

    /// The instance.
    #[must_use]
    pub fn instance(&self) -> InstanceId {
        self.instance.id()
    }

    /// How the instance came to be where it is, if it was placed by the cluster and this call is its first.
    #[must_use]
    pub fn way(&self) -> Option<Arc<Way>> {
        self.way.clone()
    }

    /// When the call got it.
    #[must_use]
    pub const fn taken(&self) -> Instant {
        self.taken
    }

    /// Hands the request over.
    ///
    /// # Errors
    /// As [`Instance::call`]. An instance that does not take requests, or is gone, is not used again.
    pub async fn call(&self, request: Request) -> Result<Response, CallFailure> {
        let result = self.instance.call(request).await;
        if let Err(failure) = &result {
            self.failed(failure).await;
        }
        result
    }

    /// Looks whether an instance under which a call failed is still there; if not, it is not used again.
    pub async fn failed(&self, failure: &CallFailure) {
        let is_gone = match failure {
            // It has to take requests now, whatever its state says.
            CallFailure::NotSent { .. } => true,
            // It may have cut this one call on purpose, and others may run in it.
            _ => {
                let mut state = self.instance.state();
                let ended = state.wait_for(|state| state.exit().is_some());
                !matches!(timeout(NOTICE, ended).await, Err(_elapsed))
            }
        };
        if is_gone {
            let reason = match &*self.instance.state().borrow() {
                InstanceState::Exited(exit) => exit.to_string(),
                _ => failure.to_string(),
            };
            self.inner.lose(self.container, "call", &reason);
        }
    }

    /// The call has ended well: its time is what such calls are expected to take.
    pub fn finished(&mut self) {
        self.executed = Some(self.taken.elapsed());
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let took = self.executed.map(Millis::from);
        let container = self.container;
        self.inner
            .with(|state, now| state.pool.ended(now, container, took));
    }
}

impl Inner {
    /// An instance must not be used any more; what still runs in it may end within the grace.
    pub(super) fn lose(self: &Arc<Self>, container: ContainerId, how: &'static str, reason: &str) {
        let lost = self.with(|state, now| {
            let live = take(state, container)?;
            let index = state.pool.function_of(container);
            let lane = index.and_then(|index| state.functions.get(index.get()).cloned().flatten());
            let failures = index.map_or(0, |index| state.pool.failures(index));
            // That the engine does not wake it says nothing about the function.
            let pause = match how {
                "resume" => None,
                _ => self.pause_after(live.since.elapsed(), failures),
            };
            match pause {
                Some(pause) => {
                    let again = now + Millis::from(pause);
                    state.pool.start_failed(now, container, again);
                }
                None => state.pool.gone(now, container),
            }
            Some((live, lane))
        });
        if let Some((live, lane)) = lost {
            self.metrics.lost.with_label_values(&[how]).inc();
            if let Some(lane) = lane.filter(|_| how != STOPPED) {
                lane.trouble
                    .note(&lane.spec, reason, &live.instance.log_tail());
            }
            self.stop_later(live.instance, live.hold);
        }
    }
}
