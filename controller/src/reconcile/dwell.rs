//! Clients that were moved for a gain stay for a while: each move costs cold starts and new answers of DNS, which the next gain would have to pay too.
//!
//! The times are kept in memory: a controller that takes over may move anybody at once. There are as many as moves in the last `span`, which the
//! bound on moves keeps few.

use std::collections::BTreeMap;

use fdn_core::{AppName, ClusterId, DurationMs, Timestamp};

/// Groups of one app that were moved lately: their name, the cluster of their entry, and when.
pub type Moved = BTreeMap<(String, ClusterId), Timestamp>;

/// Who was moved for a gain, and when.
#[derive(Debug, Default)]
pub struct Dwell {
    apps: BTreeMap<AppName, Moved>,
}

impl Dwell {
    /// Forgets whom `span` is over for.
    pub fn prune(&mut self, now: Timestamp, span: DurationMs) {
        for moved in self.apps.values_mut() {
            moved.retain(|_, at| now.since(*at) < span.as_duration());
        }
        self.apps.retain(|_, moved| !moved.is_empty());
    }

    /// The groups of an app that dwell.
    #[must_use]
    pub fn of(&self, app: &AppName) -> Option<&Moved> {
        self.apps.get(app)
    }

    /// A group was moved to `cluster` for a gain.
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
