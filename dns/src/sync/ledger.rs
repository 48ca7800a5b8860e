//! What the controller has told, merged so that the newest word about each thing counts.
//!
//! Messages may be lost, doubled and reordered, and snapshots may overtake them. The rules: a message or snapshot entry about an app,
//! or about the network, counts only if its revision is newer than the one held; an app that a snapshot lacks is gone if the
//! snapshot is at least as new as what is held of it; after a snapshot, a message about an app not held counts only if it is
//! newer than that snapshot. So removals need to be remembered only until the next snapshot.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::api::DnsSnapshot;
use fdn_core::message::{BindingsDesired, NetworkDesired};
use fdn_core::{AppName, Revision, Timestamp};
use serde::{Deserialize, Serialize};

/// The merged state. Also the form in which it is kept on disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// Everything up to this revision has been seen in a snapshot.
    floor: Revision,
    /// When the controller last confirmed the state.
    confirmed_at: Timestamp,
    network: Option<NetworkDesired>,
    /// Apps, and removals newer than the last snapshot.
    #[serde(with = "entries")]
    apps: BTreeMap<AppName, BindingsDesired>,
}

/// Apps are written as a list: each entry names its app already.
mod entries {
    use super::{AppName, BTreeMap, BindingsDesired};
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        apps: &BTreeMap<AppName, BindingsDesired>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(apps.values())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<AppName, BindingsDesired>, D::Error> {
        let list = Vec::<BindingsDesired>::deserialize(deserializer)?;
        Ok(list
            .into_iter()
            .map(|entry| (entry.app.clone(), entry))
            .collect())
    }
}

/// What a merge changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Apps that came, changed or went.
    pub apps: BTreeSet<AppName>,
    /// Whether the network changed.
    pub network: bool,
}

impl Changes {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.apps.is_empty() && !self.network
    }

    /// Adds those of another merge.
    pub fn extend(&mut self, other: Self) {
        self.apps.extend(other.apps);
        self.network |= other.network;
    }
}

impl Ledger {
    /// Merges what a message says about an app.
    pub fn bindings(&mut self, desired: BindingsDesired) -> Changes {
        let held = self
            .apps
            .get(&desired.app)
            .map_or(self.floor, |entry| entry.revision);
        if desired.revision <= held {
            return Changes::default();
        }
        let changes = Changes {
            apps: [desired.app.clone()].into(),
            network: false,
        };
        self.apps.insert(desired.app.clone(), desired);
        changes
    }

    /// Merges what a message says about the network.
    pub fn network(&mut self, desired: NetworkDesired) -> Changes {
        if self
            .network
            .as_ref()
            .is_some_and(|held| desired.revision <= held.revision)
        {
            return Changes::default();
        }
        self.network = Some(desired);
        Changes {
            apps: BTreeSet::new(),
            network: true,
        }
    }

    /// Merges a snapshot that was taken at `now` or shortly before. One older than the last ([`Ledger::is_behind`]) is ignored.
    pub fn snapshot(&mut self, snapshot: DnsSnapshot, now: Timestamp) -> Changes {
        if self.is_behind(snapshot.revision) {
            return Changes::default();
        }
        let mut changes = self.network(snapshot.network);
        let listed: BTreeSet<AppName> = snapshot
            .apps
            .iter()
            .map(|entry| entry.app.clone())
            .collect();
        for entry in snapshot.apps {
            if self
                .apps
                .get(&entry.app)
                .is_none_or(|held| entry.revision > held.revision)
            {
                changes.apps.insert(entry.app.clone());
                self.apps.insert(entry.app.clone(), entry);
            }
        }
        self.apps.retain(|app, held| {
            let gone = held.revision <= snapshot.revision
                && (!listed.contains(app) || held.state.is_none());
            if gone && held.state.is_some() {
                changes.apps.insert(app.clone());
            }
            !gone
        });
        self.floor = self.floor.max(snapshot.revision);
        self.confirmed_at = now;
        changes
    }

    /// Whether a snapshot of this revision is older than one seen before: the controller has lost state, or is another one.
    #[must_use]
    pub fn is_behind(&self, revision: Revision) -> bool {
        revision < self.floor
    }

    /// The network, once known.
    #[must_use]
    pub const fn current_network(&self) -> Option<&NetworkDesired> {
        self.network.as_ref()
    }

    /// What is known of an app.
    #[must_use]
    pub fn app(&self, app: &AppName) -> Option<&BindingsDesired> {
        self.apps.get(app)
    }

    /// The apps that exist, by name.
    pub fn apps(&self) -> impl Iterator<Item = &BindingsDesired> {
        self.apps.values().filter(|entry| entry.state.is_some())
    }

    /// The newest revision of anything held.
    #[must_use]
    pub fn revision(&self) -> Revision {
        let apps = self
            .apps
            .values()
            .map(|entry| entry.revision)
            .max()
            .unwrap_or_default();
        let network = self
            .network
            .as_ref()
            .map_or(Revision::NONE, |held| held.revision);
        self.floor.max(apps).max(network)
    }

    /// When the controller last confirmed the state.
    #[must_use]
    pub const fn confirmed_at(&self) -> Timestamp {
        self.confirmed_at
    }

