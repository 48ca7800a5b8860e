//! The end of a call: counted and recorded exactly once, however it ends.
//!
//! A call whose client has left, or whose time is over, has not ended while its instance still works on it. Until then everything that the call
//! holds stays held; afterwards it is recorded with the time that it took. The same holds for a call whose guest works on after its answer. What
//! is known earlier is recorded as well, in case the node dies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_http::{Response, StatusCode};
use fdn_runtime::{CallStats, StatsHandle};

use super::body::GatewayBody;
use super::head::Ids;
use super::problem::ProblemResponse;
use crate::invocations::{InFlight, Slot};
use crate::metrics::{AppMetrics, Outcome, VersionCounts};
use crate::peers::Placement;
use crate::policy::guard::Permit;
use crate::usage::{Meter, PendingRecord, Progress};

/// Where the measurements of a call come from.
pub(super) enum Measured {
    /// The runtime of sandboxes.
    Guest(StatsHandle),
    /// The gateway, for a call in an instance: its place there, and the time to the head of the answer.
    Instance(InFlight, Duration),
    /// The gateway, for a call that no instance has answered yet.
    Attempts(Attempts),
}

/// The attempts of a call that no instance has answered yet.
#[derive(Default)]
pub(super) struct Attempts {
    /// The call's place in the instance that has it now, and since when.
    current: Option<(InFlight, Instant)>,
    /// The measurements of the last lost attempt whose instance may have seen the request.
    lost: Option<CallStats>,
}

impl Attempts {
    /// Records that the instance did not answer; `seen` if it may have seen the request.
    fn failed(&mut self, seen: bool) {
        if seen {
            self.lost = self.stats();
        }
        self.current = None;
    }

    /// The measurements of the current attempt, or else of the last lost one; `None` if no instance can have seen the request.
    fn stats(&self) -> Option<CallStats> {
        let current = self.current.as_ref().map(|(in_flight, since)| CallStats {
            exec: since.elapsed(),
            instance: Some(in_flight.instance()),
            reused: true,
            ..CallStats::default()
        });
        current.or(self.lost)
    }
}

/// Counts and records how a call ended, once: explicitly, or as abandoned by the client when dropped.
pub struct CallEnd {
    pub(super) metrics: Arc<AppMetrics>,
    pub(super) measured: Measured,
    pub(super) arrived: Instant,
    /// The time from the call's arrival until it was admitted.
    waited: Duration,
    /// The status of the answer, once there is one.
    status: Option<StatusCode>,
    outcome: Outcome,
    /// The number of bytes of the answer's body sent so far.
    egress: u64,
    /// The meter; taken when the record of the end is written.
    meter: Option<Meter>,
    /// The slot, held until the call has ended.
    slot: Option<Slot>,
    /// The call's permit, one of those that the app's policy allows to run.
    permit: Option<Arc<Permit>>,
    /// The counters of the app's version, if they are kept.
    counts: Option<Arc<VersionCounts>>,
    /// The time to the head of the answer.
    head: Option<Duration>,
}

impl CallEnd {
    pub(super) fn new(
        metrics: &Arc<AppMetrics>,
        measured: Measured,
        arrived: Instant,
        slot: Slot,
        meter: Meter,
    ) -> Self {
        Self {
            metrics: Arc::clone(metrics),
            measured,
            arrived,
            waited: Duration::ZERO,
            status: None,
            outcome: Outcome::Client,
            egress: 0,
            meter: Some(meter),
            slot: Some(slot),
            permit: None,
            counts: None,
            head: None,
        }
    }

    /// Sets the time that the call waited before it was admitted.
    pub(super) const fn waited(mut self, waited: Duration) -> Self {
        self.waited = waited;
        self
    }

    /// Also counts the call for its version.
    pub(super) fn counting(mut self, counts: &Arc<VersionCounts>) -> Self {
        self.counts = Some(Arc::clone(counts));
        self
    }

