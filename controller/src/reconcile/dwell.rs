//! Minimum dwell time: clients that were moved for a gain stay for a while, because each move costs cold starts and new DNS answers.
//!
//! The times are kept in memory only: a controller that takes over may move anybody at once. There are at most as many as moves within
//! the last `span`, which the bound on moves keeps few.

use std::collections::BTreeMap;

use fdn_core::{AppName, ClusterId, DurationMs, Timestamp};

/// The groups of one app that were moved recently: name and entry cluster, with the time of the move.
pub type RecentMoves = BTreeMap<(String, ClusterId), Timestamp>;

/// The groups that were moved for a gain, by app.
#[derive(Debug, Default)]
pub struct Dwell {
    apps: BTreeMap<AppName, RecentMoves>,
}

impl Dwell {
    /// Removes the groups whose dwell time is over.
    pub fn prune(&mut self, now: Timestamp, span: DurationMs) {
        for moved in self.apps.values_mut() {
            moved.retain(|_, at| now.since(*at) < span.as_duration());
        }
        self.apps.retain(|_, moved| !moved.is_empty());
    }

    /// The groups of an app that still dwell; `None` if there are none.
    #[must_use]
    pub fn of(&self, app: &AppName) -> Option<&RecentMoves> {
        self.apps.get(app)
    }

    /// Records that a group was moved to `cluster` for a gain.
    pub fn note(&mut self, app: &AppName, group: String, cluster: ClusterId, now: Timestamp) {
        let moved = self.apps.entry(app.clone()).or_default();
        moved.insert((group, cluster), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_dwell_for_a_span_after_a_move_and_no_others_do() {
        let (app, other) = ("a".parse().expect("app"), "b".parse().expect("app"));
        let cluster: ClusterId = "eu".parse().expect("cluster");
        let mut dwell = Dwell::default();
        dwell.note(&app, "g".to_owned(), cluster.clone(), Timestamp(1_000));
        let span = DurationMs::from_secs(30);
        dwell.prune(Timestamp(30_999), span);
        let key = ("g".to_owned(), cluster);
        assert!(dwell.of(&app).is_some_and(|moved| moved.contains_key(&key)));
        assert!(dwell.of(&other).is_none());
        dwell.prune(Timestamp(31_000), span);
        assert!(dwell.of(&app).is_none());
        dwell.note(&app, "g".to_owned(), key.1, Timestamp(1_000));
        dwell.prune(Timestamp(1_000), DurationMs::from_secs(0));
        assert!(dwell.of(&app).is_none(), "switched off");
    }
}
