//! The change log: the state for machines, by revision, in memory: the present state, and the last changes for machines that were away. No I/O.
//!
//! A change is accepted if it is newer than what is held of the same thing, just as machines do; so messages may come twice or late, and the
//! database may be read at any time. Every accepted change gets the next *number* and is kept until the [`Limits`] are exceeded. A feed remembers
//! only the number of the last change that it sent: that is its whole queue, so a slow reader costs nothing, and gets a snapshot once changes that
//! it missed are gone.
//!
//! A node sees the apps that its cluster holds ([`fdn_core::message::Holders`]). The holders are part of an app's revision, so a cluster that begins
//! to hold an app is told it like any change, and one that ceases to is told that the app is gone.

mod held;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use fdn_core::enrol::{Machine, Role};
use fdn_core::fleet::FleetDesired;
use fdn_core::message::{NetworkDesired, TxtDesired};
use fdn_core::policy::quota::AppUsed;
use fdn_core::{AppName, ClusterId, Digest, Revision};

use self::held::{Held, Put};
use super::change::{AppEntry, BindingsEntry, Change, FleetEntry, is_for};
use super::used::Parts;
use super::view;
use crate::store::app::Told;

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
struct Noted {
    /// A machine that has been told everything up to this revision, or a later one, has been told this change.
    at: Revision,
    what: What,
    bytes: usize,
}

#[derive(Debug)]
enum What {
    /// A change; for an app, with its entry before the change.
    Change(Change, Option<Arc<AppEntry>>),
    /// The calls counted towards quotas.
    Used(Parts),
}

/// State for machines, read from the database at one revision: all of it, or, of apps, what is newer than the last reading.
#[derive(Debug, Default)]
pub struct Loaded {
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
    pub told: BTreeMap<AppName, Told>,
}

/// A part of what a feed sends.
#[derive(Clone, Debug)]
pub enum Piece {
    /// An encoded frame.
    Frame(Bytes),
    /// A change that is encoded only when it is sent.
    Change(Change),
}

/// Whether a cluster may fetch an artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetch {
    /// An app that it holds uses it.
    Yes,
    /// An app that it was told of used it lately, or still uses it but the cluster no longer holds the app.
    Gone,
    /// As far as is known, it was never told of an app that uses it.
    Foreign,
}

/// What a feed sends next.
#[derive(Debug)]
pub enum Next {
    /// These pieces; they bring it up to the change of this number.
    Pieces(Vec<Piece>, u64),
    /// Changes that it missed are gone.
    Behind,
}

/// Where a feed starts.
#[derive(Debug, PartialEq, Eq)]
pub enum Start {
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
    sure: Revision,
    /// The number of times a message may have been missed, and how many of those a reading of the database has settled.
    doubts: u64,
    settled: u64,
    /// A machine that has been told everything up to this revision, or a later one, finds the rest among the changes.
    floor: Revision,
    /// The number before the first kept change.
    first: u64,
    log: VecDeque<Noted>,
    bytes: usize,
    /// The numbers of the last changes for nodes and for DNS servers.
    lasts: (u64, u64),
    held: Held,
}

impl ChangeLog {
    /// An empty log.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            held: Held::new(limits.changes),
            read: Revision::NONE,
            loaded: false,
            revision: Revision::NONE,
            sure: Revision::NONE,
            doubts: 0,
            settled: 0,
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
    pub const fn sure(&self) -> Revision {
        self.sure
    }

    /// The revision at which the database was last read: messages up to it tell nothing new.
    #[must_use]
    pub const fn read(&self) -> Revision {
        self.read
    }

    /// A machine that has been told everything up to this revision, or a later one, can be told the rest by changes.
    #[must_use]
    pub const fn floor(&self) -> Revision {
        self.floor
    }

    /// Notes that a message may have been missed: until the database is read again, no further revision counts as complete.
    pub const fn doubt(&mut self) {
        self.doubts += 1;
    }

    /// The number of calls of [`ChangeLog::doubt`]; to be read before the database is.
    #[must_use]
    pub const fn doubts(&self) -> u64 {
        self.doubts
    }

    /// Whether a message may be missing.
    #[must_use]
    pub const fn is_doubtful(&self) -> bool {
        self.doubts > self.settled
    }

