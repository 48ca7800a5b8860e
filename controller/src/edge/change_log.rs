//! What machines are to be told, in memory, by revision: the present state, and the last changes for those that were away. No I/O.
//!
//! A change is taken in if it is newer than what is held of the same thing, as machines do it; so messages may come twice or late, and the database may
//! be read at any time. Every taken change gets the next *number* and is kept, encoded, until [`Limits`] are passed. A feed remembers the number
//! up to which it was told: that is its whole queue, so a reader that is slow costs nothing, and gets a snapshot once what it missed is gone.
//!
//! A node sees the apps that its cluster holds ([`fdn_core::message::Holders`]). Who holds an app is part of the app's revision, so a cluster that begins to hold
//! it is told of it as of any change, and one that ceases to is told that it is gone.

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

/// Bounds of what is kept for machines that were away.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Changes, and artifacts of apps that have others now.
    pub changes: usize,
    /// Bytes of them.
    pub bytes: usize,
}

/// A change that was taken in.
#[derive(Debug)]
struct Noted {
    /// Who was told all up to here, or to a later revision, was told this.
    at: Revision,
    what: What,
    bytes: usize,
}

#[derive(Debug)]
enum What {
    /// A change; of an app, who held it before.
    Change(Change, Option<Arc<AppEntry>>),
    /// What is used of quotas.
    Used(Parts),
}

/// What the database holds for machines, at one revision: all, or of apps what is newer than it was when it was read before.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The revision.
    pub revision: Revision,
    /// The names of all apps that exist.
    pub there: BTreeSet<AppName>,
    /// The apps that exist.
    pub apps: Vec<AppEntry>,
    /// Machines.
    pub fleet: FleetDesired,
    /// Bindings of the apps that exist.
    pub bindings: Vec<BindingsEntry>,
    /// The clusters and the latency map.
    pub network: Option<NetworkDesired>,
    /// Text records that are set.
    pub texts: Vec<TxtDesired>,
    /// The clusters that were ever told of an app.
    pub told: BTreeMap<AppName, Told>,
}

/// What is to be told to a machine.
#[derive(Clone, Debug)]
pub enum Piece {
    /// A frame that is encoded.
    Frame(Bytes),
    /// A change, to be encoded when it is its turn.
    Change(Change),
}

/// Whether a cluster may have an artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetch {
    /// An app that it holds has it.
    Yes,
    /// An app that it was told of had it lately, or has it and is not held any more.
    Gone,
    /// It never was told of an app with it, as far as is known.
    Foreign,
}

/// What a feed is told next.
#[derive(Debug)]
pub enum Next {
    /// This brings it up to the change of this number.
    Pieces(Vec<Piece>, u64),
    /// What it missed is gone.
    Behind,
}

/// Whence a feed goes on.
#[derive(Debug, PartialEq, Eq)]
pub enum Start {
    /// From the changes after this number.
    Resume(u64),
    /// From a snapshot.
    Snapshot,
}

/// The state and the last changes.
#[derive(Debug)]
pub struct ChangeLog {
    limits: Limits,
    /// Whether the database was read.
    loaded: bool,
    /// The newest revision of which something is in it.
    revision: Revision,
    /// The revision that the database was read at last.
    read: Revision,
    /// All up to here is in it. Several messages may have one revision, so the last one's is not surely complete.
    sure: Revision,
    /// How often it may have missed a message, and how much of that was made good.
    doubts: u64,
    settled: u64,
    /// A machine that was told all up to this or a later revision finds the rest among the changes.
    floor: Revision,
    /// The number of the first change that is kept.
    first: u64,
    log: VecDeque<Noted>,
    bytes: usize,
    /// The numbers of the last changes for nodes, and for DNS servers.
    lasts: (u64, u64),
    held: Held,
}

impl ChangeLog {
    /// An empty one.
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

    /// Whether machines can be told anything: nothing before the database was read once.
    #[must_use]
    pub const fn is_loaded(&self) -> bool {
        self.loaded
    }

    /// The newest revision of which something is in it.
    #[must_use]
    pub const fn revision(&self) -> Revision {
        self.revision
    }

    /// All up to here is in it.
    #[must_use]
    pub const fn sure(&self) -> Revision {
        self.sure
    }

    /// The revision that the database was read at last: what messages tell of it and of older ones is known.
    #[must_use]
    pub const fn read(&self) -> Revision {
        self.read
    }

    /// A machine that was told all up to this or a later revision is told the rest by changes.
    #[must_use]
    pub const fn floor(&self) -> Revision {
        self.floor
    }

    /// A message may have been missed: until the database was read again, nothing more is surely complete.
    pub const fn doubt(&mut self) {
        self.doubts += 1;
    }

    /// How often [`ChangeLog::doubt`] was said, to be looked at before the database is read.
    #[must_use]
    pub const fn doubts(&self) -> u64 {
        self.doubts
    }