    /// Holds a permit, which is released when the call has ended.
    pub(super) fn holding(mut self, permit: Option<Arc<Permit>>) -> Self {
        self.permit = permit;
        self
    }

    /// Records the status that the function answered with.
    pub fn answered(&mut self, status: StatusCode) {
        self.head.get_or_insert_with(|| self.arrived.elapsed());
        self.status = Some(status);
    }

    /// The outcome of a call that was answered, by its status.
    fn status_class(&self) -> Outcome {
        if self.status.is_some_and(|status| status.is_server_error()) {
            Outcome::FunctionError
        } else {
            Outcome::Ok
        }
    }

    /// The call's measurements so far.
    #[must_use]
    pub fn stats(&self) -> CallStats {
        match &self.measured {
            Measured::Guest(stats) => stats.snapshot(),
            Measured::Instance(in_flight, head) => CallStats {
                exec: in_flight.taken().elapsed(),
                first_byte: *head,
                instance: Some(in_flight.instance()),
                reused: true,
                ..CallStats::default()
            },
            Measured::Attempts(attempts) => attempts.stats().unwrap_or_default(),
        }
    }

    /// How the instance was placed in the cluster, if it was started for this call.
    pub(super) fn placement(&self) -> Option<Arc<Placement>> {
        match &self.measured {
            Measured::Instance(in_flight, _) => in_flight.placement(),
            Measured::Guest(_) | Measured::Attempts(_) => None,
        }
    }

    /// Begins an attempt at this place in an instance.
    pub(super) fn attempt(&mut self, in_flight: InFlight) -> Option<&mut InFlight> {
        let Measured::Attempts(attempts) = &mut self.measured else {
            return None;
        };
        Some(&mut attempts.current.insert((in_flight, Instant::now())).0)
    }

    /// Ends the current attempt without an answer; `seen` if the instance may have seen the request.
    pub(super) fn attempt_failed(&mut self, seen: bool) {
        if let Measured::Attempts(attempts) = &mut self.measured {
            attempts.failed(seen);
        }
    }

    /// Ends the attempts: the instance answered after `head`.
    pub(super) fn attempt_answered(&mut self, head: Duration) {
        if let Measured::Attempts(attempts) = &mut self.measured
            && let Some((in_flight, _)) = attempts.current.take()
        {
            if let Some(meter) = &mut self.meter
                && meter.is_traced()
            {
                meter.placed(in_flight.placement());
            }
            self.measured = Measured::Instance(in_flight, head);
        }
    }

    /// The call's place in its current instance.
    const fn in_flight_mut(&mut self) -> Option<&mut InFlight> {
        match &mut self.measured {
            Measured::Instance(in_flight, _) => Some(in_flight),
            Measured::Attempts(Attempts {
                current: Some((in_flight, _)),
                ..
            }) => Some(in_flight),
            Measured::Guest(_) | Measured::Attempts(_) => None,
        }
    }

    /// Whether an instance still works on the call although nobody waits for it any more.
    fn is_worked_on(&mut self) -> bool {
        self.meter.is_some()
            && self
                .in_flight_mut()
                .is_some_and(|in_flight| in_flight.is_worked_on())
    }

    /// Whether a function may have seen the call.
    fn is_seen(&self) -> bool {
        !matches!(&self.measured, Measured::Attempts(attempts) if attempts.stats().is_none())
    }

    /// Ends the call with an answer of the gateway's own. The answer waits for the record.
    pub(super) fn failed(mut self, answer: ProblemResponse, ids: &Ids) -> Response<GatewayBody> {
        let response = answer.respond(&ids.request);
        self.status = Some(response.status());
        let pending = self.ended(Some(Outcome::of_code(answer.code)));
        response.map_body(|_, mut body| {
            body.wait_for(pending);
            body
        })
    }

    /// Counts bytes of the answer's body that are being sent.
    pub const fn sending(&mut self, bytes: usize) {
        self.egress += bytes as u64;
    }

