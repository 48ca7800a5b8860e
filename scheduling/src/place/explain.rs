//! Why each task went where it went: every cluster with the terms of its evaluation, as data for the API.

use std::fmt;

use fdn_core::{ClusterId, Millis};

use super::calendar::Calendar;
use super::engine::Engine;
use super::infeasible::Exclusion;
use super::model::ClusterIndex;
use super::problem::Problem;
use crate::dag::TaskIndex;

/// Differences below this, in ms, would show as 0.00 ms.
const SHOWN_MIN: f64 = 0.005;

/// The terms of formulas (3) to (5) for one task on one cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// `d(u,p)`: one-way latency between user and cluster.
    pub distance: Millis,
    /// `avail[p]`: when a slot is free; of a cluster as of [`crate::live::cluster`] the mean wait for one.
    pub available: Millis,
    /// When the task's input is there: the request for an entry, else the parents' data.
    pub ready: Millis,
    /// `EST`: earliest start.
    pub start: Millis,
    /// `w(c,p)`, the run time, with the toll.
    pub work: Millis,
    /// The share of `work` that is congestion toll ([`super::Problem::with_tolls`]): it influences the choice, but is not part of the
    /// caller's latency.
    pub toll: Millis,
    /// `EFT`: earliest finish.
    pub finish: Millis,
    /// The selection key: `EFT`, with the way back for exits under [`super::Options::exit_leg`]. Placers that look beyond
    /// one task may prefer a cluster whose key is not the least.
    pub key: Millis,
    /// `EFT`, with the way back for exits: what the user sees.
    pub total: Millis,
}

/// The outcome for one cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It was chosen.
    Chosen {
        /// By how much it beat the next best cluster; `None` without another candidate. Negative where the placer looked beyond this task.
        lead: Option<Millis>,
    },
    /// A hard constraint excludes it.
    Excluded(Exclusion),
    /// It would have been slower, or equally fast and later in the tie order, or the placer preferred another for the job as a whole.
    Lost {
        /// The chosen cluster.
        to: ClusterId,
        /// By how much it is slower in all; negative where the placer looked beyond this task.
        by: Millis,
        /// How much later the task would have started.
        start: Millis,
        /// How much longer it would have run.
        work: Millis,
        /// How much higher the congestion toll would have been.
        toll: Millis,
        /// How much longer the answer would have taken back, where the options count that.
        back: Millis,
    },
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chosen { lead: None } => f.write_str("chosen: no other can take it"),
            Self::Chosen { lead: Some(lead) } if lead.get() == 0.0 => {
                f.write_str("chosen: as fast as the next, first in order")
            }
            Self::Chosen { lead: Some(lead) } if lead.get() <= -SHOWN_MIN => {
                let behind = Millis::new(-lead.get());
                write!(
                    f,
                    "chosen, though another would be {behind} ahead for this task alone"
                )
            }
            Self::Chosen { lead: Some(lead) } if lead.get() < SHOWN_MIN => {
                f.write_str("chosen: less than 0.01 ms ahead of the next")
            }
            Self::Chosen { lead: Some(lead) } => write!(f, "chosen: {lead} ahead of the next"),
            Self::Excluded(why) => why.fmt(f),
            Self::Lost { to, by, .. } if by.get() == 0.0 => {
                write!(f, "as fast as {to}, later in order")
            }
            Self::Lost { to, by, .. } if by.get().abs() < SHOWN_MIN => {
                let word = if by.get() < 0.0 { "faster" } else { "slower" };
                write!(f, "less than 0.01 ms {word} than {to}")
            }
            Self::Lost {
                to,
                by,
                start,
                work,
                toll,
                back,
            } => {
                let size = Millis::new(by.get().abs());
                if by.get() < 0.0 {
                    write!(f, "{size} faster than {to} for this task alone:")?;
                } else {
                    write!(f, "{size} slower than {to}:")?;
                }
                let mut separator = "";
                for (what, less, more, amount) in [
                    ("starts", "earlier", "later", start),
                    ("works", "less", "more", work),
                    ("makes the others wait", "less", "more", toll),
                    ("answers over", "less", "more", back),
                ] {
                    if amount.get().abs() >= SHOWN_MIN {
                        let size = Millis::new(amount.get().abs());
                        let word = if amount.get() < 0.0 { less } else { more };
                        write!(f, "{separator} {what} {size} {word}")?;
                        separator = ",";
                    }
                }
                Ok(())
            }
        }
    }
}