    /// Whether a message may be missing.
    #[must_use]
    pub const fn is_doubtful(&self) -> bool {
        self.doubts > self.settled
    }

    /// No message came for a while, and the database knows of nothing newer; whether more is surely complete by that.
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

    /// The number of the last change that is for machines of a role.
    #[must_use]
    pub const fn last_for(&self, role: Role) -> u64 {
        match role {
            Role::Node => self.lasts.0,
            Role::Dns => self.lasts.1,
        }
    }

    /// Bytes of the changes that are kept.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a cluster was ever told of an app.
    #[must_use]
    pub fn was_told(&self, app: &AppName, cluster: &ClusterId) -> bool {
        self.held.was_told(app, cluster)
    }

    /// Whether a cluster may have an artifact.
    #[must_use]
    pub fn may_fetch(&self, digest: &Digest, cluster: &ClusterId) -> Fetch {
        self.held.may_fetch(digest, cluster)
    }

    /// The revision of what is held of an app; none if it was never heard of.
    #[must_use]
    pub fn revision_of(&self, app: &AppName) -> Revision {
        let held = self.held.apps.get(app);
        held.map_or(Revision::NONE, |held| held.revision)
    }

    /// Takes in a change that a message told; whether it was new.
    pub fn take(&mut self, change: Change) -> bool {
        if change.revision() <= self.read {
            // It came late, and the database was read since: also of what is gone by now.
            return false;
        }
        let Some(revision) = self.note(change, Revision::NONE) else {
            return false;
        };
        if self.loaded && revision.get() > self.revision.get() + 1 {
            // Every revision is said by a message.
            self.doubt();
        }
        self.revision = self.revision.max(revision);
        if !self.is_doubtful() {
            // More of the same revision may follow.
            let complete = Revision(revision.get().saturating_sub(1));
            self.sure = self.sure.max(complete);
        }
        true
    }

    /// Takes in what is used of quotas; whether anybody is to be told of it.
    pub fn used(&mut self, used: Vec<AppUsed>) -> bool {
        let Some(parts) = self.held.used(used) else {
            return false;
        };
        let bytes = parts.bytes();
        self.push(What::Used(parts), Revision::NONE, bytes);
        true
    }

    /// Takes in what the database holds; whether anything of it was new. `doubts` are those of before it was read.
    pub fn load(&mut self, loaded: Loaded, doubts: u64) -> bool {
        let (before, first) = (self.last(), !self.loaded);
        let read = loaded.revision;
        // Who left having been told all up to here has not been told what is found only now.
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
            // Other controllers may have told what came and went in between, which shows here in nothing: to who was told all up to there.
            self.floor = self.floor.max(read);
        }
        self.read = self.read.max(read);
        self.revision = self.revision.max(read);
        self.settled = self.settled.max(doubts);
        if !self.is_doubtful() {
            self.sure = self.sure.max(read);
        }
        if first {
            // Whatever came before is in it.
            self.forget_log();
            self.floor = self.revision;
        }
        self.loaded = true;
        self.last() > before || first
    }

    /// Puts a change that is newer than what is held into the state and behind the others; its revision. Who was told all up to `at`, or to its own
    /// revision if that is later, counts as told.
    fn note(&mut self, change: Change, at: Revision) -> Option<Revision> {
        let before = match self.held.put(&change) {
            Put::New(before) => before,
            Put::Old => return None,
            Put::Missing => {
                // The database has both.
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

    /// Forgets the oldest changes until limits hold.
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

    /// Forgets what is gone: nobody who would have to be told so is told by changes any more.
    fn bury(&mut self, noted: Noted) {
        if let What::Change(change, _) = noted.what {
            self.held.bury(&change);
        }
    }

    /// Whence a machine goes on that was told all up to `since`.
    #[must_use]
    pub fn start(&self, since: Revision) -> Start {
        if since < self.floor || since == Revision::NONE {
            return Start::Snapshot;
        }
        // What it was told by another controller and this one has not heard of yet comes later, and is not new to it.
        let told = self.log.partition_point(|noted| noted.at <= since);
        Start::Resume(self.first + told as u64)
    }

    /// What a machine that goes on is told anyway: it has no revision of its own.
    #[must_use]
    pub fn anyway(&self, machine: &Machine) -> Option<Change> {
        let node = matches!(machine.role, Role::Node);
        node.then(|| self.used_for(machine))
    }

    /// What is used of the quotas of apps that a node's cluster holds.
    fn used_for(&self, machine: &Machine) -> Change {
        Change::Used(self.held.quotas.of(&machine.cluster))
    }

    /// What a feed that was told all up to the change of number `told` is told next, at most `most` changes.
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

    /// All there is for a machine now; what it is told then begins after the change of the number that [`ChangeLog::last`] says.
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

/// What a machine is told of a change that was noted; nothing if it is not for it.
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
