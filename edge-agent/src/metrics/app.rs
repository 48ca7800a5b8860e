//! The metrics of one app: a few atomic additions for each call.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fdn_core::figures::Tally;
use fdn_core::phases::PhaseTimes;
use fdn_core::rollout::VersionObserved;
use fdn_core::{ErrorCode, Millis, VersionNumber};
use fdn_scheduling::residual::{self, Observed, Typical};
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec};

use super::VersionCounts;
use super::tally::TallyCounts;
use crate::invocations::share::AppPlaces;

/// The outcome of a request, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The function answered with a status below 500.
    Ok,
    /// The function answered with a status of 500 or more.
    FunctionError,
    /// The function was ended: trap, limit or no answer.
    FunctionEnded,
    /// The client's fault: body too large, unknown host, disconnected.
    Client,
    /// The node is overloaded: no slot or no room.
    Overloaded,
    /// The app is not ready.
    NotReady,
    /// The agent's own fault.
    Internal,
}

impl Outcome {
    pub(super) const ALL: [(Self, &'static str); 7] = [
        (Self::Ok, "ok"),
        (Self::FunctionError, "function_error"),
        (Self::FunctionEnded, "function_ended"),
        (Self::Client, "client"),
        (Self::Overloaded, "overloaded"),
        (Self::NotReady, "not_ready"),
        (Self::Internal, "internal"),
    ];

    /// The value of the label in the metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// The outcome for an answer of the gateway's own with this code.
    #[must_use]
    pub fn of_code(code: ErrorCode) -> Self {
        use fdn_core::Fault;
        match (code, code.fault()) {
            (ErrorCode::Overloaded, _) => Self::Overloaded,
            (ErrorCode::NotReady, _) => Self::NotReady,
            (_, Fault::Function) => Self::FunctionEnded,
            (_, Fault::Caller) => Self::Client,
            (_, Fault::Dependency | Fault::Internal) => Self::Internal,
        }
    }
}

/// The most versions of an app that are counted; the oldest is dropped for a new one.
const VERSIONS_MAX: usize = 16;

/// The weight of the newest call in the moving mean of execution times.
const MEAN_WEIGHT: f64 = 0.1;
/// The mean time of calls is over about this many: enough that one call in a hundred shows, and few enough that the mean soon follows a function
/// that changes little. One that changes much is noticed by its typical time.
const MEAN_CALLS: u64 = 300;
/// When the typical time has changed, the mean is at most this many times as much: how much more outliers took before says little of what they take
/// now.
const RATIO_KEPT: f64 = 4.0;

/// Counters and handles of one app, kept over its versions.
#[derive(Debug)]
pub struct AppMetrics {
    requests: [IntCounter; Outcome::ALL.len()],
    duration: Histogram,
    start: Histogram,
    invocations: AtomicU64,
    errors: AtomicU64,
    busy: AtomicU32,
    waiting: AtomicU32,
    /// The moving mean of execution times, in ms, as the bits of an `f64`; 0 until something was measured. Concurrent updates may lose a sample,
    /// which does not matter for a mean and saves a lock for each call.
    mean: AtomicU64,
    /// The moving mean of the time until a call had its instance, alike.
    start_mean: AtomicU64,
    /// The typical time until a call is admitted, until it has an instance, and inside the function: robust means, stored like those above.
    phases: [AtomicU64; 3],
    /// The calls in a row that were far from each of `phases`, as in [`residual::Typical`].
    phase_runs: [AtomicI64; 3],
    /// When the last of the calls that were counted one after the other ended, in microseconds after `since`.
    phases_next_at: AtomicU64,
    /// The number of calls in `phases`.
    phase_samples: AtomicU64,
    /// When `phases` were last reset, in microseconds after `since`: calls that began earlier are not included.
    phases_reset_at: AtomicU64,
    since: Instant,
    /// The mean time of calls since then, start and execution together, with outliers in full; stored like the others.
    served: AtomicU64,
    /// The number of calls in `served`; few again when the typical time has changed.
    served_samples: AtomicU64,
    /// The ratio of `served` to the typical time while no call in a row was an outlier, so before the typical time began to change; stored like the
    /// others.
    steady_ratio: AtomicU64,
    /// The counters of each version. Locked when a version is made ready and for a report, never for a call.
    versions: Mutex<BTreeMap<VersionNumber, Arc<VersionCounts>>>,
    /// What callers experienced.
    tally: TallyCounts,
    /// The app's places, shared by all stages of a workflow.
    places: Arc<AppPlaces>,
}

impl AppMetrics {
    pub(super) fn new(
        (requests, duration, start): (&IntCounterVec, &HistogramVec, &HistogramVec),
        app: &str,
        places: Arc<AppPlaces>,
    ) -> Self {
        Self {
            requests: Outcome::ALL.map(|(_, outcome)| requests.with_label_values(&[app, outcome])),
            duration: duration.with_label_values(&[app]),
            start: start.with_label_values(&[app]),
            invocations: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            busy: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            mean: AtomicU64::new(0),
            start_mean: AtomicU64::new(0),
            phases: Default::default(),
            phase_runs: Default::default(),
            phases_next_at: AtomicU64::new(0),
            phase_samples: AtomicU64::new(0),
            phases_reset_at: AtomicU64::new(0),
            since: Instant::now(),
            served: AtomicU64::new(0),
            served_samples: AtomicU64::new(0),
            steady_ratio: AtomicU64::new(0),
            versions: Mutex::default(),
            tally: TallyCounts::default(),
            places,
        }
    }