    /// Notes that no message has come for a while and the database has nothing newer; returns whether more revisions count as complete now.
    pub fn rest(&mut self) -> bool {
        let more = !self.is_doubtful() && self.sure < self.revision;
        if more {
            self.sure = self.revision;
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
    pub fn was_told(&self, app: &AppName, cluster: &ClusterId) -> bool {
        self.held.was_told(app, cluster)
    }

    /// Whether a cluster may fetch an artifact.
    #[must_use]
    pub fn may_fetch(&self, digest: &Digest, cluster: &ClusterId) -> Fetch {
        self.held.may_fetch(digest, cluster)
    }

    /// The revision of an app's entry; [`Revision::NONE`] if there is none.
    #[must_use]
    pub fn revision_of(&self, app: &AppName) -> Revision {
        let held = self.held.apps.get(app);
        held.map_or(Revision::NONE, |held| held.revision)
    }

    /// Accepts a change from a message; returns whether it was new.
    pub fn take(&mut self, change: Change) -> bool {
        if change.revision() <= self.read {
            // The message is late: the database has been read since, and with it everything deleted by then.
            return false;
        }
        let Some(revision) = self.note(change, Revision::NONE) else {
            return false;
        };
        if self.loaded && revision.get() > self.revision.get() + 1 {
            // Every revision has a message, so one is missing.
            self.doubt();
        }
        self.revision = self.revision.max(revision);
        if !self.is_doubtful() {
            // More messages of the same revision may follow.
            let complete = Revision(revision.get().saturating_sub(1));
            self.sure = self.sure.max(complete);
        }
        true
    }

    /// Accepts the calls counted towards quotas; returns whether any machine has to be told.
    pub fn used(&mut self, used: Vec<AppUsed>) -> bool {
        let Some(parts) = self.held.used(used) else {
            return false;
        };
        let bytes = parts.bytes();
        self.push(What::Used(parts), Revision::NONE, bytes);
        true
    }

    /// Accepts the state read from the database; returns whether any of it was new. `doubts` is their number before the reading.
    pub fn load(&mut self, loaded: Loaded, doubts: u64) -> bool {
        let (before, first) = (self.last(), !self.loaded);
        let read = loaded.revision;
        // A machine that left, told everything up to the present revision, has not been told what is found only now.
        let late = Revision(self.revision.get() + 1);
        let at = if read <= self.revision { late } else { read };
        let gone = self.held.gone(&loaded, read);
        self.held.add_told(loaded.told);
        let apps = loaded.apps.into_iter().map(Arc::new).map(Change::App);
        let bindings = loaded.bindings.into_iter().map(Arc::new);
        let texts = loaded.texts.into_iter().map(Arc::new).map(Change::Txt);
        let network = loaded.network.into_iter().map(Arc::new);
        let all = gone.into_iter().chain(apps);
        let all = all.chain(bindings.map(Change::Bindings)).chain(texts);
        for change in all.chain(network.map(Change::Network)) {
            self.note(change, at);
        }
        if first || !view::is_same_fleet(&self.held.fleet.fleet, &loaded.fleet) {
            let fleet = FleetEntry::new(loaded.fleet);
            self.note(Change::Fleet(Arc::new(fleet)), at);
        }
        if read.get() > self.sure.get() + 1 {
            // Other controllers may have told machines of things that came and went in between, which do not show here: those machines need a
            // snapshot.
            self.floor = self.floor.max(read);
        }
        self.read = self.read.max(read);
        self.revision = self.revision.max(read);
        self.settled = self.settled.max(doubts);
        if !self.is_doubtful() {
            self.sure = self.sure.max(read);
        }
        if first {
            // The state includes everything before.
            self.forget_log();
            self.floor = self.revision;
        }
        self.loaded = true;
        self.last() > before || first
    }

    /// Applies a change that is newer than what is held, and appends it to the log; returns its revision. Machines that have been told everything up
    /// to `at`, or to its own revision if that is later, count as told.
    fn note(&mut self, change: Change, at: Revision) -> Option<Revision> {
        let before = match self.held.put(&change) {
            Put::New(before) => before,
            Put::Old => return None,
            Put::Missing => {
                // Reading the database gives both the bindings and their change.
                self.doubt();
                return None;
            }
        };
        let (revision, bytes) = (change.revision(), change.bytes());
        self.push(What::Change(change, before), at.max(revision), bytes);
        Some(revision)
    }

    fn push(&mut self, what: What, at: Revision, bytes: usize) {
        let number = self.last() + 1;
        let concerns = |role| match &what {
            What::Change(change, _) => is_for(role, change),
            What::Used(_) => matches!(role, Role::Node),
        };
        if concerns(Role::Node) {
            self.lasts.0 = number;
        }
        if concerns(Role::Dns) {
            self.lasts.1 = number;
        }
        let newest = self.log.back().map_or(self.floor, |noted| noted.at);
        self.log.push_back(Noted {
            at: newest.max(at),
            what,
            bytes,
        });
        self.bytes += bytes;
        self.shorten();
    }

    /// Drops the oldest changes until the limits hold.
    fn shorten(&mut self) {
        while self.log.len() > self.limits.changes || self.bytes > self.limits.bytes {
            let Some(oldest) = self.log.pop_front() else {
                return;
            };
            self.first += 1;
            self.bytes -= oldest.bytes;
            self.floor = self.floor.max(oldest.at);
            self.bury(oldest);
        }
    }

    fn forget_log(&mut self) {
        let all = std::mem::take(&mut self.log);
        self.first += all.len() as u64;
        self.bytes = 0;
        for noted in all {
            self.bury(noted);
        }
    }

    /// Drops the entry of a deleted thing: every machine that would have to be told of the deletion now gets a snapshot.
    fn bury(&mut self, noted: Noted) {
        if let What::Change(change, _) = noted.what {
            self.held.bury(&change);
        }
    }

    /// Where the feed of a machine starts that has been told everything up to `since`.
    #[must_use]
    pub fn start(&self, since: Revision) -> Start {
        if since < self.floor || since == Revision::NONE {
            return Start::Snapshot;
        }
        // Changes that another controller told it, and that this one has not received yet, come again later; the machine ignores them as old.
        let told = self.log.partition_point(|noted| noted.at <= since);
        Start::Resume(self.first + told as u64)
    }

    /// A change that a resuming machine is sent in any case, because it has no revision.
    #[must_use]
    pub fn anyway(&self, machine: &Machine) -> Option<Change> {
        let node = matches!(machine.role, Role::Node);
        node.then(|| self.used_for(machine))
    }

    /// The calls counted for apps with a quota that a node's cluster holds.
    fn used_for(&self, machine: &Machine) -> Change {
        Change::Used(self.held.quotas.of(&machine.cluster))
    }

    /// What a feed that was told everything up to the change number `told` sends next, at most `most` pieces.
    #[must_use]
    pub fn next(&self, machine: &Machine, told: u64, most: usize) -> Next {
        let Some(skipped) = told.checked_sub(self.first) else {
            return Next::Behind;
        };
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        let (mut pieces, mut told) = (Vec::new(), told);
        for noted in self.log.iter().skip(skipped) {
            if pieces.len() >= most {
                break;
            }
            pieces.extend(piece(machine, noted));
            told += 1;
        }
        Next::Pieces(pieces, told)
    }

    /// All state for a machine now; its feed then continues after the change number [`ChangeLog::last`].
    #[must_use]
    pub fn snapshot(&self, machine: &Machine) -> VecDeque<Change> {
        let mut all = VecDeque::new();
        match machine.role {
            Role::Node => {
                all.push_back(Change::Fleet(Arc::clone(&self.held.fleet)));
                let seen = self.held.apps.values();
                let seen = seen.filter(|app| app.is_seen_by(&machine.cluster));
                all.extend(seen.cloned().map(Change::App));
                all.push_back(self.used_for(machine));
            }
            Role::Dns => {
                all.push_back(Change::Fleet(Arc::clone(&self.held.fleet)));
                all.extend(self.held.network.clone().map(Change::Network));
                let bindings = self
                    .held
                    .bindings
                    .values()
                    .filter(|one| one.state.is_some());
                all.extend(bindings.cloned().map(Change::Bindings));
                let texts = self.held.texts.values().filter(|one| one.state.is_some());
                all.extend(texts.cloned().map(Change::Txt));
            }
        }
        all
    }
}

/// The piece of a logged change for a machine; `None` if it is not for it.
fn piece(machine: &Machine, noted: &Noted) -> Option<Piece> {
    match (&noted.what, machine.role) {
        (What::Change(Change::App(app), before), Role::Node) => {
            let saw = |app: &Arc<AppEntry>| app.is_seen_by(&machine.cluster);
            let held = before.as_ref().is_some_and(saw);
            match (app.is_seen_by(&machine.cluster), held) {
                (true, _) => Some(Piece::Frame(app.frame.clone())),
                (false, true) => Some(Piece::Frame(app.gone.clone())),
                (false, false) => None,
            }
        }
        (What::Used(parts), Role::Node) => {
            let part = parts.of(&machine.cluster);
            (!part.used.is_empty()).then(|| Piece::Change(Change::Used(part)))
        }
        (What::Used(_), Role::Dns) => None,
        (What::Change(change, _), role) => {
            is_for(role, change).then(|| Piece::Change(change.clone()))
        }
    }
}

#[cfg(test)]
mod tests;
