//! What machines are to be told, in memory, by revision: the present state, and the last changes for those that were away. No I/O.
//!
//! A change is taken in if it is newer than what is held of the same thing, as machines do it; so messages may come twice or late, and the database may
//! be read at any time. Every taken change gets the next *number* and is kept, encoded, until [`Limits`] are passed. A feed remembers the number
//! up to which it was told: that is its whole queue, so a reader that is slow costs nothing, and gets a snapshot once what it missed is gone.
//!
//! A node sees the apps that its cluster holds ([`Holders`]). Who holds an app is part of the app's revision, so a cluster that begins to hold
//! it is told of it as of any change, and one that ceases to is told that it is gone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use fdn_core::enrol::{Machine, Role};
use fdn_core::fleet::FleetDesired;
use fdn_core::message::{BindingsDesired, NetworkDesired, TxtDesired};
use fdn_core::policy::quota::AppUsed;
use fdn_core::{AppName, ClusterId, Digest, RecordName, Revision};

use super::change::{AppEntry, Change, FleetEntry, is_for};
use super::view;
use crate::store::app::Told;

/// Bounds of what is kept for machines that were away.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Changes.
    pub changes: usize,
    /// Octets of them.
    pub octets: usize,
}

/// A change that was taken in.
#[derive(Debug)]
struct Noted {
    /// Who was told all up to here, or to a later revision, was told this.
    at: Revision,
    change: Change,
    /// Of an app: who held it before.
    before: Option<Arc<AppEntry>>,
    octets: usize,
}

/// Everything that the database holds for machines, at one revision.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The revision.
    pub revision: Revision,
    /// The apps that exist.
    pub apps: Vec<AppEntry>,
    /// Machines.
    pub fleet: FleetDesired,
    /// Bindings of the apps that exist.
    pub bindings: Vec<BindingsDesired>,
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
pub struct Book {
    limits: Limits,
    /// Whether the database was read.
    loaded: bool,
    /// The newest revision of which something is in it.
    revision: Revision,
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
    octets: usize,
    apps: BTreeMap<AppName, Arc<AppEntry>>,
    bindings: BTreeMap<AppName, Arc<BindingsDesired>>,
    texts: BTreeMap<RecordName, Arc<TxtDesired>>,
    network: Option<Arc<NetworkDesired>>,
    fleet: Arc<FleetEntry>,
    used: Arc<Vec<AppUsed>>,
    told: BTreeMap<AppName, Told>,
}

impl Book {
    /// An empty one.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            loaded: false,
            revision: Revision::NONE,
            sure: Revision::NONE,
            doubts: 0,
            settled: 0,
            floor: Revision::NONE,
            first: 0,
            log: VecDeque::new(),
            octets: 0,
            apps: BTreeMap::new(),
            bindings: BTreeMap::new(),
            texts: BTreeMap::new(),
            network: None,
            fleet: Arc::default(),
            used: Arc::default(),
            told: BTreeMap::new(),
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

    /// A message may have been missed: until the database was read again, nothing more is surely complete.
    pub const fn doubt(&mut self) {
        self.doubts += 1;
    }

    /// How often [`Book::doubt`] was said, to be looked at before the database is read.
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

    /// Octets of the changes that are kept.
    #[must_use]
    pub const fn octets(&self) -> usize {
        self.octets
    }

    /// Whether a cluster was ever told of an app.
    #[must_use]
    pub fn was_told(&self, app: &AppName, cluster: &ClusterId) -> bool {
        self.told.get(app).is_some_and(|told| told.has(cluster))
    }

    /// Whether a cluster holds an app with this artifact.
    #[must_use]
    pub fn may_fetch(&self, digest: &Digest, cluster: &ClusterId) -> bool {
        self.apps
            .values()
            .any(|app| app.is_seen_by(cluster) && app.digests.contains(digest))
    }

