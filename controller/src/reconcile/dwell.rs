//! Minimum dwell time: clients that were moved for a gain stay for a while, because each move costs cold starts and new DNS answers.
//!
//! A move is noted for each client prefix, not for the group: a group is named after its distances from the clusters, so clients whose distance is
//! measured once they have been moved are another group at the next pass.
//!
//! The times are kept in memory only: a controller that takes over may move anybody at once. There is at most one for each prefix that moved within
//! the last `span`, which the bounds on moves and on bindings keep few.

use std::collections::BTreeMap;

use fdn_core::{AppName, ClientPrefix, ClusterId, DurationMs, Timestamp};

/// Who is moved: it keeps its name over passes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mover {
    /// The clients of a prefix.
    Prefix(ClientPrefix),
    /// Clients of whom nothing is known, by the name of their group.
    Group(String),
}

impl Mover {
    /// Those that move together as a group with these members.
    pub fn of<'a>(
        group: &str,
        members: &'a [ClientPrefix],
    ) -> impl Iterator<Item = Self> + use<'a> {
        let unknown = members.is_empty().then(|| Self::Group(group.to_owned()));
        let members = members.iter().copied().map(Self::Prefix);
        members.chain(unknown)
    }
}

/// Those of one app's clients that were moved recently.
#[derive(Debug, Default)]
pub struct RecentMoves {
    /// The cluster that each was last moved to, and when.
    moved: BTreeMap<Mover, (ClusterId, Timestamp)>,
}

impl RecentMoves {
    /// Whether any member of a group was moved to its present cluster for a gain so recently that the group must dwell.
    #[must_use]
    pub fn dwells(&self, group: &str, members: &[ClientPrefix], cluster: &ClusterId) -> bool {
        let to = |mover| self.moved.get(&mover).map(|(to, _)| to);
        Mover::of(group, members).any(|mover| to(mover) == Some(cluster))
    }
}

/// The clients that were moved for a gain, by app.
#[derive(Debug, Default)]
pub struct Dwell {
    apps: BTreeMap<AppName, RecentMoves>,
}

impl Dwell {
    /// Removes those whose dwell time is over.
    pub fn prune(&mut self, now: Timestamp, span: DurationMs) {
        for recent in self.apps.values_mut() {
            let dwells = |at: &Timestamp| now.since(*at) < span.as_duration();
            recent.moved.retain(|_, (_, at)| dwells(at));
        }
        self.apps.retain(|_, recent| !recent.moved.is_empty());
    }

    /// The clients of an app that still dwell; `None` if there are none.
    #[must_use]
    pub fn of(&self, app: &AppName) -> Option<&RecentMoves> {
        self.apps.get(app)
    }

    /// Records that clients were moved to `cluster` for a gain.
    pub fn note(&mut self, app: &AppName, mover: Mover, cluster: ClusterId, now: Timestamp) {
        let recent = self.apps.entry(app.clone()).or_default();
        recent.moved.insert(mover, (cluster, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_dwell_for_a_span_after_a_move_and_no_others_do() {
        let (app, other) = ("a".parse().expect("app"), "b".parse().expect("app"));
        let [eu, us] = ["eu", "us"].map(|name| name.parse::<ClusterId>().expect("cluster"));
        let [one, two] = ["192.0.2.0/24", "198.51.100.0/24"].map(|p| p.parse().expect("prefix"));
        let mut dwell = Dwell::default();
        let note = |dwell: &mut Dwell, mover| dwell.note(&app, mover, eu.clone(), Timestamp(1_000));
        note(&mut dwell, Mover::Prefix(one));
        note(&mut dwell, Mover::Group("g".to_owned()));
        let span = DurationMs::from_secs(30);
        dwell.prune(Timestamp(30_999), span);
        let recent = dwell.of(&app).expect("some dwell");
        // Whatever the group is called now, and whoever else is in it.
        assert!(recent.dwells("other", &[two, one], &eu));
        assert!(!recent.dwells("g", &[two], &eu) && !recent.dwells("g", &[one], &us));
        assert!(recent.dwells("g", &[], &eu) && !recent.dwells("other", &[], &eu));
        assert!(dwell.of(&other).is_none());
        dwell.prune(Timestamp(31_000), span);
        assert!(dwell.of(&app).is_none());
        note(&mut dwell, Mover::Prefix(one));
        dwell.prune(Timestamp(1_000), DurationMs::from_secs(0));
        assert!(dwell.of(&app).is_none(), "switched off");
    }
}
