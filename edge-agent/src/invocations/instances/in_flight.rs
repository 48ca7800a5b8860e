//! A call's place in an instance.
//!
//! It is held until the instance has let go of the call, whatever the client does. An instance that works on for longer than the call
//! may, and a grace, is replaced.

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
use crate::peers::Way;

/// How long the end of an instance may take to be noticed after it has cut a call.
const NOTICE: Duration = Duration::from_millis(20);

/// How an instance was lost that works on a call for longer than it may.
const OVERRUN: &str = "overrun";

/// A place in an instance that a call holds until this is dropped, or the instance has let go of it.
pub struct InFlight {
    inner: Arc<Inner>,
    container: ContainerId,
    instance: Arc<dyn Instance>,
    taken: Instant,
    executed: Option<Duration>,
    way: Option<Arc<Way>>,
    /// When the call must be over.
    pub(super) until: Instant,
    /// Tells when the instance has let go of what it was handed.
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
        way: Option<Arc<Way>>,
    ) -> Self {
        let taken = Instant::now();
        Self {
            inner,
            container,
            instance,
            taken,
            executed: None,
            way,
            until: taken,
            over: None,
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
        self.over = None;
    }
}

impl InFlight {
    /// Whether the instance may still work on what it was handed.
    #[must_use]
    pub fn is_worked_on(&self) -> bool {
        self.over.as_ref().is_some_and(|over| !over.is_over())
    }

    /// Leaves the instance alone with what it still works on, for as long as the call's time and a grace last; nothing if it is over.
    pub fn leave(&mut self) -> Option<Left> {
        let over = self.over.take().filter(|over| !over.is_over())?;
        let (inner, container) = (Arc::clone(&self.inner), self.container);
        let latest = self.until + inner.settings.stop_grace.as_duration();
        let tasks = inner.tasks.clone();
        let end = Box::pin(async move {
            if timeout_at(latest, over.wait()).await.is_err() {
                inner.lose(container, OVERRUN, "it works on a call whose time is over");
            }
        });
        Some(Left { end, tasks })
    }
}

/// A call that nobody waits for and that an instance still works on.
pub struct Left {
    /// It has let go of it, or is replaced.
    end: BoxFuture<'static, ()>,
    tasks: Handle,
}

impl Left {
    /// Drops this once the instance has let go of the call.
    pub fn keep(self, held: impl Send + 'static) {
        let end = self.end;
        self.tasks.spawn(async move {
            end.await;
            drop(held);
        });
    }
}

/// A place that is given back when this is dropped.
struct Taken {
    inner: Arc<Inner>,
    container: ContainerId,
    executed: Option<Millis>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let (container, took) = (self.container, self.executed);
        self.inner
            .with(|state, now| state.pool.ended(now, container, took));
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let taken = Taken {
            inner: Arc::clone(&self.inner),
            container: self.container,
            executed: self.executed.map(Millis::from),
        };
        if let Some(left) = self.leave() {
            left.keep(taken);
        }
    }
}

impl Inner {
    /// An instance must not be used any more; what still runs in it may end within the grace.
    pub(super) fn lose(self: &Arc<Self>, container: ContainerId, how: &'static str, reason: &str) {
        let lost = self.with(|state, now| {
            let live = take(state, container)?;
            let index = state.pool.function_of(container);
            let function =
                index.and_then(|index| state.functions.get(index.get()).cloned().flatten());
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
            Some((live, function))
        });
        if let Some((live, function)) = lost {
            self.metrics.lost.with_label_values(&[how]).inc();
            if let Some(function) = function.filter(|_| how != STOPPED) {
                function
                    .degradation
                    .note(&function.spec, reason, &live.instance.log_tail());
            }
            self.stop_later(live.instance, live.hold);
        }
    }
}
