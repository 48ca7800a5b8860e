//! The change log: the state for machines, by revision, in memory: the present state, and the last changes for machines that were away. No I/O.
//!
//! A change is accepted if it is newer than what is held of the same thing, just as machines do; so messages may come twice or late, and the
//! database may be read at any time. Every accepted change gets the next *number* and is kept until the [`Limits`] are exceeded. A feed remembers
//! only the number of the last change that it sent: that is its whole queue, so a slow reader costs nothing, and gets a snapshot once changes that
//! it missed are gone.
//!
//! A node sees the apps that its cluster holds ([`fdn_core::message::Holders`]). The holders are part of an app's revision, so a cluster that begins
//! to hold an app is told it like any change, and one that ceases to is told that the app is gone.

mod present_state;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use fdn_core::enrol::{Machine, Role};
use fdn_core::fleet::FleetDesired;
use fdn_core::message::{NetworkDesired, TxtDesired};
use fdn_core::policy::quota::AppQuotaUsage;
use fdn_core::{AppName, ClusterId, Digest, Revision};

use self::present_state::{PresentState, PutResult};
use super::change::{AppEntry, BindingsEntry, Change, FleetEntry, is_for};
use super::used::UsageByCluster;
use super::view;
use crate::store::app::InformedClusters;

/// Limits of what is kept for machines that were away.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most changes; also the most former artifacts of apps that are remembered.
    pub changes: usize,
    /// The most bytes of changes.
    pub bytes: usize,
}

/// An accepted change.
#[derive(Debug)]
struct LogEntry {
    /// A machine that has been told everything up to this revision, or a later one, has been told this change.
    at: Revision,
    item: LogItem,
    bytes: usize,
}

#[derive(Debug)]
enum LogItem {
    /// A change; for an app, with its entry before the change.
    Change(Change, Option<Arc<AppEntry>>),
    /// The calls counted towards quotas.
    Used(UsageByCluster),
}

/// State for machines, read from the database at one revision: all of it, or, of apps, what is newer than the last reading.
#[derive(Debug, Default)]
pub struct StoredState {
    /// The revision.
    pub revision: Revision,
    /// The names of all apps that exist.
    pub there: BTreeSet<AppName>,
    /// The apps that exist.
    pub apps: Vec<AppEntry>,
    /// The machines.
    pub fleet: FleetDesired,
    /// Bindings of the apps that exist.
    pub bindings: Vec<BindingsEntry>,
    /// The clusters and the latency map.
    pub network: Option<NetworkDesired>,
    /// The text records that exist.
    pub texts: Vec<TxtDesired>,
    /// The clusters that were ever told of an app.
    pub informed: BTreeMap<AppName, InformedClusters>,
}

/// A part of what a feed sends.
#[derive(Clone, Debug)]
pub enum FeedPiece {
    /// An encoded frame.
    Frame(Bytes),
    /// A change that is encoded only when it is sent.
    Change(Change),
}

/// Whether a cluster may fetch an artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchPermission {
    /// An app that it holds uses it.
    Yes,
    /// An app that it was told of used it lately, or still uses it but the cluster no longer holds the app.
    Gone,
    /// As far as is known, it was never told of an app that uses it.
    Foreign,
}

/// What a feed sends next.
#[derive(Debug)]
pub enum NextPieces {
    /// These pieces; they bring it up to the change of this number.
    Pieces(Vec<FeedPiece>, u64),
    /// Changes that it missed are gone.
    Behind,
}

/// Where a feed starts.
#[derive(Debug, PartialEq, Eq)]
pub enum FeedStart {
    /// From the changes after this number.
    Resume(u64),
    /// With a snapshot.
    Snapshot,
}

/// The present state and the last changes.
#[derive(Debug)]
pub struct ChangeLog {
    limits: Limits,
    /// Whether the database has been read.
    loaded: bool,
    /// The newest revision of any change in the log.
    revision: Revision,
    /// The revision at which the database was last read.
    read: Revision,
    /// Everything up to this revision is in the log. Several messages may have the same revision, so the newest one may be incomplete.
    complete: Revision,
    /// The number of times a message may have been missed, and how many of those a reading of the database has settled.
    suspected_gaps: u64,
    resolved_gaps: u64,
    /// A machine that has been told everything up to this revision, or a later one, finds the rest among the changes.
    floor: Revision,
    /// The number before the first kept change.
    first: u64,
    log: VecDeque<LogEntry>,
    bytes: usize,
    /// The numbers of the last changes for nodes and for DNS servers.
    lasts: (u64, u64),
    present: PresentState,
}

