//! Spans of calls for an OpenTelemetry collector (OTLP over HTTP, in JSON).
//!
//! Nothing is measured for spans only: a call that has ended hands over its record ([`Traced::submit`]), which is one push into a bounded
//! queue and never waits. A task on the agent's own runtime turns it into spans ([`spans`]) and sends them (`export`). Whether a trace is
//! exported is decided where it begins, by its id ([`Sample`]), and is passed on in the `traceparent`, so that all nodes of a call decide alike.

mod export;
pub mod otlp;
mod run;
pub mod spans;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc;

pub use export::Exporter;
pub use run::RunSpans;
pub use spans::{Attempt, LedRun, UnservedCall};

use self::spans::EndedWork;
use crate::gateway::trace::Trace;
use crate::metrics::TraceMetrics;

/// The number of hexadecimal digits at the end of a trace id that are certainly random (W3C Trace Context, level 2).
const RANDOM_DIGITS: usize = 14;

/// Which traces are exported: those whose random part is at least this value, so that a larger share includes every trace of a smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample(u64);

impl Sample {
    /// A share of all traces, from 0 to 1.
    #[must_use]
    pub fn of(share: f64) -> Self {
        let all = (1_u64 << (4 * RANDOM_DIGITS)) as f64;
        Self(((1.0 - share.clamp(0.0, 1.0)) * all) as u64)
    }

    /// Whether the trace with this id, 32 hexadecimal digits, is exported.
    #[must_use]
    pub fn takes(self, id: &[u8]) -> bool {
        let random = id.get(id.len().saturating_sub(RANDOM_DIGITS)..);
        let random = random.and_then(|digits| std::str::from_utf8(digits).ok());
        let random = random.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        random.is_some_and(|random| random >= self.0)
    }
}

/// A point in time on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Nanoseconds since 1970.
    wall: u64,
    at: Instant,
}

impl Moment {
    fn now() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            wall: nanos(wall.unwrap_or_default()),
            at: Instant::now(),
        }
    }

    /// The wall-clock time, in ns since 1970, of a past instant.
    fn wall(&self, at: Instant) -> u64 {
        self.before(self.at.saturating_duration_since(at))
    }

    /// The wall-clock time, in ns since 1970, of `span` before this moment.
    fn before(&self, span: Duration) -> u64 {
        self.wall.saturating_sub(nanos(span))
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// A call that has ended.
#[derive(Debug)]
pub struct EndedCall {
    trace: Trace,
    when: Moment,
    what: EndedWork,
}

/// The queue of ended calls. Clones share the queue.
#[derive(Clone, Debug)]
pub struct Traces {
    queue: mpsc::Sender<EndedCall>,
    sample: Sample,
    metrics: Arc<TraceMetrics>,
}

impl Traces {
    /// A queue of this capacity, and its receiver.
    #[must_use]
    pub fn new(
        queue: usize,
        sample: Sample,
        metrics: TraceMetrics,
    ) -> (Self, mpsc::Receiver<EndedCall>) {
        let (queue, calls) = mpsc::channel(queue.min(tokio::sync::Semaphore::MAX_PERMITS));
        let metrics = Arc::new(metrics);
        let traces = Self {
            queue,
            sample,
            metrics,
        };
        (traces, calls)
    }

    /// Marks a trace as sampled if it begins here and is to be exported.
    #[must_use]
    pub fn begin(&self, trace: Trace) -> Trace {
        if trace.continued || !self.sample.takes(&trace.id()) {
            return trace;
        }
        trace.sampled()
    }

    /// The handle that exports a call; `None` if its trace is not exported.
    #[must_use]
    pub fn of(&self, trace: &Trace) -> Option<Box<Traced>> {
        trace.is_sampled().then(|| {
            Box::new(Traced {
                traces: self.clone(),
                trace: trace.clone(),
            })
        })
    }
}

/// Exports a call once it has ended.
#[derive(Clone, Debug)]
pub struct Traced {
    traces: Traces,
    trace: Trace,
}

impl Traced {
    /// Hands the ended call to the exporter; if the queue is full, drops and counts it.
    pub fn submit(self, what: EndedWork) {
        let ended = EndedCall {
            trace: self.trace,
            when: Moment::now(),
            what,
        };
        let metrics = &self.traces.metrics;
        // Incremented first, so that the exporter cannot decrement before.
        metrics.waiting.inc();
        if self.traces.queue.try_send(ended).is_err() {
            metrics.waiting.dec();
            metrics.dropped.inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::NodeId;

    use super::*;
    use crate::metrics::Metrics;

    fn metrics() -> TraceMetrics {
        let node: NodeId = "n-1".parse().expect("node");
        Metrics::new(&node).expect("metrics").traces
    }

    #[test]
    fn the_trace_id_decides_and_a_larger_share_takes_what_a_smaller_one_takes() {
        let id = |n: u64| format!("{:032x}", u128::from(n).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let taken = |share| {
            let sample = Sample::of(share);
            let all: Vec<bool> = (1..=10_000)
                .map(|n| sample.takes(id(n).as_bytes()))
                .collect();
            all
        };
        let count = |all: &[bool]| all.iter().filter(|one| **one).count();
        assert_eq!((count(&taken(0.0)), count(&taken(1.0))), (0, 10_000));
        let (few, many) = (taken(0.1), taken(0.3));
        assert!((900..1100).contains(&count(&few)), "{}", count(&few));
        assert!((2800..3200).contains(&count(&many)), "{}", count(&many));
        assert!(few.iter().zip(&many).all(|(few, many)| !few || *many));
        assert!(!Sample::of(1.0).takes(b"no digits at all"));
    }

    #[test]
    fn a_callers_flag_wins_over_the_share() {
        let with = |share| Traces::new(1, Sample::of(share), metrics()).0;
        let (all, none) = (with(1.0), with(0.0));
        let of = |traces: &Traces, header: Option<&str>| {
            let trace = Trace::of(header.map(str::as_bytes), u128::MAX, 1);
            traces.of(&traces.begin(trace)).is_some()
        };
        let header =
            |flags| format!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-{flags}");
        assert!(of(&all, None) && !of(&none, None));
        for traces in [&all, &none] {
            assert!(of(traces, Some(&header("01"))));
            assert!(!of(traces, Some(&header("00"))));
        }
    }

    #[test]
    fn who_finds_the_queue_full_is_dropped_and_counted() {
        let (traces, mut calls) = Traces::new(2, Sample::of(1.0), metrics());
        let traced = traces.of(&traces.begin(Trace::of(None, u128::MAX, 1)));
        let traced = traced.expect("it is exported");
        for _ in 0..5 {
            traced.clone().submit(EndedWork::Unserved(Box::default()));
        }
        assert_eq!(
            (traces.metrics.waiting.get(), traces.metrics.dropped.get()),
            (2, 3)
        );
        assert!(calls.try_recv().is_ok() && calls.try_recv().is_ok() && calls.try_recv().is_err());
    }
}
