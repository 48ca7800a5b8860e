//! Why plans are as they are, and for how long that is said.
//!
//! A plan that stays as it is keeps the explanation with which it was made: to write all of them anew with every pass would be most of what is written.
//! One that was made because a cluster could not take the work any more would so go on saying that a cluster does not answer long after it answers
//! again. Such plans are remembered, and explained anew once what kept the work out is over and they stay all the same. Their revision stays.

use std::collections::BTreeMap;

use fdn_core::api::Candidate;
use fdn_core::{AppName, ClusterId};
use fdn_scheduling::compete::Verdict;
use fdn_scheduling::place::{Availability, Exclusion, Problem};
use fdn_scheduling::steer::Reason;
use serde::{Deserialize, Serialize};

use super::place::Placed;
use super::world::Steering;

/// Clusters that an explanation names, the best first: with many clusters and groups they would be most of the database.
const CANDIDATES: usize = 8;

/// A cluster that clients left because it could not take the work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failover {
    /// The cluster.
    pub from: ClusterId,
    /// What kept the work out, in words.
    pub why: String,
}

impl Failover {
    /// The one that a decision was made for, if it was.
    #[must_use]
    pub fn of(reason: &Reason) -> Option<Self> {
        match reason {
            Reason::Failed { from, why } => Some(Self {
                from: from.clone(),
                why: why.to_string(),
            }),
            _ => None,
        }
    }

    /// Whether the cluster did not answer and does not: then nothing need be computed.
    fn is_down(&self, problem: &Problem<'_>) -> bool {
        let found = problem.cluster_index(&self.from);
        let cluster = found.and_then(|found| problem.clusters().get(found.get()));
        let is_down = cluster.is_some_and(|cluster| cluster.availability == Availability::Down);
        is_down && self.why == Exclusion::Down.to_string()
    }

    /// Whether the same still keeps the work out, by the rows of all clusters. What keeps a cluster out beside that is another matter.
    fn lasts(&self, rows: &[Candidate]) -> bool {
        let mut rows = rows.iter().filter(|row| row.cluster == self.from);
        rows.next().is_none_or(|row| {
            let excluded = row.excluded.as_deref();
            // Rows say after it what nodes say of their failure.
            excluded.is_some_and(|why| why.starts_with(&self.why))
        })
    }
}

/// Why a plan is as it is, as it is kept with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanExplanation {
    /// Why.
    pub reason: String,
    /// Every cluster with its terms.
    pub candidates: Vec<Candidate>,
    /// The cluster that clients left for it, if they had to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover: Option<Failover>,
}

impl PlanExplanation {
    /// Of what was decided.
    pub(super) fn of(steering: Steering, verdict: Verdict) -> Self {
        Self {
            reason: match verdict {
                Verdict::Deferred => format!(
                    "kept for now, since enough clients were moved lately: {}",
                    steering.reason
                ),
                _ => steering.reason,
            },
            candidates: steering.candidates.into_iter().take(CANDIDATES).collect(),
            failover: steering.failover,
        }
    }

    /// Of a plan that stays as it is and was made for a failover: nothing as long as what led to it lasts, or its clients are only kept for now.
    pub(super) fn renewed(
        failover: &Failover,
        (verdict, problem): (Verdict, &Problem<'_>),
        steering: impl FnOnce() -> Option<Steering>,
    ) -> Option<Self> {
        let stays = matches!(verdict, Verdict::StillBest | Verdict::WithinMargin);
        if !stays || failover.is_down(problem) {
            return None;
        }
        let steering = steering()?;
        let lasts = failover.lasts(&steering.candidates);
        (!lasts).then(|| Self::of(steering, verdict))
    }
}

/// The plans of one app that were made for a failover, by group.
pub type OfApp = BTreeMap<String, Failover>;

/// The plans that were made for a failover and say so. As many as plans at most.
#[derive(Debug, Default)]
pub struct Failovers(BTreeMap<AppName, OfApp>);

impl Failovers {
    /// From the explanations that are kept with plans, as JSON, by app and group. One that cannot be read is passed over: whoever asks for it is told, and
    /// planning does not depend on it.
    #[must_use]
    pub fn from_rows(rows: impl IntoIterator<Item = (AppName, String, String)>) -> Self {
        let mut all = Self::default();
        for (app, group, text) in rows {
            let said: Option<PlanExplanation> = serde_json::from_str(&text).ok();
            if let Some(failover) = said.and_then(|said| said.failover) {
                all.0.entry(app).or_default().insert(group, failover);
            }
        }
        all
    }

    /// Those of an app.
    #[must_use]
    pub fn of(&self, app: &AppName) -> Option<&OfApp> {
        self.0.get(app)
    }

    /// What was planned for an app is written.
    pub fn note(&mut self, app: &AppName, placed: &Placed) {
        let mut of_app = self.0.remove(app).unwrap_or_default();
        of_app.retain(|group, _| placed.plans.contains_key(group));
        for (group, plan) in &placed.plans {
            match plan.explanation.as_ref().map(|said| &said.failover) {
                Some(Some(failover)) => _ = of_app.insert(group.clone(), failover.clone()),
                Some(None) => _ = of_app.remove(group),
                None => {}
            }
        }
        if !of_app.is_empty() {
            self.0.insert(app.clone(), of_app);
        }
    }

    /// Forgets the apps that are gone.
    pub fn retain(&mut self, is_there: impl Fn(&AppName) -> bool) {
        self.0.retain(|app, _| is_there(app));
    }
}

#[cfg(test)]
mod tests;
