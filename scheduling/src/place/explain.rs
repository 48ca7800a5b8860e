//! Why each task went where it went: every cluster with its terms, as data that the controller shows.

use std::fmt;

use fdn_core::{ClusterId, Millis};

use super::calendar::Calendar;
use super::engine::Engine;
use super::infeasible::Exclusion;
use super::model::ClusterIndex;
use super::problem::Problem;
use crate::dag::TaskIndex;

/// Differences below this would show as 0.00 ms.
const SHOWN_MIN: f64 = 0.005;

/// The terms of formulas (3) to (5) for one task on one cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// `d(u,p)`: one way between user and cluster.
    pub distance: Millis,
    /// `avail[p]`: until a slot is free.
    pub available: Millis,
    /// Until what the task needs is there: the request for an entry, else the parents' data.
    pub ready: Millis,
    /// `EST`: earliest start.
    pub start: Millis,
    /// `w(c,p)`, with the toll.
    pub work: Millis,
    /// What of that the others wait longer ([`super::Problem::with_tolls`]): it decides, and nobody who calls feels it.
    pub toll: Millis,
    /// `EFT`: earliest finish.
    pub finish: Millis,
    /// What the choice goes by: `EFT`, with the way back for exits under [`super::Options::exit_leg`]. Placers that look further
    /// than one task may prefer another cluster than the one with the least.
    pub key: Millis,
    /// `EFT`, with the way back for exits: what the user feels.
    pub total: Millis,
}

/// How a cluster fared.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It was chosen.
    Chosen {
        /// By how much it beat the next best; `None` without one. Below zero where the placer looked further than this task.
        lead: Option<Millis>,
    },
    /// It could not be chosen.
    Excluded(Exclusion),
    /// It would have been slower, or as fast and later in order, or another served the whole job better.
    Lost {
        /// Against which cluster.
        to: ClusterId,
        /// By how much in all; below zero where the placer looked further than this task.
        by: Millis,
        /// How much later it would have started.
        start: Millis,
        /// How much longer it would have worked.
        work: Millis,
        /// How much longer the others would have waited.
        toll: Millis,
        /// How much longer the answer would have taken back, where that counts.
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

/// What one cluster would have meant for one task.
#[derive(Clone, Debug, PartialEq)]
pub struct CandidateReport {
    /// The cluster.
    pub cluster: ClusterIndex,
    /// Its name.
    pub id: ClusterId,
    /// What its time is made of; of an excluded cluster as far as it can be said.
    pub terms: Terms,
    /// How it fared.
    pub verdict: Verdict,
}

impl CandidateReport {
    /// Why the cluster could not be chosen, if it could not.
    #[must_use]
    pub const fn excluded(&self) -> Option<Exclusion> {
        match self.verdict {
            Verdict::Excluded(why) => Some(why),
            Verdict::Chosen { .. } | Verdict::Lost { .. } => None,
        }
    }
}

/// Every cluster for one task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskReport {
    /// The task.
    pub task: TaskIndex,
    /// Its name.
    pub name: String,
    /// Its score: tasks are placed in falling order of it.
    pub score: Millis,
    /// The clusters: the chosen one, then the others best first, then the excluded ones.
    pub candidates: Vec<CandidateReport>,
}

/// Every cluster for every task.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct Report {
    /// The tasks in the order in which they were placed.
    pub tasks: Vec<TaskReport>,
}

impl Report {
    /// The entry: its cluster is where the user is sent. It is always placed first.
    #[must_use]
    pub fn entry(&self) -> Option<&TaskReport> {
        self.tasks.first()
    }

    /// What is said about one task.
    #[must_use]
    pub fn task(&self, task: TaskIndex) -> Option<&TaskReport> {
        self.tasks.iter().find(|report| report.task == task)
    }
}

impl TaskReport {
    /// Asks the engine about every cluster for its current task, before `chosen` is committed.
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

    /// What is said about one cluster.
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