    /// Records what is known so far, because the whole answer is about to be sent while the call still runs.
    pub fn still_runs(&mut self) -> Option<PendingRecord> {
        let (stats, progress) = (self.stats(), self.progress());
        let meter = self.meter.as_mut()?;
        let written = meter.record(&stats, self.egress, None, progress);
        Some(PendingRecord::new(written))
    }

    fn progress(&self) -> Progress {
        Progress {
            status: self.status.map(|status| status.as_u16()),
            waited: self.waited,
            total: self.arrived.elapsed(),
        }
    }

    /// Ends the call with the outcome `failed`, or, if `None`, as its status says. The rest of the answer waits for the record.
    pub fn ended(mut self, failed: Option<Outcome>) -> Option<PendingRecord> {
        self.outcome = failed.unwrap_or_else(|| self.status_class());
        if failed.is_some() && self.is_worked_on() {
            return self.works_on();
        }
        self.record()
    }

    /// Leaves the call, with all that it holds, to its instance until the instance is done with it. Returns the record of what is known now.
    fn works_on(&mut self) -> Option<PendingRecord> {
        let known = self.still_runs();
        let Some(left) = self.in_flight_mut().and_then(InFlight::abandon) else {
            return known;
        };
        left.keep(Self {
            metrics: Arc::clone(&self.metrics),
            measured: std::mem::replace(
                &mut self.measured,
                Measured::Attempts(Attempts::default()),
            ),
            arrived: self.arrived,
            waited: self.waited,
            status: self.status,
            outcome: self.outcome,
            egress: self.egress,
            meter: self.meter.take(),
            slot: self.slot.take(),
            permit: self.permit.take(),
            counts: self.counts.take(),
            head: self.head,
        });
        known
    }

    /// Ends the call because its answer is complete. If its guest works on, the call ends with the guest, and until then everything that it holds
    /// stays held. Returns the record of what is known now.
    pub fn complete(mut self) -> Option<PendingRecord> {
        let guest = match &self.measured {
            Measured::Guest(stats) if !stats.snapshot().finished => Some(stats.clone()),
            _ => None,
        };
        let Some(guest) = guest else {
            return self.ended(None);
        };
        let known = self.still_runs();
        // In case this is dropped before the guest has ended, because the node stops.
        self.outcome = self.status_class();
        tokio::task::spawn_local(async move {
            guest.finished().await;
            drop(self.ended(None));
        });
        known
    }

    fn record(&mut self) -> Option<PendingRecord> {
        let mut meter = self.meter.take()?;
        if !self.is_seen() {
            meter.unseen(self.outcome, self.progress());
            return None;
        }
        let (stats, progress) = (self.stats(), self.progress());
        let written = meter.record(&stats, self.egress, Some(self.outcome), progress);
        Some(PendingRecord::new(written))
    }
}

impl Drop for CallEnd {
    fn drop(&mut self) {
        // The client has left. A call that was cut off has a different outcome by now.
        if self.outcome == Outcome::Client && self.is_worked_on() {
            drop(self.works_on());
        }
        if self.slot.is_none() {
            // The call was left to its instance, whose own `CallEnd` counts it.
            return;
        }
        let stats = self.stats();
        if let Measured::Instance(in_flight, _) = &mut self.measured
            && matches!(self.outcome, Outcome::Ok | Outcome::FunctionError)
        {
            in_flight.finished();
        }
        if stats.instance.is_some() {
            self.metrics.ran(self.waited, stats.instantiate, stats.exec);
        }
        let took = self.arrived.elapsed();
        self.metrics.ended(self.outcome, took);
        if let Some(counts) = &self.counts {
            counts.ended(self.outcome, self.head.unwrap_or(took));
        }
        // Nobody waits for the answer of an abandoned call, but it is recorded all the same.
        drop(self.record());
    }
}
