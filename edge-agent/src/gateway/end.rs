//! How a call ended: counted and recorded once, whatever becomes of it.
//!
//! A call that its client has left, or whose time is over, has not ended while its instance works on it. Until it has, everything that it
//! holds stays held; then it is recorded with the time that it took. What is known before is recorded too, in case the node dies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_http::{Response, StatusCode};
use fdn_runtime::{CallStats, StatsHandle};

use super::body::GatewayBody;
use super::head::Ids;
use super::problem::ProblemResponse;
use crate::invocations::{InFlight, Slot};
use crate::metrics::{AppMetrics, Outcome, VersionCounts};
use crate::peers::Way;
use crate::policy::guard::Permit;
use crate::usage::{Meter, Pending, Progress};

/// What is measured of a call.
pub(super) enum Measured {
    /// By the runtime of sandboxes.
    Guest(StatsHandle),
    /// By the gateway, of a call in an instance: the place, and how long the head took.
    Instance(InFlight, Duration),
    /// By the gateway, of a call that no instance has answered yet.
    Attempts(Attempts),
}

/// What a call has been through that no instance has answered yet.
#[derive(Default)]
pub(super) struct Attempts {
    /// The place in the instance that has it now, and since when.
    current: Option<(InFlight, Instant)>,
    /// What the last instance took that was lost with it and may have seen it.
    lost: Option<CallStats>,
}

impl Attempts {
    /// The instance did not answer; `seen` if it may have seen the request.
    fn failed(&mut self, seen: bool) {
        if seen {
            self.lost = self.stats();
        }
        self.current = None;
    }

    /// What the present instance, or else the last one, took; nothing if none can have seen the request.
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

/// Counts and records how a call ended, once: when told, or as given up by the client when dropped.
pub struct CallEnd {
    pub(super) metrics: Arc<AppMetrics>,
    pub(super) measured: Measured,
    pub(super) arrived: Instant,
    /// From its arrival until it was let in.
    waited: Duration,
    /// The status of its answer, once there is one.
    status: Option<StatusCode>,
    outcome: Outcome,
    /// Bytes of the answer's body that were sent.
    egress: u64,
    /// Until the record of its end is written.
    meter: Option<Meter>,
    /// Until it has ended.
    slot: Option<Slot>,
    /// The call's place among those that its app's policy lets run.
    permit: Option<Arc<Permit>>,
    /// Where the version's own calls are counted.
    counts: Option<Arc<VersionCounts>>,
    /// How long the head of the answer took.
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

    /// The same, let in so long after its arrival.
    pub(super) const fn waited(mut self, waited: Duration) -> Self {
        self.waited = waited;
        self
    }

    /// The same, counted for its version as well.
    pub(super) fn counting(mut self, counts: &Arc<VersionCounts>) -> Self {
        self.counts = Some(Arc::clone(counts));
        self
    }

    /// The same, with a place that is given back when the call has ended.
    pub(super) fn holding(mut self, permit: Option<Arc<Permit>>) -> Self {
        self.permit = permit;
        self
    }

    /// Notes the status that the function answered with.
    pub fn answered(&mut self, status: StatusCode) {
        self.head.get_or_insert_with(|| self.arrived.elapsed());
        self.status = Some(status);
    }

    /// How the call ended if it ended well: as its status says.
    fn status_class(&self) -> Outcome {
        if self.status.is_some_and(|status| status.is_server_error()) {
            Outcome::FunctionError
        } else {
            Outcome::Ok
        }
    }

    /// The call's measurements now.
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

    /// How the room was found for the instance that was started for this call, if one was.
    pub(super) fn way(&self) -> Option<Arc<Way>> {
        match &self.measured {
            Measured::Instance(in_flight, _) => in_flight.way(),
            Measured::Guest(_) | Measured::Attempts(_) => None,
        }
    }

