//! The desired state received from the controller, merged so that the newest information about each thing wins.
//!
//! Messages may be lost, duplicated and reordered, and snapshots may overtake them. The rules: a message or snapshot entry about an app,
//! or about the network, is applied only if its revision is newer than the held one; an app that is not in a snapshot is deleted if the
//! snapshot is at least as new as the held entry; after a snapshot, a message about an unknown app is applied only if it is newer than
//! the snapshot. So deletions need to be remembered only until the next snapshot. Text records of names follow the same rules.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fdn_core::feed::Frame;
use fdn_core::message::{
    BindingsChanged, BindingsDesired, Holders, NetworkDesired, TxtDesired, TxtRecords,
};
use fdn_core::{AppName, HostName, RecordName, Revision, Timestamp};
use serde::Deserialize;

use crate::policy::bindings::{Bindings, Change};
use crate::policy::records::NamedRecords;
use crate::policy::zone::texts_of;

/// The merged state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DesiredState {
    /// The state includes a snapshot of everything up to this revision.
    pub(super) floor: Revision,
    /// When the controller last confirmed the state.
    pub(super) confirmed_at: Timestamp,
    pub(super) network: Option<NetworkDesired>,
    /// Apps, and removals newer than the last snapshot.
    pub(super) apps: BTreeMap<AppName, Entry>,
    /// Names with text records, and removals newer than the last snapshot.
    pub(super) texts: BTreeMap<RecordName, TextEntry>,
    /// The newest revision seen.
    newest: Revision,
}

/// What is known of an app.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    /// The revision of the app's desired state.
    pub revision: Revision,
    /// The app's state; `None` if it was deleted.
    pub state: Option<AppState>,
}

/// An app that exists.
#[derive(Clone, Debug, PartialEq)]
pub struct AppState {
    /// The app's host name.
    pub host: HostName,
    /// The TTL of answers, in seconds.
    pub ttl_s: u32,
    /// The clusters that clients are sent to.
    pub holders: Holders,
    /// The bindings, without the pending changes.
    pub bindings: Arc<Bindings>,
    /// Later changes, in their order. Applying them takes time and is done for many at once, elsewhere.
    pub waiting: Arc<Vec<Change>>,
}

/// What is known of the text records of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextEntry {
    /// The revision of the records' desired state.
    pub revision: Revision,
    /// The records; `None` if they were deleted.
    pub state: Option<TxtRecords>,
}

/// The complete desired state at a revision.
#[derive(Debug)]
pub struct Snapshot {
    /// The snapshot is complete up to this revision.
    pub revision: Revision,
    /// The clusters and the latency map.
    pub network: Option<NetworkDesired>,
    /// The bindings of the apps that exist.
    pub apps: Vec<(AppName, Entry)>,
    /// The text records by name.
    pub texts: Vec<TxtDesired>,
}

impl Snapshot {
    /// The snapshot at a revision, from its frames. Frames that are not for DNS servers are ignored.
    #[must_use]
    pub fn of(revision: Revision, frames: Vec<Frame>) -> Self {
        let mut snapshot = Self {
            revision,
            network: None,
            apps: Vec::new(),
            texts: Vec::new(),
        };
        for frame in frames {
            match frame {
                Frame::Network(network) => snapshot.network = Some(network),
                Frame::Bindings(desired) => snapshot.apps.push(Entry::of(desired)),
                Frame::Txt(text) => snapshot.texts.push(text),
                _ => {}
            }
        }
        snapshot
    }
}

impl Entry {
    /// The entry of an app, with all its bindings as pending changes.
    fn of(desired: BindingsDesired) -> (AppName, Self) {
        let state = desired.state.map(|state| {
            let all = state.bindings.into_iter();
            AppState {
                host: state.host,
                ttl_s: state.ttl_s,
                holders: state.holders,
                bindings: Arc::default(),
                waiting: Arc::new(
                    all.map(|(prefix, cluster)| (prefix, Some(cluster)))
                        .collect(),
                ),
            }
        });
        let entry = Self {
            revision: desired.revision,
            state,
        };
        (desired.app, entry)
    }
}

/// An app in the file format of earlier builds.
#[derive(Debug, Deserialize)]
pub struct SnapshotApp {
    /// The app.
    pub app: AppName,
    /// The revision of the app's desired state.
    pub revision: Revision,
    /// The app's state; `None` if it was deleted.
    pub state: Option<SnapshotState>,
}

