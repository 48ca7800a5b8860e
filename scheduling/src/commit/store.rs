//! The node records, which only the committer changes, and the copies that pre-schedulers read.
//!
//! **Copies.** A pre-scheduler reads its own [`View`]. [`View::read`] updates it with the changes since the last reading: 64 bytes for
//! each change, from a ring of the latest changes; all records if it missed more than the ring holds. Nothing is shared, so
//! pre-schedulers score without locks; reading needs the store only while copying. Where store and pre-scheduler are different processes,
//! records travel as messages: [`View::apply`] accepts them in any order, duplicated or not, because versions only grow.

use fdn_core::Resources;

use super::record::{NodeIndex, NodeRecord, Presence, Version};

/// All node records.
#[derive(Clone, Debug)]
pub struct Store {
    records: Vec<NodeRecord>,
    /// What others than the committer hold on each node; included in the record's `used`.
    foreign: Vec<Resources>,
    /// What the committer has placed on each node; the rest of `used`.
    own: Vec<Resources>,
    /// The indices of the latest changes, as a ring: change `n` is at `n % ring.len()`.
    ring: Vec<NodeIndex>,
    changes: u64,
}

impl Store {
    /// An empty store that keeps this many changes, at least one.
    pub(crate) fn new(history: usize) -> Self {
        Self {
            records: Vec::new(),
            foreign: Vec::new(),
            own: Vec::new(),
            ring: vec![NodeIndex::new(0); history.max(1)],
            changes: 0,
        }
    }

    /// The records, by node index.
    #[must_use]
    pub fn records(&self) -> &[NodeRecord] {
        &self.records
    }

    /// The record with this index; `None` if there never was such a node.
    #[must_use]
    pub fn get(&self, node: NodeIndex) -> Option<&NodeRecord> {
        self.records.get(node.get())
    }

    /// The number of changes so far.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// Adds a node at an unused index, or one past the last.
    pub(super) fn put(&mut self, node: NodeIndex, capacity: Resources) {
        if node.get() == self.records.len() {
            self.records.push(NodeRecord::default());
            self.foreign.push(Resources::default());
            self.own.push(Resources::default());
        }
        self.change(node, |record| {
            record.capacity = capacity;
            record.presence = Presence::Up;
        });
    }

    /// Removes the node at an index.
    pub(super) fn clear(&mut self, node: NodeIndex) {
        self.own[node.get()] = Resources::default();
        self.foreign[node.get()] = Resources::default();
        self.change(node, |record| {
            let version = record.version;
            *record = NodeRecord {
                version,
                ..NodeRecord::default()
            };
        });
    }

    /// Sets a node's record from a ledger kept elsewhere; new nodes must be added in the order of their indices.
    pub(crate) fn state(
        &mut self,
        node: NodeIndex,
        capacity: Resources,
        used: Resources,
        presence: Presence,
    ) {
        if node.get() == self.records.len() {
            self.records.push(NodeRecord::default());
            self.foreign.push(Resources::default());
            self.own.push(Resources::default());
        }
        self.foreign[node.get()] = used;
        self.change(node, |record| {
            record.capacity = capacity;
            record.used = used;
            record.presence = presence;
        });
    }

    /// The changes after the first `changes` ones, each node with its present record: all nodes if more was missed than the store
    /// keeps, or than there are nodes. The present number is [`Self::changes`].
    pub fn since(&self, changes: u64) -> impl Iterator<Item = (NodeIndex, NodeRecord)> {
        let missed = self.changes.checked_sub(changes);
        let most = self.ring.len().min(self.records.len()) as u64;
        let (all, from) = match missed {
            Some(missed) if missed <= most => (0, changes),
            Some(_) | None => (self.records.len(), self.changes),
        };
        let all = (0..).map(NodeIndex::new).take(all);
        let changed = (from..self.changes)
            .map(|change| self.ring[(change % self.ring.len() as u64) as usize]);
        all.chain(changed)
            .map(|node| (node, self.records[node.get()]))
    }

    pub(super) fn set_presence(&mut self, node: NodeIndex, presence: Presence) {
        self.change(node, |record| record.presence = presence);
    }

    /// Updates what others hold on a node.
    pub(super) fn set_foreign(&mut self, node: NodeIndex, foreign: Resources) {
        self.foreign[node.get()] = foreign;
        self.recount(node);
    }

    /// Places a container on a node if it fits, and increments the version.
    pub(super) fn reserve(&mut self, node: NodeIndex, demand: &Resources) -> Option<Version> {
        let record = self.records.get(node.get())?;
        if !record.has_room(demand) {
            return None;
        }
        let own = &mut self.own[node.get()];
        *own = own.saturating_add(demand);
        Some(self.recount(node))
    }

    /// Returns what a container held.
    pub(super) fn give_back(&mut self, node: NodeIndex, demand: &Resources) {
        let own = &mut self.own[node.get()];
        *own = own
            .checked_sub(demand)
            .expect("a container gives back what was reserved for it, once");
        self.recount(node);
    }

    fn recount(&mut self, node: NodeIndex) -> Version {
        let used = self.own[node.get()].saturating_add(&self.foreign[node.get()]);
        self.change(node, |record| record.used = used)
    }

    fn change(&mut self, node: NodeIndex, change: impl FnOnce(&mut NodeRecord)) -> Version {
        let record = &mut self.records[node.get()];
        change(record);
        record.version = Version::new(record.version.get() + 1);
        let at = (self.changes % self.ring.len() as u64) as usize;
        self.ring[at] = node;
        self.changes += 1;
        record.version
    }
}

/// A pre-scheduler's copy of the records, as of its last reading.
#[derive(Clone, Debug, Default)]
pub struct View {
    records: Vec<NodeRecord>,
    changes: u64,
}

impl View {
    /// Updates the copy, and returns how many records were copied.
    pub fn read(&mut self, store: &Store) -> usize {
        let seen = std::mem::replace(&mut self.changes, store.changes);
        let missed = store.changes.checked_sub(seen);
        let remembered = missed.filter(|&missed| missed <= store.ring.len() as u64);
        let Some(missed) = remembered.filter(|_| self.records.len() == store.records.len()) else {
            self.records.clone_from(&store.records);
            return self.records.len();
        };
        for change in seen..store.changes {
            let node = store.ring[(change % store.ring.len() as u64) as usize].get();
            self.records[node] = store.records[node];
        }
        missed as usize
    }

    /// Applies a record that came as a message, unless the present one is as new. False if it is ignored.
    ///
    /// A view is updated either by reading or by messages, not by both. The caller bounds the indices.
    pub fn apply(&mut self, node: NodeIndex, record: NodeRecord) -> bool {
        if node.get() >= self.records.len() {
            self.records.resize(node.get() + 1, NodeRecord::default());
        }
        let held = &mut self.records[node.get()];
        let newer = record.version > held.version;
        if newer {
            *held = record;
        }
        newer
    }

    /// The records, by node index.
    #[must_use]
    pub fn records(&self) -> &[NodeRecord] {
        &self.records
    }
}
