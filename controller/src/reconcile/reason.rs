//! The explanations of plans, and how long they remain valid.
//!
//! An unchanged plan keeps the explanation with which it was made, since rewriting all explanations in every pass would be most of what
//! is written. A plan that was made because a cluster could not take the work would thus claim that the cluster does not respond long
//! after it does again. Such plans are remembered, and explained anew once the original obstacle is gone and they stay nevertheless.
//! Their revision is unchanged.

use std::collections::BTreeMap;

use fdn_core::api::Candidate;
use fdn_core::{AppName, ClusterId};
use fdn_scheduling::compete::Verdict;
use fdn_scheduling::place::{Availability, Exclusion, Problem};
use fdn_scheduling::steer::Reason;
use serde::{Deserialize, Serialize};

use super::place::AppPlacement;
use super::world::Steering;

/// How many clusters an explanation lists, the best first: with many clusters and groups they would otherwise be most of the database.
const CANDIDATES: usize = 8;

/// A cluster that clients left because it could not take the work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failover {
    /// The cluster.
    pub from: ClusterId,
    /// What excluded the work, in words.
    pub why: String,
}

impl Failover {
    /// The failover for which a decision was made; `None` if it had another reason.
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

    /// Whether the cluster was down and still is; then nothing need be computed.
    fn is_down(&self, problem: &Problem<'_>) -> bool {
        let found = problem.cluster_index(&self.from);
        let cluster = found.and_then(|found| problem.clusters().get(found.get()));
        let is_down = cluster.is_some_and(|cluster| cluster.availability == Availability::Down);
        is_down && self.why == Exclusion::Down.to_string()
    }

    /// Whether the original exclusion still applies, judged by the rows of all clusters. Other exclusions do not count.
    fn lasts(&self, rows: &[Candidate]) -> bool {
        let mut rows = rows.iter().filter(|row| row.cluster == self.from);
        rows.next().is_none_or(|row| {
            let excluded = row.excluded.as_deref();
            // Rows append what nodes report about their failure.
            excluded.is_some_and(|why| why.starts_with(&self.why))
        })
    }
}

/// The explanation of a plan, as stored with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanExplanation {
    /// The reason, in words.
    pub reason: String,
    /// The clusters with the terms of their evaluation.
    pub candidates: Vec<Candidate>,
    /// The failover for which the plan was made, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover: Option<Failover>,
}

impl PlanExplanation {
    /// The explanation of a decision.
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

    /// The new explanation of an unchanged plan that was made for a failover; `None` as long as its cause lasts, or its clients are
    /// kept only for the moment.
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
pub type AppFailovers = BTreeMap<String, Failover>;

/// All plans that were made for a failover and say so; at most as many as there are plans.
#[derive(Debug, Default)]
pub struct Failovers(BTreeMap<AppName, AppFailovers>);

impl Failovers {
    /// From the explanations stored with plans, as JSON, by app and group. An unreadable one is skipped: readers of the explanation
    /// get the error, and planning does not depend on it.
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

    /// The failover plans of an app; `None` if there are none.
    #[must_use]
    pub fn of(&self, app: &AppName) -> Option<&AppFailovers> {
        self.0.get(app)
    }

    /// Updates the failover plans after an app's new plans were written.
    pub fn note(&mut self, app: &AppName, placed: &AppPlacement) {
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

    /// Forgets apps that no longer exist.
    pub fn retain(&mut self, is_there: impl Fn(&AppName) -> bool) {
        self.0.retain(|app, _| is_there(app));
    }
}

#[cfg(test)]
mod tests;