    /// Takes in a change that a message told; whether it was new.
    pub fn take(&mut self, change: Change) -> bool {
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

    /// Takes in what the database holds; whether anything of it was new. `doubts` are those of before it was read.
    pub fn load(&mut self, loaded: Loaded, doubts: u64) -> bool {
        let (before, first) = (self.last(), !self.loaded);
        let read = loaded.revision;
        // Who left having been told all up to here has not been told what is found only now.
        let late = Revision(self.revision.get() + 1);
        let at = if read <= self.revision { late } else { read };
        for (app, told) in loaded.told {
            let known = self.told.entry(app).or_default();
            known.everywhere |= told.everywhere;
            known.clusters.extend(told.clusters);
        }
        let gone = self.gone(&loaded.apps, &loaded.bindings, &loaded.texts, read);
        let apps = loaded.apps.into_iter().map(Arc::new).map(Change::App);
        let bindings = loaded.bindings.into_iter().map(Arc::new);
        let texts = loaded.texts.into_iter().map(Arc::new).map(Change::Txt);
        let network = loaded.network.into_iter().map(Arc::new);
        let all = gone.into_iter().chain(apps);
        let all = all.chain(bindings.map(Change::Bindings)).chain(texts);
        for change in all.chain(network.map(Change::Network)) {
            self.note(change, at);
        }
        if first || !view::is_same_fleet(&self.fleet.fleet, &loaded.fleet) {
            let fleet = FleetEntry::new(loaded.fleet);
            self.note(Change::Fleet(Arc::new(fleet)), at);
        }
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

    /// What is held and the database, read at `at`, does not know any more.
    fn gone(
        &self,
        apps: &[AppEntry],
        bindings: &[BindingsDesired],
        texts: &[TxtDesired],
        at: Revision,
    ) -> Vec<Change> {
        let mut gone = Vec::new();
        let there: BTreeSet<&AppName> = apps.iter().map(|app| &app.app).collect();
        for held in self.apps.values() {
            if held.exists && held.revision <= at && !there.contains(&held.app) {
                // It can be written: it was.
                let entry = view::app_gone(&held.app, at).ok();
                gone.extend(entry.map(Arc::new).map(Change::App));
            }
        }
        let there: BTreeSet<&AppName> = bindings.iter().map(|one| &one.app).collect();
        for held in self.bindings.values() {
            if held.state.is_some() && held.revision <= at && !there.contains(&held.app) {
                gone.push(Change::Bindings(Arc::new(BindingsDesired {
                    app: held.app.clone(),
                    revision: at,
                    state: None,
                })));
            }
        }
        let there: BTreeSet<&RecordName> = texts.iter().map(|one| &one.name).collect();
        for held in self.texts.values() {
            if held.state.is_some() && held.revision <= at && !there.contains(&held.name) {
                gone.push(Change::Txt(Arc::new(TxtDesired {
                    name: held.name.clone(),
                    revision: at,
                    state: None,
                })));
            }
        }
        gone
    }

    /// Puts a change that is newer than what is held into the state and behind the others; its revision. Who was told all up to `at`, or to its own
    /// revision if that is later, counts as told.
    fn note(&mut self, change: Change, at: Revision) -> Option<Revision> {
        let (revision, octets, mut before) = match &change {
            Change::App(app) => (app.revision, app.frame.len() + app.gone.len(), None),
            Change::Fleet(one) => (one.fleet.revision, 4096, None),
            Change::Used(used) => (self.revision, used.len() * 64, None),
            Change::Bindings(one) => {
                let many = one.state.as_ref().map_or(0, |state| state.bindings.len());
                (one.revision, many * 40, None)
            }
            Change::BindingsChanged(one) => (one.revision, one.changes.len() * 40, None),
            Change::Network(network) => {
                let many = network.locations.len() + network.measured.len();
                (network.revision, many * 40, None)
            }
            Change::Txt(text) => (text.revision, 1024, None),
        };
        if !self.put(&change, &mut before) {
            return None;
        }
        let newest = self.log.back().map_or(self.floor, |noted| noted.at);
        self.log.push_back(Noted {
            at: newest.max(at).max(revision),
            change,
            before,
            octets,
        });
        self.octets += octets;
        self.shorten();
        Some(revision)
    }

    /// Changes the state; `false` if it is as new.
    fn put(&mut self, change: &Change, before: &mut Option<Arc<AppEntry>>) -> bool {
        match change {
            Change::App(app) => {
                let held = self.apps.get(&app.app);
                if held.is_some_and(|held| held.revision >= app.revision) {
                    return false;
                }
                if app.exists {
                    let told = self.told.entry(app.app.clone()).or_default();
                    told.add(&app.holders);
                }
                *before = self.apps.insert(app.app.clone(), Arc::clone(app));
                true
            }
            Change::Fleet(one) => {
                let newer = self.fleet.fleet.revision < one.fleet.revision;
                if newer {
                    self.fleet = Arc::clone(one);
                }
                newer
            }
            Change::Used(used) => {
                let differs = self.used != *used;
                self.used = Arc::clone(used);
                differs
            }
            Change::Bindings(one) => {
                let held = self.bindings.get(&one.app);
                if held.is_some_and(|held| held.revision >= one.revision) {
                    return false;
                }
                self.bindings.insert(one.app.clone(), Arc::clone(one));
                true
            }
            Change::BindingsChanged(changed) => {
                let held = self.bindings.get(&changed.app);
                if held.is_some_and(|held| held.revision >= changed.revision) {
                    return false;
                }
                let next = held.and_then(|held| view::changed(held, changed));
                let Some(next) = next else {
                    // What it changes is missing, and the database has both.
                    self.doubt();
                    return false;
                };
                self.bindings.insert(next.app.clone(), Arc::new(next));
                true
            }
            Change::Network(network) => {
                let held = self.network.as_ref();
                let newer = held.is_none_or(|held| held.revision < network.revision);
                if newer {
                    self.network = Some(Arc::clone(network));
                }
                newer
            }
            Change::Txt(text) => {
                let held = self.texts.get(&text.name);
                if held.is_some_and(|held| held.revision >= text.revision) {
                    return false;
                }
                self.texts.insert(text.name.clone(), Arc::clone(text));
                true
            }
        }
    }

    /// Forgets the oldest changes until limits hold.
    fn shorten(&mut self) {
        while self.log.len() > self.limits.changes || self.octets > self.limits.octets {
            let Some(oldest) = self.log.pop_front() else {
                return;
            };
            self.first += 1;
            self.octets -= oldest.octets;
            self.floor = self.floor.max(oldest.at);
            self.bury(&oldest);
        }
    }

    fn forget_log(&mut self) {
        let all = std::mem::take(&mut self.log);
        self.first += all.len() as u64;
        self.octets = 0;
        for noted in &all {
            self.bury(noted);
        }
    }

    /// Forgets what is gone: nobody who would have to be told so is told by changes any more.
    fn bury(&mut self, noted: &Noted) {
        match &noted.change {
            Change::App(app) if !app.exists => {
                let same = |held: &Arc<AppEntry>| held.revision == app.revision;
                if self.apps.get(&app.app).is_some_and(same) {
                    self.apps.remove(&app.app);
                }
            }
            Change::Bindings(one) if one.state.is_none() => {
                let same = |held: &Arc<BindingsDesired>| held.revision == one.revision;
                if self.bindings.get(&one.app).is_some_and(same) {
                    self.bindings.remove(&one.app);
                }
            }
            Change::Txt(one) if one.state.is_none() => {
                let same = |held: &Arc<TxtDesired>| held.revision == one.revision;
                if self.texts.get(&one.name).is_some_and(same) {
                    self.texts.remove(&one.name);
                }
            }
            _ => {}
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
        let seen = |app: &AppName| {
            self.apps
                .get(app)
                .is_some_and(|app| app.is_seen_by(&machine.cluster))
        };
        let used = self.used.iter().filter(|used| seen(&used.app));
        Change::Used(Arc::new(used.cloned().collect()))
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
            pieces.extend(self.piece(machine, noted));
            told += 1;
        }
        Next::Pieces(pieces, told)
    }

    /// What a machine is told of a change that was noted; nothing if it is not for it.
    fn piece(&self, machine: &Machine, noted: &Noted) -> Option<Piece> {
        match (&noted.change, machine.role) {
            (Change::App(app), Role::Node) => {
                let saw = |app: &Arc<AppEntry>| app.is_seen_by(&machine.cluster);
                let held = noted.before.as_ref().is_some_and(saw);
                match (app.is_seen_by(&machine.cluster), held) {
                    (true, _) => Some(Piece::Frame(app.frame.clone())),
                    (false, true) => Some(Piece::Frame(app.gone.clone())),
                    (false, false) => None,
                }
            }
            (Change::Used(_), Role::Node) => Some(Piece::Change(self.used_for(machine))),
            (change, role) => is_for(role, change).then(|| Piece::Change(change.clone())),
        }
    }

    /// All there is for a machine now; what it is told then begins after the change of the number that [`Book::last`] says.
    #[must_use]
    pub fn snapshot(&self, machine: &Machine) -> VecDeque<Change> {
        let mut all = VecDeque::new();
        match machine.role {
            Role::Node => {
                all.push_back(Change::Fleet(Arc::clone(&self.fleet)));
                let seen = self.apps.values();
                let seen = seen.filter(|app| app.is_seen_by(&machine.cluster));
                all.extend(seen.cloned().map(Change::App));
                all.push_back(self.used_for(machine));
            }
            Role::Dns => {
                all.push_back(Change::Fleet(Arc::clone(&self.fleet)));
                all.extend(self.network.clone().map(Change::Network));
                let bindings = self.bindings.values().filter(|one| one.state.is_some());
                all.extend(bindings.cloned().map(Change::Bindings));
                let texts = self.texts.values().filter(|one| one.state.is_some());
                all.extend(texts.cloned().map(Change::Txt));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests;