/// The state of such an app.
#[derive(Debug, Deserialize)]
pub struct SnapshotState {
    host: HostName,
    ttl_s: u32,
    bindings: Bindings,
    #[serde(default)]
    holders: Holders,
}

impl SnapshotApp {
    /// Converts it to a name and an entry.
    pub(super) fn entry(self) -> (AppName, Entry) {
        let state = self.state.map(|state| AppState {
            host: state.host,
            ttl_s: state.ttl_s,
            holders: state.holders,
            bindings: Arc::new(state.bindings),
            waiting: Arc::default(),
        });
        let entry = Entry {
            revision: self.revision,
            state,
        };
        (self.app, entry)
    }
}

/// The result of merging changes of an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged {
    /// They were merged.
    Taken,
    /// They are already known.
    Stale,
    /// They are based on a revision that is not held: a message is missing, and a snapshot is needed.
    Gap,
}

/// What a merge changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Apps that were added, changed or deleted.
    pub apps: BTreeSet<AppName>,
    /// Whether the network changed.
    pub network: bool,
    /// Whether text records changed.
    pub texts: bool,
}

impl Changes {
    /// The change of one app.
    #[must_use]
    pub fn of(app: AppName) -> Self {
        Self {
            apps: [app].into(),
            ..Self::default()
        }
    }

    /// The change of text records.
    #[must_use]
    pub fn of_texts() -> Self {
        Self {
            texts: true,
            ..Self::default()
        }
    }

    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.apps.is_empty() && !self.network && !self.texts
    }

    /// Adds the changes of another merge.
    pub fn extend(&mut self, other: Self) {
        self.apps.extend(other.apps);
        self.network |= other.network;
        self.texts |= other.texts;
    }
}

impl DesiredState {
    /// A state that was read from disk.
    #[must_use]
    pub(super) fn restore(
        floor: Revision,
        confirmed_at: Timestamp,
        network: Option<NetworkDesired>,
        apps: BTreeMap<AppName, Entry>,
        texts: BTreeMap<RecordName, TextEntry>,
    ) -> Self {
        let revisions = apps.values().map(|entry| entry.revision);
        let revisions = revisions.chain(network.iter().map(|network| network.revision));
        let revisions = revisions.chain(texts.values().map(|entry| entry.revision));
        Self {
            newest: revisions.fold(floor, Revision::max),
            floor,
            confirmed_at,
            network,
            apps,
            texts,
        }
    }

    /// Merges a message about an app.
    pub fn bindings(&mut self, desired: BindingsDesired) -> Changes {
        let held = self
            .apps
            .get(&desired.app)
            .map_or(self.floor, |entry| entry.revision);
        if desired.revision <= held {
            return Changes::default();
        }
        let changes = Changes::of(desired.app.clone());
        self.newest = self.newest.max(desired.revision);
        let (app, entry) = Entry::of(desired);
        self.apps.insert(app, entry);
        changes
    }

    /// Merges changes of an app, if they are based on the held revision.
    pub fn changed(&mut self, changed: BindingsChanged) -> Merged {
        let Some(entry) = self.apps.get_mut(&changed.app) else {
            return if changed.revision <= self.floor {
                Merged::Stale
            } else {
                Merged::Gap
            };
        };
        if changed.revision <= entry.revision {
            return Merged::Stale;
        }
        let base = entry.revision;
        match &mut entry.state {
            Some(state) if base == changed.base => {
                Arc::make_mut(&mut state.waiting).extend(changed.changes);
                if let Some(holders) = changed.holders {
                    state.holders = holders;
                }
                entry.revision = changed.revision;
                self.newest = self.newest.max(changed.revision);
                Merged::Taken
            }
            _ => Merged::Gap,
        }
    }

    /// Replaces an app's bindings and pending changes with the resulting bindings. Nothing may have been merged in between.
    pub fn set_bindings(&mut self, app: &AppName, bindings: Arc<Bindings>) {
        if let Some(state) = self
            .apps
            .get_mut(app)
            .and_then(|entry| entry.state.as_mut())
        {
            state.bindings = bindings;
            state.waiting = Arc::default();
        }
    }

    /// Forgets the held revision of an app, so that the next snapshot replaces it: its changes could not be applied.
    pub fn forget_revision(&mut self, app: &AppName) {
        if let Some(entry) = self.apps.get_mut(app) {
            entry.revision = Revision::NONE;
            if let Some(state) = &mut entry.state {
                state.waiting = Arc::default();
            }
        }
    }

