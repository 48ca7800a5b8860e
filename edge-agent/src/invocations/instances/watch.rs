//! Starts of instances, failed starts, and instances that end by themselves.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fdn_core::{Coded, ErrorCode, Millis, Timestamp};
use fdn_instances::{ExitReason, Instance, InstanceState, LogLine, StartSpec};
use fdn_scheduling::invocation::ContainerId;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;
use tracing::warn;

use super::{Inner, RegisteredFunction};
use crate::invocations::placer::{Need, PlaceError};
use fdn_link::pause;

/// An instance that ends sooner than this after its start would likely do so again.
const SOON: Duration = Duration::from_secs(5);
/// Instances that end within this time count as one failure.
const TOGETHER: Duration = Duration::from_millis(20);
/// The loss reason of an instance that was stopped in an orderly way by someone else.
pub(super) const STOPPED: &str = "stopped";
/// The number of output lines kept with the reason.
const LINES: usize = 20;

/// What is wrong with the instances of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Degradation {
    /// The last failure.
    pub reason: String,
    /// The last lines that the instance wrote, oldest first.
    pub log: Vec<String>,
    /// The time of the last failure.
    pub at: Timestamp,
    /// The number of failures in a row.
    pub times: u32,
}

/// The degradation of a function, until an instance of it starts successfully.
#[derive(Debug, Default)]
pub(super) struct DegradationCell {
    last: Mutex<Option<Degradation>>,
    /// Notified at every failure.
    bell: Notify,
}

impl DegradationCell {
    pub(super) fn get(&self) -> Option<Degradation> {
        self.last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits for the next failure.
    pub(super) fn next(&self) -> Notified<'_> {
        self.bell.notified()
    }

    pub(super) fn clear(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(super) fn note(&self, spec: &StartSpec, reason: &str, log: &[LogLine]) {
        let description = &spec.description;
        warn!(app = %description.app, version = %description.version, %reason, "an instance failed");
        let log = log.iter().rev().take(LINES).rev();
        let mut cell = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let times = cell.as_ref().map_or(0, |degradation| degradation.times);
        *cell = Some(Degradation {
            reason: reason.to_owned(),
            log: log.map(|line| line.text.clone()).collect(),
            at: fdn_service::now(),
            times: times.saturating_add(1),
        });
        drop(cell);
        self.bell.notify_waiters();
    }
}

impl Inner {
    /// Starts one instance.
    pub(super) async fn start_one(
        self: Arc<Self>,
        container: ContainerId,
        function: Arc<RegisteredFunction>,
        need: Need,
    ) {
        let began = Instant::now();
        let placed = self.placer.place(function.spec.clone(), need).await;
        match placed {
            Ok(placed) => {
                self.metrics.starts.with_label_values(&["ok"]).inc();
                self.metrics
                    .cold_start
                    .observe(began.elapsed().as_secs_f64());
                function.degradation.clear();
                function.starts.fetch_add(1, Ordering::Relaxed);
                let unwanted = self.with(|state, now| {
                    // Before the pool assigns calls to it.
                    self.insert(state, container, placed);
                    let wanted = state.pool.started(now, container);
                    (!wanted).then(|| super::take(state, container)).flatten()
                });
                if let Some(live) = unwanted {
                    self.stop_later(live.instance, live.reservation);
                }
            }
            Err(error) => {
                self.metrics
                    .starts
                    .with_label_values(&[error.label()])
                    .inc();
                function
                    .degradation
                    .note(&function.spec, &error.to_string(), error.log());
                self.failed(container, &error);
            }
        }
    }

    fn failed(self: &Arc<Self>, container: ContainerId, error: &PlaceError) {
        self.with(|state, now| {
            let index = state.pool.function_of(container);
            let failures = index.map_or(0, |index| state.pool.failures(index)) + 1;
            // A lack of room is not the function's fault, so the pause does not grow each time.
            let failures = match error.code() {
                ErrorCode::Overloaded => 1,
                _ => failures,
            };
            let again = now + Millis::from(self.pause(failures));
            state.pool.start_failed(now, container, again);
        });
    }

    fn pause(&self, failures: u32) -> Duration {
        pause(
            failures,
            self.settings.retry_first.as_duration(),
            self.settings.retry_max.as_duration(),
            rand::random(),
        )
    }

    /// The pause before a function's next start after an instance ended by itself: none if it had lived for at least [`SOON`]; for the first
    /// failure only [`TOGETHER`], so that instances that end together count as one.
    pub(super) fn pause_after(&self, lived: Duration, failures: u32) -> Option<Duration> {
        let pause = match failures {
            0 => TOGETHER,
            failures => self.pause(failures),
        };
        (lived < SOON).then_some(pause)
    }

    /// Waits until an instance ends or stops answering, then stops using it.
    pub(super) async fn watch(
        self: Arc<Self>,
        container: ContainerId,
        instance: Arc<dyn Instance>,
    ) {
        let mut state = instance.state();
        let ended = state
            .wait_for(|state| {
                matches!(
                    state,
                    InstanceState::Exited(_) | InstanceState::Unresponsive { .. }
                )
            })
            .await;
        let (how, reason) = match ended.as_deref() {
            // Its node stopped it in an orderly way: nothing is wrong with the function.
            Ok(InstanceState::Exited(exit)) if exit.reason == ExitReason::Stopped => {
                (STOPPED, exit.to_string())
            }
            Ok(InstanceState::Exited(exit)) => ("exited", exit.to_string()),
            Ok(InstanceState::Unresponsive { reason }) => {
                ("unresponsive", format!("it stopped answering: {reason}"))
            }
            // The handle was dropped, so this agent stopped it.
            Ok(_) | Err(_) => return,
        };
        drop(ended);
        self.lose(container, how, &reason);
    }
}
