//! Whether users stay where they were sent or are sent elsewhere: hysteresis.
//!
//! An answer given before is replaced only when a better cluster wins by more than a margin (10 % of the old one's time), or when
//! the old one can no longer take the work. Without the margin two clusters of nearly equal time would trade users with every
//! status message, and each trade costs cold starts and DNS churn.
//!
//! **No flapping.** With margin `m`, estimates that stay within a factor of `1 - m` of each other (for 10 %: that vary by less
//! than 5 % to either side of a common value) never cause a move; with estimates that do not change, at most one move happens.

use std::collections::BTreeMap;
use std::fmt;

use fdn_core::latency::{LatencyEstimate, LatencySource};
use fdn_core::{ClusterId, Millis, api};

use crate::dag::TaskIndex;
use crate::place::{
    ClusterIndex, Detail, Exclusion, HeuOrche, Infeasible, Misfit, Placer, Plan, Planned, Problem,
    TaskReport,
};

/// The share of the old time that a better cluster must save before users are moved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margin(f64);

impl Margin {
    /// A share from 0 (every gain counts) up to, not including, 1; `None` outside.
    #[must_use]
    pub fn new(share: f64) -> Option<Self> {
        (0.0..1.0).contains(&share).then_some(Self(share))
    }

    /// The share.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl Default for Margin {
    fn default() -> Self {
        Self(0.1)
    }
}

/// A decision and why.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Decision {
    /// Where users are sent from now on.
    pub cluster: ClusterId,
    /// Whether the answer differs from the one before, the first answer included.
    pub changed: bool,
    /// Why.
    pub reason: Reason,
}

impl Decision {
    /// The candidates of the entry as the API shows them, best first. Where another cluster than the best was kept, the two rows say so.
    /// `view` has the client's distances.
    #[must_use]
    pub fn rows(
        &self,
        entry: &TaskReport,
        view: &BTreeMap<ClusterId, LatencyEstimate>,
    ) -> Vec<api::Candidate> {
        let kept_other = entry.chosen().id != self.cluster;
        entry
            .candidates
            .iter()
            .map(|candidate| api::Candidate {
                cluster: candidate.id.clone(),
                latency: view.get(&candidate.id).copied().unwrap_or(LatencyEstimate {
                    rtt: candidate.terms.distance * 2.0,
                    source: LatencySource::Unknown,
                }),
                distance: candidate.terms.distance,
                available: candidate.terms.available,
                start: candidate.terms.start,
                work: candidate.terms.work - candidate.terms.toll,
                toll: candidate.terms.toll,
                finish: candidate.terms.finish - candidate.terms.toll,
                total: candidate.terms.total - candidate.terms.toll,
                excluded: candidate.excluded().map(|why| why.to_string()),
                verdict: if kept_other && candidate.id == self.cluster {
                    format!("kept: {}", self.reason)
                } else if kept_other && candidate.id == entry.chosen().id {
                    format!("best now, but {} is kept: {}", self.cluster, self.reason)
                } else {
                    candidate.verdict.to_string()
                },
            })
            .collect()
    }
}

/// Why an answer is kept or changed. The times are those the choice goes by.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// There was no answer before.
    First,
    /// The old one is still the best.
    StillBest {
        /// Its time.
        time: Millis,
    },
    /// Another one is better, but not by enough.
    WithinMargin {
        /// The old one's time.
        old: Millis,
        /// The better one.
        better: ClusterId,
        /// Its time.
        new: Millis,
        /// The margin.
        margin: Margin,
    },
    /// Another one is better by more than the margin.
    Better {
        /// The one before.
        from: ClusterId,
        /// Its time.
        old: Millis,
        /// The new one's time.
        new: Millis,
    },
    /// The old one cannot take the work.
    Failed {
        /// The one before.
        from: ClusterId,
        /// What keeps the work out.
        why: Exclusion,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => f.write_str("the best cluster; there was no answer before"),
            Self::StillBest { time } => write!(f, "still the best, with {time}"),
            Self::WithinMargin {
                old,
                better,
                new,
                margin,
            } => write!(
                f,
                "{better} would take {new} instead of {old}, {:.1} % less; more than {} % are needed to move",
                share(*old, *new) * 100.0,
                margin.0 * 100.0
            ),
            Self::Better { from, old, new } => write!(
                f,
                "takes {new} instead of {old} on {from}, {:.1} % less",
                share(*old, *new) * 100.0
            ),
            Self::Failed { from, why } => write!(f, "the cluster before, {from}, {why}"),
        }
    }
}