    /// The app's share of the node's places.
    #[must_use]
    pub fn places(&self) -> &AppPlaces {
        &self.places
    }

    /// The counters of a version; created if necessary.
    #[must_use]
    pub fn version(&self, version: VersionNumber) -> Arc<VersionCounts> {
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = Arc::clone(versions.entry(version).or_default());
        if versions.len() > VERSIONS_MAX {
            // An app may go back to a version that is older than all others.
            let oldest = versions.keys().find(|other| **other != version).copied();
            if let Some(oldest) = oldest {
                versions.remove(&oldest);
            }
        }
        counts
    }

    /// The counters of each version since the agent started.
    #[must_use]
    pub fn versions(&self) -> Vec<VersionObserved> {
        let versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        let each = versions
            .iter()
            .map(|(version, counts)| counts.observed(*version));
        each.collect()
    }

    /// Counts an ended request.
    pub fn ended(&self, outcome: Outcome, took: Duration) {
        self.requests[outcome as usize].inc();
        self.duration.observe(took.as_secs_f64());
        self.tally.ended(outcome, took);
        if matches!(outcome, Outcome::FunctionError | Outcome::FunctionEnded) {
            self.errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records that a call was admitted after `queue`, got its instance after `instantiate`, and ran for `exec` inside the function.
    pub fn ran(&self, queue: Duration, instantiate: Duration, exec: Duration) {
        self.invocations.fetch_add(1, Ordering::Relaxed);
        self.count_phases(self.since.elapsed(), [queue, instantiate, exec]);
        self.start.observe(instantiate.as_secs_f64());
        follow(&self.mean, exec);
        follow(&self.start_mean, instantiate);
    }

    /// Counts the times of a call that ended at `now`, a time since the start of counting.
    fn count_phases(&self, now: Duration, times: [Duration; 3]) {
        let [_, instantiate, exec] = times;
        let began = micros(now.saturating_sub(instantiate + exec));
        if began < self.phases_reset_at.load(Ordering::Relaxed) {
            return;
        }
        let is_next = began >= self.phases_next_at.load(Ordering::Relaxed);
        if is_next {
            self.phases_next_at.store(micros(now), Ordering::Relaxed);
        }
        let before = self.phase_samples.fetch_add(1, Ordering::Relaxed);
        let phases = self.phases.iter().zip(&self.phase_runs).zip(times);
        let mut executed = Typical::default();
        for ((mean, run), took) in phases {
            let known = Typical {
                mean: f64::from_bits(mean.load(Ordering::Relaxed)),
                run: run.load(Ordering::Relaxed),
            };
            let took = took.as_secs_f64() * 1e3;
            let next = residual::follow(known, Observed { took, is_next }, before);
            mean.store(next.mean.to_bits(), Ordering::Relaxed);
            run.store(next.run, Ordering::Relaxed);
            // Execution is the last phase.
            executed = next;
        }
        let took = (instantiate + exec).as_secs_f64() * 1e3;
        let is_change = residual::is_change(executed.run, Observed { took, is_next });
        self.count_served(took, executed, is_change);
    }

    /// Counts a call for the mean: `executed` is the typical time of executions after it, and `is_change` whether that is another one from now on.
    fn count_served(&self, took: f64, executed: Typical, is_change: bool) {
        let start = f64::from_bits(self.phases[1].load(Ordering::Relaxed));
        let typical = start + executed.mean;
        if is_change {
            // The calls of before would keep the mean where it was for hundreds of calls.
            let ratio = f64::from_bits(self.steady_ratio.load(Ordering::Relaxed));
            let served = typical * ratio.clamp(1.0, RATIO_KEPT);
            self.served.store(served.to_bits(), Ordering::Relaxed);
            self.served_samples.store(residual::FEW, Ordering::Relaxed);
            return;
        }
        let before = self.served_samples.fetch_add(1, Ordering::Relaxed);
        let served = f64::from_bits(self.served.load(Ordering::Relaxed));
        let served = running_mean(served, before, took);
        self.served.store(served.to_bits(), Ordering::Relaxed);
        let ratio = served / typical;
        if executed.run == 0 && ratio.is_finite() {
            self.steady_ratio.store(ratio.to_bits(), Ordering::Relaxed);
        }
    }

    /// Counts a call that waited until its code was loaded.
    pub fn cold(&self) {
        self.tally.cold();
    }

    /// What callers experienced since the agent started.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally.read()
    }

    /// Counts a call as running until the guard is dropped.
    #[must_use]
    pub fn running(self: &Arc<Self>) -> CountGuard {
        self.busy.fetch_add(1, Ordering::Relaxed);
        CountGuard {
            app: Arc::clone(self),
            counter: |app| &app.busy,
        }
    }

    /// Counts a call as waiting until the guard is dropped.
    #[must_use]
    pub fn waiting(self: &Arc<Self>) -> CountGuard {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        CountGuard {
            app: Arc::clone(self),
            counter: |app| &app.waiting,
        }
    }

    /// The number of calls since the agent started.
    #[must_use]
    pub fn invocations(&self) -> u64 {
        self.invocations.load(Ordering::Relaxed)
    }

    /// The number of calls that ended in a 5xx caused by the function.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// The number of calls that run now.
    #[must_use]
    pub fn busy_now(&self) -> u32 {
        self.busy.load(Ordering::Relaxed)
    }

    /// The number of calls that wait now.
    #[must_use]
    pub fn waiting_now(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// The moving mean of the time inside the function; `None` until something was measured.
    #[must_use]
    pub fn execution_mean(&self) -> Option<Millis> {
        read(&self.mean)
    }

    /// The typical time of calls in each phase; `None` if none has run.
    #[must_use]
    pub fn phases(&self) -> Option<PhaseTimes> {
        let [queue, start, execution] = [0, 1, 2].map(|at: usize| {
            let known = f64::from_bits(self.phases[at].load(Ordering::Relaxed));
            Millis::new(known)
        });
        // The typical time can exceed the mean only briefly, since it follows faster when calls become slower.
        let typical = (start + execution).get();
        let ratio = f64::from_bits(self.served.load(Ordering::Relaxed)) / typical;
        (self.phase_samples.load(Ordering::Relaxed) > 0).then_some(PhaseTimes {
            queue,
            start,
            execution,
            mean_ratio: Some(if ratio.is_finite() {
                ratio.max(1.0)
            } else {
                1.0
            }),
        })
    }

    /// Resets the typical times, because calls are served in another form from now on. Calls that began in the previous form are not included
    /// when they end. Counts are kept.
    pub fn reset_phases(&self) {
        let now = micros(self.since.elapsed());
        self.phases_reset_at.store(now, Ordering::Relaxed);
        self.phase_samples.store(0, Ordering::Relaxed);
        for (mean, run) in self.phases.iter().zip(&self.phase_runs) {
            mean.store(0, Ordering::Relaxed);
            run.store(0, Ordering::Relaxed);
        }
        self.served.store(0, Ordering::Relaxed);
        self.served_samples.store(0, Ordering::Relaxed);
        self.steady_ratio.store(0, Ordering::Relaxed);
    }

    /// The moving mean of the time until a call had its instance; `None` until something was measured.
    #[must_use]
    pub fn start_mean(&self) -> Option<Millis> {
        read(&self.start_mean)
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

fn read(mean: &AtomicU64) -> Option<Millis> {
    let mean = f64::from_bits(mean.load(Ordering::Relaxed));
    (mean > 0.0).then(|| Millis::new(mean))
}

/// Adds a sample to the mean of `before` samples; of many, the mean is over about the last [`MEAN_CALLS`].
fn running_mean(known: f64, before: u64, sample: f64) -> f64 {
    let weight = 1.0 / (before.min(MEAN_CALLS - 1) + 1) as f64;
    known + weight * (sample - known)
}

fn follow(mean: &AtomicU64, took: Duration) {
    let sample = took.as_secs_f64() * 1e3;
    let old = f64::from_bits(mean.load(Ordering::Relaxed));
    let next = if old > 0.0 {
        old + MEAN_WEIGHT * (sample - old)
    } else {
        sample
    };
    mean.store(next.to_bits(), Ordering::Relaxed);
}

/// Counts one call as running or waiting while it lives.
#[derive(Debug)]
pub struct CountGuard {
    app: Arc<AppMetrics>,
    counter: fn(&AppMetrics) -> &AtomicU32,
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        (self.counter)(&self.app).fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn a_version_that_comes_back_is_counted_although_it_is_the_oldest() {
        let metrics = Metrics::new(&"n-1".parse().expect("node")).expect("metrics");
        let app = metrics.app(&"hello".parse().expect("app"));
        let version = |number: u32| VersionNumber::try_from(number).expect("a version");
        for number in 2..=17 {
            drop(app.version(version(number)));
        }
        app.version(VersionNumber::FIRST)
            .ended(Outcome::Ok, Duration::ZERO);
        let counted: Vec<u32> = app.versions().iter().map(|v| v.version.get()).collect();
        let expected: Vec<u32> = std::iter::once(1).chain(3..=17).collect();
        assert_eq!(counted, expected, "the oldest other one is dropped");
    }

    /// An app whose calls the test spaces itself.
    struct Spaced {
        app: Arc<AppMetrics>,
        now: Duration,
    }

    impl Spaced {
        fn new() -> Self {
            let metrics = Metrics::new(&"n-1".parse().expect("node")).expect("metrics");
            let app = metrics.app(&"hello".parse().expect("app"));
            let now = Duration::ZERO;
            Self { app, now }
        }

        /// Calls one after the other, of so many milliseconds each.
        fn one_by_one(&mut self, calls: impl IntoIterator<Item = u64>) {
            for exec in calls.into_iter().map(Duration::from_millis) {
                self.now += exec;
                let times = [Duration::ZERO, Duration::ZERO, exec];
                self.app.count_phases(self.now, times);
            }
        }

        /// The typical time, and the ratio of the mean to it.
        fn typical(&self) -> (f64, f64) {
            let phases = self.app.phases().expect("calls");
            let ratio = phases.mean_ratio.expect("known");
            (phases.execution.get(), ratio)
        }
    }

    #[test]
    fn the_mean_follows_a_function_that_becomes_faster_or_slower() {
        let mut spaced = Spaced::new();
        spaced.one_by_one([100; 300]);
        spaced.one_by_one([10; 30]);
        let (typical, ratio) = spaced.typical();
        assert!(typical < 12.0 && ratio < 1.5, "{typical} {ratio}");
        let mut spaced = Spaced::new();
        spaced.one_by_one([10; 300]);
        spaced.one_by_one([100; 30]);
        let (typical, ratio) = spaced.typical();
        let served = f64::from_bits(spaced.app.served.load(Ordering::Relaxed));
        assert!(
            typical > 85.0 && served > 70.0 && ratio < 1.5,
            "{typical} {served}"
        );
    }

    #[test]
    fn what_outliers_add_to_the_mean_stays_unless_the_typical_time_changes() {
        let mixed = |fast: u64, calls: u64| {
            (0..calls).map(move |call| if call % 20 == 19 { 20 * fast } else { fast })
        };
        let mut spaced = Spaced::new();
        spaced.one_by_one(mixed(10, 600));
        let (_, ratio) = spaced.typical();
        assert!((1.4..2.2).contains(&ratio), "{ratio}");
        let counted = spaced.app.served_samples.load(Ordering::Relaxed);
        assert_eq!(counted, 600, "it never began anew");
        // Ten times slower, and as mixed as before.
        spaced.one_by_one(mixed(100, 60));
        let (typical, ratio) = spaced.typical();
        assert!(
            typical > 85.0 && (1.2..3.0).contains(&ratio),
            "{typical} {ratio}"
        );
    }

    #[test]
    fn calls_side_by_side_never_show_a_change() {
        let mut spaced = Spaced::new();
        spaced.one_by_one([100; 300]);
        spaced.now += Duration::from_millis(2_000);
        let times = [0, 0, 2_000].map(Duration::from_millis);
        for _ in 0..30 {
            spaced.app.count_phases(spaced.now, times);
        }
        let counted = spaced.app.served_samples.load(Ordering::Relaxed);
        assert_eq!(counted, 330, "the machine paused, and all of them with it");
    }
}
