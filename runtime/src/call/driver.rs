//! Drives a guest: on the caller's task while it is light, in the background once it is not.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep};

use super::shared::Shared;
use crate::error::CallError;
use crate::function::Function;

pub(super) type Guest = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The caller's handle to a guest. Dropping it cancels the guest, unless it was detached.
pub(super) struct Driver {
    guest: State,
    pub(super) shared: Arc<Shared>,
    function: Arc<Function>,
    /// Made when the guest first waits: most calls need no timer.
    timer: Option<Pin<Box<Sleep>>>,
}

enum State {
    Inline(Guest),
    Background(AbortOnDrop),
    Done,
}

struct AbortOnDrop(Option<AbortHandle>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

impl Driver {
    pub(super) fn new(guest: Guest, shared: Arc<Shared>, function: Arc<Function>) -> Self {
        Self {
            guest: State::Inline(guest),
            shared,
            function,
            timer: None,
        }
    }

    /// Whether the guest has ended.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.guest, State::Done)
    }

    /// Drives the guest. Ready once it has ended, for whatever reason; [`Shared::outcome`] has the result.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.guest {
            State::Done => return Poll::Ready(()),
            State::Background(_) => {
                if self.shared.outcome_or_wake(cx.waker()).is_some() {
                    self.guest = State::Done;
                    return Poll::Ready(());
                }
            }
            State::Inline(guest) => {
                if poll_slice(&self.shared, guest, cx).is_ready() {
                    self.guest = State::Done;
                    return Poll::Ready(());
                }
                if self.shared.slice_used() {
                    self.move_to_background();
                    if self.shared.outcome_or_wake(cx.waker()).is_some() {
                        self.guest = State::Done;
                        return Poll::Ready(());
                    }
                }
            }
        }
        self.poll_timer(cx)
    }

    /// Ends the call once its timeout has passed.
    pub(super) fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let deadline = self.shared.deadline();
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::from_std(deadline))));
        if timer.as_mut().poll(cx).is_ready() {
            self.cancel(CallError::Timeout {
                limit: self.shared.limits.timeout,
            });
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Ends the guest now with this reason, unless the call has failed before.
    pub(super) fn cancel(&mut self, reason: CallError) {
        self.shared.fail(reason);
        self.guest = State::Done;
    }

    /// Lets a guest that has answered finish its work without a caller.
    pub(super) fn detach(&mut self) {
        if matches!(self.guest, State::Inline(_)) {
            self.move_to_background();
        }
        if let State::Background(task) = &mut self.guest {
            task.0 = None;
        }
        self.guest = State::Done;
    }

    fn move_to_background(&mut self) {
        let State::Inline(mut guest) = std::mem::replace(&mut self.guest, State::Done) else {
            return;
        };
        let heavy = self.function.engine().heavy();
        let Some(slot) = heavy.acquire_slot(self.function.heavy_places()) else {
            self.shared.finish(Err(CallError::Overloaded {
                reason: "the node's places for long-running calls, or the function's share of them, are taken"
                    .to_owned(),
            }));
            return;
        };
        self.shared.mark_heavy();
        let shared = self.shared.clone();
        let deadline = Instant::from_std(shared.deadline());
        let task = slot.spawn(async move {
            let run = std::future::poll_fn(|cx| poll_slice(&shared, &mut guest, cx));
            if tokio::time::timeout_at(deadline, run).await.is_err() {
                shared.finish(Err(CallError::Timeout {
                    limit: shared.limits.timeout,
                }));
            }
        });
        self.guest = State::Background(AbortOnDrop(Some(task)));
    }
}

/// One poll of the guest. A panic in a host function is a bug of this crate, and ends only this call.
fn poll_slice(shared: &Shared, guest: &mut Guest, cx: &mut Context<'_>) -> Poll<()> {
    let polled =
        shared.slice(|| std::panic::catch_unwind(AssertUnwindSafe(|| guest.as_mut().poll(cx))));
    polled.unwrap_or_else(|panic| {
        let reason = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic without a message".to_owned());
        tracing::error!(%reason, "a host function panicked");
        shared.finish(Err(CallError::Internal { reason }));
        Poll::Ready(())
    })
}