/// Which share of `old` is saved.
fn share(old: Millis, new: Millis) -> f64 {
    let (old, new) = (old.get(), new.get());
    if old <= new {
        0.0
    } else if old.is_finite() {
        (old - new) / old
    } else {
        1.0
    }
}

/// Whether taking `new` instead of `old` justifies a move.
#[must_use]
pub fn justifies(old: Millis, new: Millis, margin: Margin) -> bool {
    share(old, new) > margin.0
}

/// Keeps `current` or moves to `best`. `current` is the cluster answered so far with its time now, or with what keeps the work
/// out of it; `best` is the best cluster now.
pub fn steer(
    current: Option<(&ClusterId, Result<Millis, Exclusion>)>,
    best: (&ClusterId, Millis),
    margin: Margin,
) -> Decision {
    let Some((from, old)) = current else {
        return Decision {
            cluster: best.0.clone(),
            changed: true,
            reason: Reason::First,
        };
    };
    let (moves, reason) = weigh(from, old, best, margin);
    Decision {
        cluster: if moves { best.0 } else { from }.clone(),
        changed: moves && from != best.0,
        reason,
    }
}

/// Whether the gain justifies a move.
fn weigh(
    from: &ClusterId,
    old: Result<Millis, Exclusion>,
    (better, new): (&ClusterId, Millis),
    margin: Margin,
) -> (bool, Reason) {
    let from = from.clone();
    match old {
        Err(why) => (true, Reason::Failed { from, why }),
        Ok(old) if old <= new => (false, Reason::StillBest { time: old }),
        Ok(old) if justifies(old, new, margin) => (true, Reason::Better { from, old, new }),
        Ok(old) => (
            false,
            Reason::WithinMargin {
                old,
                better: better.clone(),
                new,
                margin,
            },
        ),
    }
}

/// A new plan or the old one, and everything that was weighed.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Steered {
    /// The plan to follow: the new one, or the old assignment under present conditions.
    pub plan: Plan,
    /// What Heu-Orche would do without a past, with its report.
    pub planned: Planned,
    /// Where users are sent (the cluster of the entry) and why.
    pub decision: Decision,
}

/// Places a job that may have been placed before. `previous` names the cluster of each given task, by index; it is kept unless
/// the new plan's latency is smaller by more than the margin or a task can no longer run where it was.
///
/// The decision's `changed` tells whether any task moves; its cluster is the entry's.
///
/// # Errors
/// The first task that no cluster can take, with what keeps it out of each.
pub fn replan(
    problem: &Problem<'_>,
    previous: Option<&[ClusterId]>,
    margin: Margin,
) -> Result<Steered, Infeasible> {
    let mut placer = HeuOrche::default();
    let planned = placer.place(problem, Detail::Full)?;
    let entry = |plan: &Plan| &problem.clusters()[plan.entry(problem.dag()).get()].id;
    let best = (entry(&planned.plan), planned.plan.latency());
    let Some(previous) = previous else {
        return Ok(Steered {
            plan: planned.plan.clone(),
            decision: steer(None, best, margin),
            planned,
        });
    };
    let old = evaluate(&mut placer, problem, previous);
    let place_before = |task: TaskIndex| previous.get(task.get()).unwrap_or(best.0);
    let (from, time) = match &old {
        Ok(old) => (entry(old), Ok(old.latency())),
        Err(misfit) => (place_before(misfit.task), Err(misfit.exclusion)),
    };
    let (changed, reason) = weigh(from, time, best, margin);
    let plan = match old {
        Ok(old) if !changed => old,
        Ok(_) | Err(_) => planned.plan.clone(),
    };
    Ok(Steered {
        decision: Decision {
            cluster: entry(&plan).clone(),
            changed,
            reason,
        },
        plan,
        planned,
    })
}

/// What the previous assignment is worth now.
fn evaluate(
    placer: &mut HeuOrche,
    problem: &Problem<'_>,
    previous: &[ClusterId],
) -> Result<Plan, Misfit> {
    let gone = ClusterIndex::new(usize::MAX);
    let assignment: Vec<ClusterIndex> = previous
        .iter()
        .map(|id| problem.cluster_index(id).unwrap_or(gone))
        .collect();
    placer.evaluate(problem, |task: TaskIndex| {
        // The virtual entry follows the tasks; it was never part of an answer.
        assignment.get(task.get()).copied()
    })
}
