//! How a call ended: counted and recorded once, whatever becomes of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_http::{Response, StatusCode};
use fdn_core::InstanceId;
use fdn_runtime::{CallStats, StatsHandle};

use super::body::GatewayBody;
use super::head::Ids;
use super::problem::Answer;
use crate::invocations::{Seat, Slot};
use crate::metrics::{AppMetrics, Outcome, VersionCounts};
use crate::peers::Way;
use crate::policy::guard::Permit;
use crate::usage::{Meter, Pending};

/// What is measured of a call.
pub(super) enum Measured {
    /// By the runtime of sandboxes.
    Guest(StatsHandle),
    /// By the gateway, of a call in an instance: the seat, and how long the head took.
    Instance(Seat, Duration),
    /// By the gateway, of a call that no instance has answered yet.
    Attempts(Attempts),
}

/// What a call has been through that no instance has answered yet.
#[derive(Default)]
pub(super) struct Attempts {
    /// The instance that has it now, and since when.
    current: Option<(InstanceId, Instant)>,
    /// What the last instance took that was lost with it and may have seen it.
    lost: Option<CallStats>,
}

impl Attempts {
    /// It is handed to an instance.
    pub(super) fn begin(&mut self, seat: &Seat) {
        self.current = Some((seat.instance(), Instant::now()));
    }

    /// The instance did not answer; `seen` if it may have seen the request.
    pub(super) fn failed(&mut self, seen: bool) {
        if seen {
            self.lost = self.stats();
        }
        self.current = None;
    }

    /// What the present instance, or else the last one, took; nothing if none can have seen the request.
    fn stats(&self) -> Option<CallStats> {
        let current = self.current.map(|(instance, since)| CallStats {
            exec: since.elapsed(),
            instance: Some(instance),
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
    status_class: Outcome,
    outcome: Outcome,
    /// Octets of the answer's body that were sent.
    egress: u64,
    /// Until the record of its end is written.
    meter: Option<Meter>,
    _slot: Slot,
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
            status_class: Outcome::Ok,
            outcome: Outcome::Client,
            egress: 0,
            meter: Some(meter),
            _slot: slot,
            permit: None,
            counts: None,
            head: None,
        }
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
        self.status_class = if status.is_server_error() {
            Outcome::FunctionError
        } else {
            Outcome::Ok
        };
    }

    /// The call's measurements now.
    #[must_use]
    pub fn stats(&self) -> CallStats {
        match &self.measured {
            Measured::Guest(stats) => stats.snapshot(),
            Measured::Instance(seat, head) => CallStats {
                exec: seat.taken().elapsed(),
                first_byte: *head,
                instance: Some(seat.instance()),
                reused: true,
                ..CallStats::default()
            },
            Measured::Attempts(attempts) => attempts.stats().unwrap_or_default(),
        }
    }

    /// How the room was found for the instance that was started for this call, if one was.
    pub(super) fn way(&self) -> Option<Arc<Way>> {
        match &self.measured {
            Measured::Instance(seat, _) => seat.way(),
            Measured::Guest(_) | Measured::Attempts(_) => None,
        }
    }

    /// Notes what becomes of a call that no instance has answered yet.
    pub(super) fn attempts(&mut self, note: impl FnOnce(&mut Attempts)) {
        if let Measured::Attempts(attempts) = &mut self.measured {
            note(attempts);
        }
    }

    /// Whether a function can have seen the call.
    fn is_seen(&self) -> bool {
        !matches!(&self.measured, Measured::Attempts(attempts) if attempts.stats().is_none())
    }

    /// The gateway answers in the function's place. The answer waits for the record.
    pub(super) fn failed(self, answer: Answer, ids: &Ids) -> Response<GatewayBody> {
        let pending = self.ended(Some(Outcome::of_code(answer.code)));
        answer.respond(&ids.request).map_body(|_, mut body| {
            body.wait_for(pending);
            body
        })
    }

    /// Octets of the answer's body are sent.
    pub const fn sending(&mut self, octets: usize) {
        self.egress += octets as u64;
    }

    /// The whole answer is about to leave although the call still runs: records what is known until now.
    pub fn still_runs(&self) -> Option<Pending> {
        let meter = self.meter.as_ref()?;
        let stats = self.stats();
        Some(Pending::new(meter.record(&stats, self.egress, None)))
    }

    /// The call has ended: well, as its status says, if `failed` is nothing. The rest of the answer waits for the record.
    pub fn ended(mut self, failed: Option<Outcome>) -> Option<Pending> {
        self.outcome = failed.unwrap_or(self.status_class);
        self.record()
    }

    fn record(&mut self) -> Option<Pending> {
        let meter = self.meter.take()?;
        if !self.is_seen() {
            return None;
        }
        let stats = self.stats();
        let written = meter.record(&stats, self.egress, Some(self.outcome));
        Some(Pending::new(written))
    }
}

impl Drop for CallEnd {
    fn drop(&mut self) {
        let stats = self.stats();
        if let Measured::Instance(seat, _) = &mut self.measured
            && matches!(self.outcome, Outcome::Ok | Outcome::FunctionError)
        {
            seat.finished();
        }
        if stats.instance.is_some() {
            self.metrics.ran(stats.instantiate, stats.exec);
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
