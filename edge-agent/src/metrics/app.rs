//! What is counted for one app: a few atomic additions for each call.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fdn_core::figures::Tally;
use fdn_core::phases::PhaseTimes;
use fdn_core::rollout::VersionObserved;
use fdn_core::{ErrorCode, Millis, VersionNumber};
use fdn_scheduling::residual;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec};

use super::VersionCounts;
use super::tally::TallyCounts;
use crate::invocations::share::AppPlaces;

/// How a request ended, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The function answered with a status below 500.
    Ok,
    /// The function answered with a status of 500 or more.
    FunctionError,
    /// The function was ended: trap, limit, no answer.
    FunctionEnded,
    /// The client's fault: body too large, unknown host, gone away.
    Client,
    /// No slot, no room.
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

    /// Its name in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// The class of an answer that the gateway made itself.
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

/// Versions of an app that are counted; the oldest is forgotten for one more.
const VERSIONS_MAX: usize = 16;

/// The weight of the newest call in the moving mean of execution times.
const MEAN_WEIGHT: f64 = 0.1;
/// What calls take on average is a mean of about so many: enough to see what one call in a hundred does, and few enough that a function that
/// changes is soon as long as it is now.
const MEAN_CALLS: u64 = 300;

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
    /// The moving mean in milliseconds as the bits of an `f64`; 0 until something was measured. Updates may lose one another's
    /// sample, which a mean survives and a lock for each call would not pay for.
    mean: AtomicU64,
    /// The same of the time until a call had a sandbox that was made for it.
    start_mean: AtomicU64,
    /// What calls typically take until they are let in, until they have a sandbox, and inside the function: robust means, kept as those above.
    phases: [AtomicU64; 3],
    /// How many calls that is of.
    told: AtomicU64,
    /// When that was last forgotten, in microseconds after `since`: calls that had begun before are not of it.
    forgot_at: AtomicU64,
    since: Instant,
    /// How long calls took from then on, start and execution together, outliers in full: a mean, kept like those.
    served: AtomicU64,
    /// Each version's own. Locked when a version is made ready and for a report, never for a call.
    versions: Mutex<BTreeMap<VersionNumber, Arc<VersionCounts>>>,
    /// What callers saw.
    tally: TallyCounts,
    /// Shared by all stages of a workflow.
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
            told: AtomicU64::new(0),
            forgot_at: AtomicU64::new(0),
            since: Instant::now(),
            served: AtomicU64::new(0),
            versions: Mutex::default(),
            tally: TallyCounts::default(),
            places,
        }
    }

    /// What the app holds of the node's places.
    #[must_use]
    pub fn places(&self) -> &AppPlaces {
        &self.places
    }

    /// The counters of a version.
    #[must_use]
    pub fn version(&self, version: VersionNumber) -> Arc<VersionCounts> {
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = Arc::clone(versions.entry(version).or_default());
        if versions.len() > VERSIONS_MAX {
            versions.pop_first();
        }
        counts
    }

    /// What was counted of each version since the agent started.
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

    /// Notes that a call was let in after `queue`, got its instance after `instantiate`, and ran for `exec` inside the function.
    pub fn ran(&self, queue: Duration, instantiate: Duration, exec: Duration) {
        self.invocations.fetch_add(1, Ordering::Relaxed);
        self.count_phases(queue, instantiate, exec);
        self.start.observe(instantiate.as_secs_f64());
        follow(&self.mean, exec);
        follow(&self.start_mean, instantiate);
    }

    fn count_phases(&self, queue: Duration, instantiate: Duration, exec: Duration) {
        let began = self.since.elapsed().saturating_sub(instantiate + exec);
        if micros(began) < self.forgot_at.load(Ordering::Relaxed) {
            return;
        }
        let before = self.told.fetch_add(1, Ordering::Relaxed);
        let served = f64::from_bits(self.served.load(Ordering::Relaxed));
        let served = running_mean(served, before, (instantiate + exec).as_secs_f64() * 1e3);
        self.served.store(served.to_bits(), Ordering::Relaxed);
        for (phase, took) in self.phases.iter().zip([queue, instantiate, exec]) {
            let known = f64::from_bits(phase.load(Ordering::Relaxed));
            let next = residual::follow(known, took.as_secs_f64() * 1e3, before);
            phase.store(next.to_bits(), Ordering::Relaxed);
        }
    }

    /// Notes that a call waited until its code was loaded.
    pub fn cold(&self) {
        self.tally.cold();
    }

    /// What callers saw since the agent started.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally.read()
    }

    /// A call runs until the guard is dropped.
    #[must_use]
    pub fn running(self: &Arc<Self>) -> CountGuard {
        self.busy.fetch_add(1, Ordering::Relaxed);
        CountGuard {
            app: Arc::clone(self),
            counter: |app| &app.busy,
        }
    }

    /// A call waits until the guard is dropped.
    #[must_use]
    pub fn waiting(self: &Arc<Self>) -> CountGuard {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        CountGuard {
            app: Arc::clone(self),
            counter: |app| &app.waiting,
        }
    }

    /// Calls since the agent started.
    #[must_use]
    pub fn invocations(&self) -> u64 {
        self.invocations.load(Ordering::Relaxed)
    }

    /// Calls that ended in a 5xx of the function's making.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Calls that run now.
    #[must_use]
    pub fn busy_now(&self) -> u32 {
        self.busy.load(Ordering::Relaxed)
    }

    /// Calls that wait now.
    #[must_use]
    pub fn waiting_now(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// The moving mean of the time inside the function, if something was measured.
    #[must_use]
    pub fn execution_mean(&self) -> Option<Millis> {
        read(&self.mean)
    }

    /// What calls typically take in each phase, if any has run.
    #[must_use]
    pub fn phases(&self) -> Option<PhaseTimes> {
        let [queue, start, execution] = [0, 1, 2].map(|at: usize| {
            let known = f64::from_bits(self.phases[at].load(Ordering::Relaxed));
            Millis::new(known)
        });
        // What is typical is never above the mean for long: it is what follows faster when calls become slower.
        let typical = (start + execution).get();
        let ratio = f64::from_bits(self.served.load(Ordering::Relaxed)) / typical;
        (self.told.load(Ordering::Relaxed) > 0).then_some(PhaseTimes {
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

    /// Forgets what calls typically take, since from now on they are served in another form. Calls that have begun in the form before do not
    /// count for it when they end. Counts stay.
    pub fn forget_phases(&self) {
        let now = micros(self.since.elapsed());
        self.forgot_at.store(now, Ordering::Relaxed);
        self.told.store(0, Ordering::Relaxed);
        for phase in &self.phases {
            phase.store(0, Ordering::Relaxed);
        }
        self.served.store(0, Ordering::Relaxed);
    }

    /// The moving mean of the time until a call had its instance, if something was measured.
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

/// The mean of `before` samples and one more; of many, of about the last [`MEAN_CALLS`].
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
