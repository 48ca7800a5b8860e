//! Drain before remove: a cluster that clients are leaving keeps the app loaded until their old DNS answers have expired.
//!
//! DNS answers remain in caches, and calls in progress end where they are; if the app were unloaded together with the new plan, both
//! would meet a cold start. The times are kept in memory only: a controller that takes over makes every cluster that is being left wait
//! once more.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::{AppName, ClusterId, DurationMs, Timestamp};

/// By app: the clusters that clients are leaving, and since when.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    since: BTreeMap<AppName, BTreeMap<ClusterId, Timestamp>>,
}

impl Leaving {
    /// The clusters that must have the app loaded: the `wanted` ones, and those of `present` that have been left for less than `span`.
    pub(super) fn primaries(
        &mut self,
        app: &AppName,
        present: &BTreeSet<ClusterId>,
        mut wanted: BTreeSet<ClusterId>,
        now: Timestamp,
        span: DurationMs,
    ) -> BTreeSet<ClusterId> {
        let left: Vec<ClusterId> = present.difference(&wanted).cloned().collect();
        if left.is_empty() {
            self.since.remove(app);
            return wanted;
        }
        let since = self.since.entry(app.clone()).or_default();
        since.retain(|cluster, _| left.contains(cluster));
        for cluster in left {
            let began = *since.entry(cluster.clone()).or_insert(now);
            if now.since(began) < span.as_duration() {
                wanted.insert(cluster);
            }
        }
        wanted
    }

    /// Forgets apps that no longer exist.
    pub(super) fn retain(&mut self, there: impl Fn(&AppName) -> bool) {
        self.since.retain(|app, _| there(app));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<ClusterId> {
        let name = |name: &&str| name.parse().expect("cluster");
        names.iter().map(name).collect()
    }

    #[test]
    fn what_is_left_stays_loaded_for_a_while() {
        let mut leaving = Leaving::default();
        let app: AppName = "hello".parse().expect("app");
        let span = DurationMs::from_secs(60);
        let mut present = set(&["a", "b"]);
        let mut at = |seconds: u64, wanted: &[&str]| {
            let now = Timestamp(seconds * 1000);
            present = leaving.primaries(&app, &present, set(wanted), now, span);
            present.clone()
        };
        assert_eq!(at(0, &["a", "b"]), set(&["a", "b"]));
        assert_eq!(at(10, &["b", "c"]), set(&["a", "b", "c"]), "a drains");
        assert_eq!(at(69, &["b", "c"]), set(&["a", "b", "c"]));
        assert_eq!(at(70, &["b", "c"]), set(&["b", "c"]), "and is gone");
        // One that is wanted again meanwhile begins anew.
        assert_eq!(at(80, &["b"]), set(&["b", "c"]));
        assert_eq!(at(100, &["b", "c"]), set(&["b", "c"]));
        assert_eq!(at(141, &["b"]), set(&["b", "c"]));
        assert_eq!(at(201, &["b"]), set(&["b"]));
        leaving.retain(|_| false);
        assert!(leaving.since.is_empty());
    }
}
