//! A call's place in an instance.
//!
//! The place is held until the instance is done with the call, whatever the client does. An instance that still works on a call after the call's
//! deadline and a grace period is replaced.

use std::sync::Arc;
use std::time::Duration;

use fdn_core::{InstanceId, Millis};
use fdn_instances::{CallFailure, CallGuard, CallOver, Instance, InstanceState, Request, Response};
use fdn_scheduling::invocation::ContainerId;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout, timeout_at};

use super::watch::STOPPED;
use super::{Inner, take};
use crate::peers::Placement;

/// How long it may take to notice the end of an instance that cut a call short.
const NOTICE: Duration = Duration::from_millis(20);

/// The loss reason of an instance that worked on a call past its deadline and grace period.
const OVERRUN: &str = "overrun";

/// A place in an instance, held until this is dropped or, if later, until the instance is done with the call.
pub struct InFlight {
    inner: Arc<Inner>,
    container: ContainerId,
    instance: Arc<dyn Instance>,
    taken: Instant,
    executed: Option<Duration>,
    placement: Option<Arc<Placement>>,
    /// The call's deadline.
    pub(super) until: Instant,
    /// Tells when the instance is done with the request it was given.
    over: Option<CallOver>,
}

impl std::fmt::Debug for InFlight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InFlight")
            .field("container", &self.container)
            .finish_non_exhaustive()
    }
}

impl InFlight {
    pub(super) fn new(
        inner: Arc<Inner>,
        container: ContainerId,
        instance: Arc<dyn Instance>,
        placement: Option<Arc<Placement>>,
    ) -> Self {
        let taken = Instant::now();
        Self {
            inner,
            container,
            instance,
            taken,
            executed: None,
            placement,
            until: taken,
            over: None,
        }
    }

    /// The id of the instance.
    #[must_use]
    pub fn instance(&self) -> InstanceId {
        self.instance.id()
    }

    /// How the cluster placed the instance, if it did and this call is the instance's first.
    #[must_use]
    pub fn placement(&self) -> Option<Arc<Placement>> {
        self.placement.clone()
    }

    /// When the call got the place.
    #[must_use]
    pub const fn taken(&self) -> Instant {
        self.taken
    }

    /// Sends the request to the instance.
    ///
    /// # Errors
    /// As [`Instance::call`]. An instance that does not accept requests, or is gone, is not used again.
    pub async fn call(&mut self, mut request: Request) -> Result<Response, CallFailure> {
        let (hold, over) = CallGuard::new();
        request.extensions_mut().insert(hold);
        self.over = Some(over);
        let result = self.instance.call(request).await;
        if let Err(failure) = &result {
            if let CallFailure::NotSent { .. } = failure {
                self.over = None;
            }
            self.failed(failure).await;
        }
        result
    }

    /// Checks whether an instance in which a call failed still exists; if not, it is not used again.
    pub async fn failed(&self, failure: &CallFailure) {
        let is_gone = match failure {
            // An instance must accept requests at this point, whatever its state says.
            CallFailure::NotSent { .. } => true,
            // It may have cut just this call on purpose, and others may be running in it.
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

    /// Records that the call ended well: its time counts towards the expected execution time.
    pub fn finished(&mut self) {
        self.executed = Some(self.taken.elapsed());
        self.over = None;
    }
}

impl InFlight {
    /// Whether the instance may still be working on the request.
    #[must_use]
    pub fn is_worked_on(&self) -> bool {
        self.over.as_ref().is_some_and(|over| !over.is_over())
    }

    /// Leaves the call to the instance until its deadline and a grace period are over; `None` if the instance is done with it.
    pub fn abandon(&mut self) -> Option<AbandonedCall> {
        let over = self.over.take().filter(|over| !over.is_over())?;
        let (inner, container) = (Arc::clone(&self.inner), self.container);
        let latest = self.until + inner.settings.stop_grace.as_duration();
        let tasks = inner.tasks.clone();
        let end = Box::pin(async move {
            if timeout_at(latest, over.wait()).await.is_err() {
                inner.lose(container, OVERRUN, "it works on a call whose time is over");
            }
        });
        Some(AbandonedCall { end, tasks })
    }
}

/// A call that nobody waits for and on which an instance still works.
pub struct AbandonedCall {
    /// Completes when the instance is done with the call, or has been replaced.
    end: BoxFuture<'static, ()>,
    tasks: Handle,
}

impl AbandonedCall {
    /// Drops `held` once the instance is done with the call.
    pub fn keep(self, held: impl Send + 'static) {
        let end = self.end;
        self.tasks.spawn(async move {
            end.await;
            drop(held);
        });
    }
}

/// A place that is released when this is dropped.
struct PlaceGuard {
    inner: Arc<Inner>,
    container: ContainerId,
    executed: Option<Millis>,
}

impl Drop for PlaceGuard {
    fn drop(&mut self) {
        let (container, took) = (self.container, self.executed);
        self.inner
            .with(|state, now| state.pool.ended(now, container, took));
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let guard = PlaceGuard {
            inner: Arc::clone(&self.inner),
            container: self.container,
            executed: self.executed.map(Millis::from),
        };
        if let Some(left) = self.abandon() {
            left.keep(guard);
        }
    }
}

impl Inner {
    /// Stops using an instance; calls that still run in it may end within the grace period.
    pub(super) fn lose(self: &Arc<Self>, container: ContainerId, how: &'static str, reason: &str) {
        let lost = self.with(|state, now| {
            let live = take(state, container)?;
            let index = state.pool.function_of(container);
            let function =
                index.and_then(|index| state.functions.get(index.get()).cloned().flatten());
            let failures = index.map_or(0, |index| state.pool.failures(index));
            // A failed resume says nothing about the function.
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
            Some((live, function))
        });
        if let Some((live, function)) = lost {
            self.metrics.lost.with_label_values(&[how]).inc();
            if let Some(function) = function.filter(|_| how != STOPPED) {
                function
                    .degradation
                    .note(&function.spec, reason, &live.instance.log_tail());
            }
            self.stop_later(live.instance, live.reservation);
        }
    }
}
