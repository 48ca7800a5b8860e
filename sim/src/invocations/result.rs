//! What came of a run.

use fdn_core::Millis;
use serde::Serialize;

use super::trace::Workload;
use crate::report::Summary;

/// What came of one invocation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Fate {
    /// From its arrival to its first start.
    pub(super) queued: Millis,
    /// Loading that it waited for.
    pub(super) loading: Millis,
    /// From its arrival to its end.
    pub(super) completion: Millis,
    pub(super) cold_starts: u32,
}

/// Figures of one function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FunctionFigures {
    /// Its name.
    pub function: String,
    /// Its invocations.
    pub invocations: usize,
    /// Those of them that loaded a container.
    pub cold: usize,
    /// From arrival to end, in ms.
    pub completion_ms: Summary,
    /// From arrival to the first start, mean, in ms.
    pub queueing_mean_ms: f64,
}

/// Figures of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// How many invocations.
    pub invocations: usize,
    /// Work over what the workers can do while invocations come.
    pub rho: f64,
    /// From arrival to end, in ms.
    pub completion_ms: Summary,
    /// From arrival to the first start, in ms.
    pub queueing_ms: Summary,
    /// Loading, mean over all invocations, in ms.
    pub loading_mean_ms: f64,
    /// The share of invocations that loaded a container.
    pub cold_share: f64,
    /// Containers loaded for an invocation.
    pub cold_starts: u64,
    /// Invocations, or parts of interrupted ones, that found a warm container.
    pub warm_starts: u64,
    /// Containers loaded ahead.
    pub prewarmed: u64,
    /// Idle containers released to make room.
    pub evicted: u64,
    /// Idle containers released for another reason.
    pub expired: u64,
    /// Invocations interrupted.
    pub interrupted: u64,
    /// Most invocations that waited at once.
    pub waiting_max: usize,
    /// When the last invocation ended, in ms.
    pub end_ms: f64,
    /// Figures by function.
    pub functions: Vec<FunctionFigures>,
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) cold_starts: u64,
    pub(super) warm_starts: u64,
    pub(super) prewarmed: u64,
    pub(super) evicted: u64,
    pub(super) expired: u64,
    pub(super) interrupted: u64,
    pub(super) waiting_max: usize,
}

impl Run {
    pub(super) fn new(
        workload: &Workload,
        rho: f64,
        fates: &[Fate],
        counts: &Counts,
        end: Millis,
    ) -> Self {
        let of = |part: fn(&Fate) -> f64| fates.iter().map(part).collect::<Vec<f64>>();
        let loading = of(|fate| fate.loading.get());
        let cold = fates.iter().filter(|fate| fate.cold_starts > 0).count();
        Self {
            invocations: fates.len(),
            rho,
            completion_ms: Summary::of(&mut of(|fate| fate.completion.get())),
            queueing_ms: Summary::of(&mut of(|fate| fate.queued.get())),
            loading_mean_ms: crate::report::mean(&loading),
            cold_share: cold as f64 / fates.len().max(1) as f64,
            cold_starts: counts.cold_starts,
            warm_starts: counts.warm_starts,
            prewarmed: counts.prewarmed,
            evicted: counts.evicted,
            expired: counts.expired,
            interrupted: counts.interrupted,
            waiting_max: counts.waiting_max,
            end_ms: end.get(),
            functions: by_function(workload, fates),
        }
    }

    /// Mean completion in seconds, the figure that orders are compared by.
    #[must_use]
    pub const fn mean_s(&self) -> f64 {
        self.completion_ms.mean / 1e3
    }

    /// The 99th percentile of the completion in seconds.
    #[must_use]
    pub const fn p99_s(&self) -> f64 {
        self.completion_ms.p99 / 1e3
    }
}

fn by_function(workload: &Workload, fates: &[Fate]) -> Vec<FunctionFigures> {
    let mut groups: Vec<Vec<Fate>> = vec![Vec::new(); workload.functions.len()];
    for (invocation, fate) in workload.invocations.iter().zip(fates) {
        groups[invocation.function].push(*fate);
    }
    let figures = |(function, fates): (&super::trace::Function, Vec<Fate>)| {
        let mut completion: Vec<f64> = fates.iter().map(|fate| fate.completion.get()).collect();
        let queued: Vec<f64> = fates.iter().map(|fate| fate.queued.get()).collect();
        FunctionFigures {
            function: function.name.clone(),
            invocations: fates.len(),
            cold: fates.iter().filter(|fate| fate.cold_starts > 0).count(),
            completion_ms: Summary::of(&mut completion),
            queueing_mean_ms: crate::report::mean(&queued),
        }
    };
    let invoked = workload
        .functions
        .iter()
        .zip(groups)
        .filter(|(_, fates)| !fates.is_empty());
    invoked.map(figures).collect()
}