    /// Merges a message about the network.
    pub fn network(&mut self, desired: NetworkDesired) -> Changes {
        if self
            .network
            .as_ref()
            .is_some_and(|held| desired.revision <= held.revision)
        {
            return Changes::default();
        }
        self.newest = self.newest.max(desired.revision);
        self.network = Some(desired);
        Changes {
            network: true,
            ..Changes::default()
        }
    }

    /// Merges a message about the text records of a name.
    pub fn text(&mut self, desired: TxtDesired) -> Changes {
        let held = self
            .texts
            .get(&desired.name)
            .map_or(self.floor, |entry| entry.revision);
        if desired.revision <= held {
            return Changes::default();
        }
        self.take_text(desired);
        Changes::of_texts()
    }

    fn take_text(&mut self, desired: TxtDesired) {
        self.newest = self.newest.max(desired.revision);
        let entry = TextEntry {
            revision: desired.revision,
            state: desired.state,
        };
        self.texts.insert(desired.name, entry);
    }

    /// Merges the text records of a snapshot at `revision`; returns whether they changed.
    fn texts_of_snapshot(&mut self, told: Vec<TxtDesired>, revision: Revision) -> bool {
        let listed: BTreeSet<RecordName> = told.iter().map(|entry| entry.name.clone()).collect();
        let mut changed = false;
        for entry in told {
            let held = self.texts.get(&entry.name);
            if held.is_none_or(|held| entry.revision > held.revision) {
                self.take_text(entry);
                changed = true;
            }
        }
        self.texts.retain(|name, held| {
            let gone =
                held.revision <= revision && (!listed.contains(name) || held.state.is_none());
            changed |= gone && held.state.is_some();
            !gone
        });
        changed
    }

    /// Merges a snapshot that was taken at `now` or shortly before. One older than the last ([`DesiredState::is_behind`]) is ignored.
    pub fn snapshot(&mut self, snapshot: Snapshot, now: Timestamp) -> Changes {
        if self.is_behind(snapshot.revision) {
            return Changes::default();
        }
        let mut changes = Changes::default();
        if let Some(network) = snapshot.network {
            changes = self.network(network);
        }
        changes.texts = self.texts_of_snapshot(snapshot.texts, snapshot.revision);
        let listed: BTreeSet<AppName> = snapshot.apps.iter().map(|(app, _)| app.clone()).collect();
        for (app, entry) in snapshot.apps {
            let held = self.apps.get(&app);
            if held.is_none_or(|held| entry.revision > held.revision) {
                changes.apps.insert(app.clone());
                self.newest = self.newest.max(entry.revision);
                self.apps.insert(app, entry);
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
        self.newest = self.newest.max(self.floor);
        self.confirmed_at = now;
        changes
    }

    /// Records that the controller confirmed at `now` that the state is current.
    pub const fn confirm(&mut self, now: Timestamp) {
        self.confirmed_at = now;
    }

    /// Whether `revision` is older than a snapshot seen before: the controller has lost state, or is a different one.
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
    pub fn app(&self, app: &AppName) -> Option<&Entry> {
        self.apps.get(app)
    }

    /// The apps that exist, by name.
    pub fn apps(&self) -> impl Iterator<Item = (&AppName, Revision, &AppState)> {
        self.apps
            .iter()
            .filter_map(|(app, entry)| Some((app, entry.revision, entry.state.as_ref()?)))
    }

    /// The text records that are valid at `now`.
    #[must_use]
    pub fn texts(&self, now: Timestamp) -> Vec<NamedRecords> {
        let states = self
            .texts
            .iter()
            .filter_map(|(name, entry)| Some((name, entry.state.as_ref()?)));
        states
            .filter(|(_, state)| state.expires_at.is_none_or(|end| end > now))
            .map(|(name, state)| texts_of(name, state))
            .collect()
    }

    /// The next time after `now` at which text records expire.
    #[must_use]
    pub fn next_text_expiry(&self, now: Timestamp) -> Option<Timestamp> {
        let states = self.texts.values().filter_map(|entry| entry.state.as_ref());
        states
            .filter_map(|state| state.expires_at)
            .filter(|end| *end > now)
            .min()
    }

    /// The newest revision of anything held.
    #[must_use]
    pub const fn revision(&self) -> Revision {
        self.newest
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
mod tests;