impl ChangeLog {
    /// An empty log.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            present: PresentState::new(limits.changes),
            read: Revision::NONE,
            loaded: false,
            revision: Revision::NONE,
            complete: Revision::NONE,
            suspected_gaps: 0,
            resolved_gaps: 0,
            floor: Revision::NONE,
            first: 0,
            log: VecDeque::new(),
            bytes: 0,
            lasts: (0, 0),
        }
    }

    /// Whether machines can be told anything: not before the database has been read once.
    #[must_use]
    pub const fn is_loaded(&self) -> bool {
        self.loaded
    }

    /// The newest revision of any change in the log.
    #[must_use]
    pub const fn revision(&self) -> Revision {
        self.revision
    }

    /// Everything up to this revision is in the log.
    #[must_use]
    pub const fn complete_revision(&self) -> Revision {
        self.complete
    }

    /// The revision at which the database was last read: messages up to it tell nothing new.
    #[must_use]
    pub const fn read_revision(&self) -> Revision {
        self.read
    }

    /// A machine that has been told everything up to this revision, or a later one, can be told the rest by changes.
    #[must_use]
    pub const fn floor(&self) -> Revision {
        self.floor
    }

    /// Notes that a message may have been missed: until the database is read again, no further revision counts as complete.
    pub const fn suspect_gap(&mut self) {
        self.suspected_gaps += 1;
    }

    /// The number of calls of [`ChangeLog::suspect_gap`]; to be read before the database is.
    #[must_use]
    pub const fn suspected_gaps(&self) -> u64 {
        self.suspected_gaps
    }

    /// Whether a message may be missing.
    #[must_use]
    pub const fn may_have_gap(&self) -> bool {
        self.suspected_gaps > self.resolved_gaps
    }

    /// Notes that no message has come for a while and the database has nothing newer; returns whether more revisions count as complete now.
    pub fn mark_complete(&mut self) -> bool {
        let more = !self.may_have_gap() && self.complete < self.revision;
        if more {
            self.complete = self.revision;
        }
        more
    }

    /// The number of the last change.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.first + self.log.len() as u64
    }

    /// The number of the last change for machines of a role.
    #[must_use]
    pub const fn last_for(&self, role: Role) -> u64 {
        match role {
            Role::Node => self.lasts.0,
            Role::Dns => self.lasts.1,
        }
    }

    /// The bytes of the kept changes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a cluster was ever told of an app.
    #[must_use]
    pub fn was_informed(&self, app: &AppName, cluster: &ClusterId) -> bool {
        self.present.was_informed(app, cluster)
    }

    /// Whether a cluster may fetch an artifact.
    #[must_use]
    pub fn may_fetch(&self, digest: &Digest, cluster: &ClusterId) -> FetchPermission {
        self.present.may_fetch(digest, cluster)
    }

    /// The revision of an app's entry; [`Revision::NONE`] if there is none.
    #[must_use]
    pub fn revision_of(&self, app: &AppName) -> Revision {
        let held = self.present.apps.get(app);
        held.map_or(Revision::NONE, |held| held.revision)
    }

    /// Accepts a change from a message; returns whether it was new.
    pub fn accept(&mut self, change: Change) -> bool {
        if change.revision() <= self.read {
            // The message is late: the database has been read since, and with it everything deleted by then.
            return false;
        }
        let Some(revision) = self.apply(change, Revision::NONE) else {
            return false;
        };
        if self.loaded && revision.get() > self.revision.get() + 1 {
            // Every revision has a message, so one is missing.
            self.suspect_gap();
        }
        self.revision = self.revision.max(revision);
        if !self.may_have_gap() {
            // More messages of the same revision may follow.
            let complete = Revision(revision.get().saturating_sub(1));
            self.complete = self.complete.max(complete);
        }
        true
    }

    /// Accepts the calls counted towards quotas; returns whether any machine has to be told.
    pub fn accept_usage(&mut self, used: Vec<AppQuotaUsage>) -> bool {
        let Some(parts) = self.present.accept_usage(used) else {
            return false;
        };
        let bytes = parts.bytes();
        self.push(LogItem::Used(parts), Revision::NONE, bytes);
        true
    }

    /// Accepts the state read from the database; returns whether any of it was new. `suspected_gaps` is their number before the reading.
    pub fn load(&mut self, loaded: StoredState, suspected_gaps: u64) -> bool {
        let (before, first) = (self.last(), !self.loaded);
        let read = loaded.revision;
        // A machine that left, told everything up to the present revision, has not been told what is found only now.
        let late = Revision(self.revision.get() + 1);
        let at = if read <= self.revision { late } else { read };
        let gone = self.present.deletions(&loaded, read);
        self.present.add_informed(loaded.informed);
        let apps = loaded.apps.into_iter().map(Arc::new).map(Change::App);
        let bindings = loaded.bindings.into_iter().map(Arc::new);
        let texts = loaded.texts.into_iter().map(Arc::new).map(Change::Txt);
        let network = loaded.network.into_iter().map(Arc::new);
        let all = gone.into_iter().chain(apps);
        let all = all.chain(bindings.map(Change::Bindings)).chain(texts);
        for change in all.chain(network.map(Change::Network)) {
            self.apply(change, at);
        }
        if first || !view::is_same_fleet(&self.present.fleet.fleet, &loaded.fleet) {
            let fleet = FleetEntry::new(loaded.fleet);
            self.apply(Change::Fleet(Arc::new(fleet)), at);
        }
        if read.get() > self.complete.get() + 1 {
            // Other controllers may have told machines of things that came and went in between, which do not show here: those machines need a
            // snapshot.
            self.floor = self.floor.max(read);
        }
        self.read = self.read.max(read);
        self.revision = self.revision.max(read);
        self.resolved_gaps = self.resolved_gaps.max(suspected_gaps);
        if !self.may_have_gap() {
            self.complete = self.complete.max(read);
        }
        if first {
            // The state includes everything before.
            self.clear_log();
            self.floor = self.revision;
        }
        self.loaded = true;
        self.last() > before || first
    }

    /// Applies a change that is newer than what is held, and appends it to the log; returns its revision. Machines that have been told everything up
    /// to `at`, or to its own revision if that is later, count as told.
    fn apply(&mut self, change: Change, at: Revision) -> Option<Revision> {
        let before = match self.present.apply(&change) {
            PutResult::New(before) => before,
            PutResult::Old => return None,
            PutResult::Missing => {
                // Reading the database gives both the bindings and their change.
                self.suspect_gap();
                return None;
            }
        };
        let (revision, bytes) = (change.revision(), change.bytes());
        self.push(LogItem::Change(change, before), at.max(revision), bytes);
        Some(revision)
    }

    fn push(&mut self, item: LogItem, at: Revision, bytes: usize) {
        let number = self.last() + 1;
        let concerns = |role| match &item {
            LogItem::Change(change, _) => is_for(role, change),
            LogItem::Used(_) => matches!(role, Role::Node),
        };
        if concerns(Role::Node) {
            self.lasts.0 = number;
        }
        if concerns(Role::Dns) {
            self.lasts.1 = number;
        }
        let newest = self.log.back().map_or(self.floor, |entry| entry.at);
        self.log.push_back(LogEntry {
            at: newest.max(at),
            item,
            bytes,
        });
        self.bytes += bytes;
        self.trim();
    }

    /// Drops the oldest changes until the limits hold.
    fn trim(&mut self) {
        while self.log.len() > self.limits.changes || self.bytes > self.limits.bytes {
            let Some(oldest) = self.log.pop_front() else {
                return;
            };
            self.first += 1;
            self.bytes -= oldest.bytes;
            self.floor = self.floor.max(oldest.at);
            self.drop_deleted(oldest);
        }
    }

    fn clear_log(&mut self) {
        let all = std::mem::take(&mut self.log);
        self.first += all.len() as u64;
        self.bytes = 0;
        for entry in all {
            self.drop_deleted(entry);
        }
    }

    /// Drops the entry of a deleted thing: every machine that would have to be told of the deletion now gets a snapshot.
    fn drop_deleted(&mut self, entry: LogEntry) {
        if let LogItem::Change(change, _) = entry.item {
            self.present.drop_deleted(&change);
        }
    }

    /// Where the feed of a machine starts that has been told everything up to `since`.
    #[must_use]
    pub fn start(&self, since: Revision) -> FeedStart {
        if since < self.floor || since == Revision::NONE {
            return FeedStart::Snapshot;
        }
        // Changes that another controller told it, and that this one has not received yet, come again later; the machine ignores them as old.
        let sent = self.log.partition_point(|entry| entry.at <= since);
        FeedStart::Resume(self.first + sent as u64)
    }

    /// A change that a resuming machine is sent in any case, because it has no revision.
    #[must_use]
    pub fn unversioned_change(&self, machine: &Machine) -> Option<Change> {
        let node = matches!(machine.role, Role::Node);
        node.then(|| self.used_for(machine))
    }

    /// The calls counted for apps with a quota that a node's cluster holds.
    fn used_for(&self, machine: &Machine) -> Change {
        Change::Used(self.present.quotas.of(&machine.cluster))
    }

    /// What a feed that was told everything up to the change number `sent` sends next, at most `limit` pieces.
    #[must_use]
    pub fn next(&self, machine: &Machine, sent: u64, limit: usize) -> NextPieces {
        let Some(skipped) = sent.checked_sub(self.first) else {
            return NextPieces::Behind;
        };
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        let (mut pieces, mut sent) = (Vec::new(), sent);
        for entry in self.log.iter().skip(skipped) {
            if pieces.len() >= limit {
                break;
            }
            pieces.extend(piece(machine, entry));
            sent += 1;
        }
        NextPieces::Pieces(pieces, sent)
    }

    /// All state for a machine now; its feed then continues after the change number [`ChangeLog::last`].
    #[must_use]
    pub fn snapshot(&self, machine: &Machine) -> VecDeque<Change> {
        let mut all = VecDeque::new();
        match machine.role {
            Role::Node => {
                all.push_back(Change::Fleet(Arc::clone(&self.present.fleet)));
                let seen = self.present.apps.values();
                let seen = seen.filter(|app| app.is_seen_by(&machine.cluster));
                all.extend(seen.cloned().map(Change::App));
                all.push_back(self.used_for(machine));
            }
            Role::Dns => {
                all.push_back(Change::Fleet(Arc::clone(&self.present.fleet)));
                all.extend(self.present.network.clone().map(Change::Network));
                let bindings = self
                    .present
                    .bindings
                    .values()
                    .filter(|one| one.state.is_some());
                all.extend(bindings.cloned().map(Change::Bindings));
                let texts = self
                    .present
                    .texts
                    .values()
                    .filter(|one| one.state.is_some());
                all.extend(texts.cloned().map(Change::Txt));
            }
        }
        all
    }
}

/// The piece of a logged change for a machine; `None` if it is not for it.
fn piece(machine: &Machine, entry: &LogEntry) -> Option<FeedPiece> {
    match (&entry.item, machine.role) {
        (LogItem::Change(Change::App(app), before), Role::Node) => {
            let saw = |app: &Arc<AppEntry>| app.is_seen_by(&machine.cluster);
            let held = before.as_ref().is_some_and(saw);
            match (app.is_seen_by(&machine.cluster), held) {
                (true, _) => Some(FeedPiece::Frame(app.frame.clone())),
                (false, true) => Some(FeedPiece::Frame(app.gone.clone())),
                (false, false) => None,
            }
        }
        (LogItem::Used(parts), Role::Node) => {
            let part = parts.of(&machine.cluster);
            (!part.used.is_empty()).then(|| FeedPiece::Change(Change::Used(part)))
        }
        (LogItem::Used(_), Role::Dns) => None,
        (LogItem::Change(change, _), role) => {
            is_for(role, change).then(|| FeedPiece::Change(change.clone()))
        }
    }
}

#[cfg(test)]
mod tests;