    /// Whether enough is known to answer for apps.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.network.is_some()
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::message::AppBindings;
    use proptest::prelude::*;

    use super::*;

    fn network(revision: u64) -> NetworkDesired {
        NetworkDesired {
            revision: Revision(revision),
            clusters: vec![],
            locations: vec![],
            measured: vec![],
        }
    }

    fn entry(app: &str, revision: u64, exists: bool) -> BindingsDesired {
        let host = format!("{app}.fn.test").parse().expect("host");
        let state = exists.then_some(AppBindings {
            host,
            ttl_s: u32::try_from(revision).expect("small"),
            bindings: vec![],
        });
        BindingsDesired {
            app: app.parse().expect("app"),
            revision: Revision(revision),
            state,
        }
    }

    fn snapshot(revision: u64, apps: Vec<BindingsDesired>) -> DnsSnapshot {
        DnsSnapshot {
            revision: Revision(revision),
            network: network(1),
            apps,
        }
    }

    fn held(ledger: &Ledger) -> Vec<(String, u64)> {
        ledger
            .apps()
            .map(|e| (e.app.to_string(), e.revision.get()))
            .collect()
    }

    #[test]
    fn older_and_doubled_messages_change_nothing() {
        let mut ledger = Ledger::default();
        assert!(!ledger.bindings(entry("a", 5, true)).is_empty());
        assert!(ledger.bindings(entry("a", 5, true)).is_empty());
        assert!(ledger.bindings(entry("a", 4, false)).is_empty());
        assert!(ledger.network(network(3)).network);
        assert!(ledger.network(network(3)).is_empty() && ledger.network(network(2)).is_empty());
        assert_eq!(held(&ledger), [("a".to_owned(), 5)]);
        assert_eq!(ledger.revision(), Revision(5));
    }

    #[test]
    fn a_removal_is_not_undone_by_an_older_message() {
        let mut ledger = Ledger::default();
        ledger.bindings(entry("a", 5, true));
        ledger.bindings(entry("a", 7, false));
        assert!(ledger.bindings(entry("a", 6, true)).is_empty());
        assert!(held(&ledger).is_empty());
        // The snapshot takes over the memory of the removal.
        ledger.snapshot(snapshot(8, vec![]), Timestamp(1));
        assert!(ledger.apps.is_empty());
        assert!(ledger.bindings(entry("a", 6, true)).is_empty());
        assert!(!ledger.bindings(entry("a", 9, true)).is_empty());
    }

    #[test]
    fn a_snapshot_removes_what_it_lacks_but_not_what_is_newer() {
        let mut ledger = Ledger::default();
        for e in [
            entry("gone", 3, true),
            entry("same", 4, true),
            entry("newer", 9, true),
        ] {
            ledger.bindings(e);
        }
        let changes = ledger.snapshot(
            snapshot(6, vec![entry("same", 4, true), entry("fresh", 5, true)]),
            Timestamp(1),
        );
        assert_eq!(
            changes
                .apps
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
            ["fresh", "gone"]
        );
        let expected = [
            ("fresh".to_owned(), 5),
            ("newer".to_owned(), 9),
            ("same".to_owned(), 4),
        ];
        assert_eq!(held(&ledger), expected);
        assert!(ledger.is_behind(Revision(5)) && !ledger.is_behind(Revision(6)));
    }

    #[test]
    fn it_survives_json() {
        let mut ledger = Ledger::default();
        ledger.snapshot(snapshot(6, vec![entry("a", 4, true)]), Timestamp(1));
        ledger.bindings(entry("b", 7, false));
        let text = serde_json::to_string(&ledger).expect("json");
        assert_eq!(
            serde_json::from_str::<Ledger>(&text).expect("own json"),
            ledger
        );
    }

    proptest! {
        /// However the messages of a history are reordered, doubled and mixed with its snapshots, the end is the same.
        #[test]
        fn the_end_does_not_depend_on_the_order(
            history in proptest::collection::vec((0usize..4, any::<bool>()), 1..20),
            order in proptest::collection::vec((0usize..40, any::<bool>()), 0..60),
        ) {
            let names = ["a", "b", "c", "d"];
            let messages: Vec<_> = history.iter().zip(1u64..).map(|((app, exists), r)| entry(names[*app], r, *exists)).collect();
            let at = |upto: usize| {
                let mut apps = BTreeMap::new();
                for message in &messages[..upto] {
                    apps.insert(message.app.clone(), message.clone());
                }
                let apps = apps.into_values().filter(|e| e.state.is_some()).collect();
                snapshot(upto as u64, apps)
            };
            let mut ledger = Ledger::default();
            for (pick, is_snapshot) in order {
                let index = pick % messages.len();
                if is_snapshot {
                    ledger.snapshot(at(index + 1), Timestamp(1));
                } else {
                    ledger.bindings(messages[index].clone());
                }
            }
            for message in &messages {
                ledger.bindings(message.clone());
            }
            let last = at(messages.len());
            let truth: Vec<_> = last.apps.iter().map(|e| (e.app.to_string(), e.revision.get())).collect();
            prop_assert_eq!(held(&ledger), truth);
        }
    }
}
