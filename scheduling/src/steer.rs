//! Whether users stay on their cluster or are sent to another: hysteresis.
//!
//! A DNS answer is replaced only when a better cluster wins by more than a margin (10 % of the old one's time by default), or when the
//! old one can no longer take the work. Without the margin two clusters of nearly equal time would exchange users with every node report,
//! and each exchange costs cold starts and DNS churn.
//!
//! **No flapping.** With margin `m`, estimates that stay within a factor of `1 - m` of each other (for 10 %: that vary by less than 5 %
//! to either side of a common value) never cause a move; with constant estimates at most one move happens.

use std::collections::BTreeMap;
use std::fmt;

use fdn_core::latency::{LatencyEstimate, LatencySource};
use fdn_core::{ClusterId, Millis, api};

use crate::dag::TaskIndex;
use crate::place::{
    ClusterIndex, Detail, Exclusion, HeuOrche, Infeasible, Placer, Plan, Planned, Problem,
    Rejection, TaskReport,
};

/// The share of the old time that a better cluster must save before users are moved; 0.1 by default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margin(f64);

impl Margin {
    /// A margin from 0 (every gain counts) up to, not including, 1; `None` outside this range.
    #[must_use]
    pub fn new(share: f64) -> Option<Self> {
        (0.0..1.0).contains(&share).then_some(Self(share))
    }

    /// The margin as a share of the old time.
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

/// Where users are sent, and why.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Decision {
    /// The cluster to which users are sent from now on.
    pub cluster: ClusterId,
    /// Whether this differs from the previous answer; true for the first answer.
    pub changed: bool,
    /// The reason, with the times that decided.
    pub reason: Reason,
}

impl Decision {
    /// The candidates of the entry for the API, best first. Where another cluster than the best is kept, the rows of both say so.
    /// `view` has the client's latency estimates; a cluster without one gets twice its distance.
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

/// Why an answer is kept or changed. Times are those by which the choice is made.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// There was no previous answer.
    First,
    /// The previous cluster is still the best.
    StillBest {
        /// Its time.
        time: Millis,
    },
    /// Another cluster is better, but not by more than the margin.
    WithinMargin {
        /// The time of the previous cluster.
        old: Millis,
        /// The better cluster.
        better: ClusterId,
        /// The time of the better cluster.
        new: Millis,
        /// The margin in force.
        margin: Margin,
    },
    /// Another cluster is better by more than the margin.
    Better {
        /// The previous cluster.
        from: ClusterId,
        /// The time of the previous cluster.
        old: Millis,
        /// The time of the new cluster.
        new: Millis,
    },
    /// The previous cluster cannot take the work.
    Failed {
        /// The previous cluster.
        from: ClusterId,
        /// What excludes the work from it.
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

/// The share of `old` that `new` saves.
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

/// Whether the gain of `new` over `old` exceeds the margin, so that a move is justified.
#[must_use]
pub fn justifies(old: Millis, new: Millis, margin: Margin) -> bool {
    share(old, new) > margin.0
}

/// Keeps the present answer or moves to `best`. `current` is the cluster answered so far, with its time now or what excludes the work
/// from it; `None` if there was no answer. `best` is the best cluster now, with its time.
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
    let (moves, reason) = compare(from, old, best, margin);
    Decision {
        cluster: if moves { best.0 } else { from }.clone(),
        changed: moves && from != best.0,
        reason,
    }
}

/// Decides whether to move, and why.
fn compare(
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

/// The plan to follow, and the alternatives that were compared.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Steered {
    /// The plan to follow: the new one, or the previous assignment under present conditions.
    pub plan: Plan,
    /// The plan that Heu-Orche would make without a previous one, with its report.
    pub planned: Planned,
    /// Where users are sent (the entry's cluster) and why.
    pub decision: Decision,
}

/// Places a job that may have been placed before. `previous` has the cluster of each task as given to the DAG, by index; it is kept
/// unless the new plan's latency is smaller by more than the margin, or a task can no longer run where it was.
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
        Err(rejection) => (place_before(rejection.task), Err(rejection.exclusion)),
    };
    let (changed, reason) = compare(from, time, best, margin);
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

/// The latency of the previous assignment under present conditions.
fn evaluate(
    placer: &mut HeuOrche,
    problem: &Problem<'_>,
    previous: &[ClusterId],
) -> Result<Plan, Rejection> {
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