/// The evaluation of one cluster for one task.
#[derive(Clone, Debug, PartialEq)]
pub struct CandidateReport {
    /// The cluster's position in the problem.
    pub cluster: ClusterIndex,
    /// The cluster's name.
    pub id: ClusterId,
    /// The terms of its evaluation; for an excluded cluster as far as they are defined.
    pub terms: Terms,
    /// The outcome.
    pub verdict: Verdict,
}

impl CandidateReport {
    /// Why the cluster is excluded, if it is.
    #[must_use]
    pub const fn excluded(&self) -> Option<Exclusion> {
        match self.verdict {
            Verdict::Excluded(why) => Some(why),
            Verdict::Chosen { .. } | Verdict::Lost { .. } => None,
        }
    }
}

/// All clusters for one task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskReport {
    /// The task's index in the DAG.
    pub task: TaskIndex,
    /// The task's name in the DAG.
    pub name: String,
    /// The task's priority (formula 6); tasks are placed in descending order of it.
    pub score: Millis,
    /// The candidates: the chosen one, then the others from best to worst, then the excluded ones.
    pub candidates: Vec<CandidateReport>,
}

/// All clusters for all tasks.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct Report {
    /// The tasks in the order in which they were placed.
    pub tasks: Vec<TaskReport>,
}

impl Report {
    /// The report on the entry, whose cluster is where the user is sent. The entry is always placed first; `None` for an empty report.
    #[must_use]
    pub fn entry(&self) -> Option<&TaskReport> {
        self.tasks.first()
    }

    /// The report on one task; `None` if the report does not cover it.
    #[must_use]
    pub fn task(&self, task: TaskIndex) -> Option<&TaskReport> {
        self.tasks.iter().find(|report| report.task == task)
    }
}

impl TaskReport {
    /// Evaluates all clusters for the engine's current task, before `chosen` is committed.
    pub(super) fn new<C: Calendar>(
        problem: &Problem<'_>,
        engine: &Engine<C>,
        task: TaskIndex,
        score: Millis,
        chosen: usize,
    ) -> Self {
        let mut all: Vec<(usize, Terms, Option<Exclusion>)> = (0..problem.clusters().len())
            .map(|p| {
                let (terms, excluded) = terms(problem, engine, task, p);
                (p, terms, excluded)
            })
            .collect();
        let best = all[chosen].1;
        all.sort_by_key(|(p, terms, excluded)| (excluded.is_some(), *p != chosen, terms.key, *p));
        let lead = all
            .get(1)
            .filter(|(_, _, excluded)| excluded.is_none())
            .map(|(_, next, _)| next.key - best.key);
        let id = |p: usize| problem.clusters()[p].id.clone();
        let candidates = all
            .into_iter()
            .map(|(p, terms, excluded)| CandidateReport {
                cluster: ClusterIndex::new(p),
                id: id(p),
                terms,
                verdict: match excluded {
                    Some(why) => Verdict::Excluded(why),
                    None if p == chosen => Verdict::Chosen { lead },
                    None => lost(&terms, &best, id(chosen)),
                },
            })
            .collect();
        Self {
            task,
            name: problem.dag().task(task).name.clone(),
            score,
            candidates,
        }
    }

    /// The cluster that was chosen.
    #[must_use]
    pub fn chosen(&self) -> &CandidateReport {
        &self.candidates[0]
    }

    /// The report on one cluster, by name; `None` if it is not part of the problem.
    #[must_use]
    pub fn candidate(&self, id: &ClusterId) -> Option<&CandidateReport> {
        self.candidates.iter().find(|c| c.id == *id)
    }
}

fn terms<C: Calendar>(
    problem: &Problem<'_>,
    engine: &Engine<C>,
    task: TaskIndex,
    cluster: usize,
) -> (Terms, Option<Exclusion>) {
    let candidate = engine.candidate(problem, cluster);
    let distance = problem.distance()[cluster];
    let finish = Millis::new(candidate.finish);
    let terms = Terms {
        distance,
        available: engine.available(cluster),
        ready: engine.ready(cluster),
        start: Millis::new(candidate.start),
        work: Millis::new(candidate.work),
        toll: problem.toll(task, cluster),
        finish,
        key: Millis::new(candidate.key),
        total: if problem.dag().is_exit(task) {
            finish + distance
        } else {
            finish
        },
    };
    (terms, candidate.excluded)
}

fn lost(terms: &Terms, best: &Terms, to: ClusterId) -> Verdict {
    Verdict::Lost {
        to,
        by: terms.key - best.key,
        start: terms.start - best.start,
        work: (terms.work - terms.toll) - (best.work - best.toll),
        toll: terms.toll - best.toll,
        back: (terms.key - terms.finish) - (best.key - best.finish),
    }
}