    /// The call is handed to the instance in which it has this place.
    pub(super) fn attempt(&mut self, in_flight: InFlight) -> Option<&mut InFlight> {
        let Measured::Attempts(attempts) = &mut self.measured else {
            return None;
        };
        Some(&mut attempts.current.insert((in_flight, Instant::now())).0)
    }

    /// The instance did not answer; `seen` if it may have seen the request.
    pub(super) fn attempt_failed(&mut self, seen: bool) {
        if let Measured::Attempts(attempts) = &mut self.measured {
            attempts.failed(seen);
        }
    }

    /// The instance answers, after so long.
    pub(super) fn attempt_answered(&mut self, head: Duration) {
        if let Measured::Attempts(attempts) = &mut self.measured
            && let Some((in_flight, _)) = attempts.current.take()
        {
            if let Some(meter) = &mut self.meter
                && meter.is_traced()
            {
                meter.placed(in_flight.way());
            }
            self.measured = Measured::Instance(in_flight, head);
        }
    }

    /// The place in the instance that has the call.
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

    /// Whether an instance still works on what nobody waits for any more.
    fn is_worked_on(&mut self) -> bool {
        self.meter.is_some()
            && self
                .in_flight_mut()
                .is_some_and(|in_flight| in_flight.is_worked_on())
    }

    /// Whether a function can have seen the call.
    fn is_seen(&self) -> bool {
        !matches!(&self.measured, Measured::Attempts(attempts) if attempts.stats().is_none())
    }

    /// The gateway answers in the function's place. The answer waits for the record.
    pub(super) fn failed(mut self, answer: ProblemResponse, ids: &Ids) -> Response<GatewayBody> {
        let response = answer.respond(&ids.request);
        self.status = Some(response.status());
        let pending = self.ended(Some(Outcome::of_code(answer.code)));
        response.map_body(|_, mut body| {
            body.wait_for(pending);
            body
        })
    }

    /// Bytes of the answer's body are sent.
    pub const fn sending(&mut self, bytes: usize) {
        self.egress += bytes as u64;
    }

    /// The whole answer is about to leave although the call still runs: records what is known until now.
    pub fn still_runs(&mut self) -> Option<Pending> {
        let (stats, progress) = (self.stats(), self.progress());
        let meter = self.meter.as_mut()?;
        let written = meter.record(&stats, self.egress, None, progress);
        Some(Pending::new(written))
    }

    fn progress(&self) -> Progress {
        Progress {
            status: self.status.map(|status| status.as_u16()),
            waited: self.waited,
            total: self.arrived.elapsed(),
        }
    }

    /// The call has ended: well, as its status says, if `failed` is nothing. The rest of the answer waits for the record.
    pub fn ended(mut self, failed: Option<Outcome>) -> Option<Pending> {
        self.outcome = failed.unwrap_or_else(|| self.status_class());
        if failed.is_some() && self.is_worked_on() {
            return self.works_on();
        }
        self.record()
    }

    /// Leaves the call to its instance, with all that it holds, until that has let go of it. Returns the record of what is known now.
    fn works_on(&mut self) -> Option<Pending> {
        let known = self.still_runs();
        let Some(left) = self.in_flight_mut().and_then(InFlight::leave) else {
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

    fn record(&mut self) -> Option<Pending> {
        let mut meter = self.meter.take()?;
        if !self.is_seen() {
            meter.unseen(self.outcome, self.progress());
            return None;
        }
        let (stats, progress) = (self.stats(), self.progress());
        let written = meter.record(&stats, self.egress, Some(self.outcome), progress);
        Some(Pending::new(written))
    }
}

impl Drop for CallEnd {
    fn drop(&mut self) {
        // The client has left; whoever cuts the call does so before this is dropped.
        if self.outcome == Outcome::Client && self.is_worked_on() {
            drop(self.works_on());
        }
        if self.slot.is_none() {
            // It has been left to its instance.
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
        // Nobody waits for the answer of a call that was given up; it is recorded all the same.
        drop(self.record());
    }
}
