//! The index of the cache, which decides what to evict: pure, least recently used first.
//!
//! A component (`.wasm`) and its compiled form are two entries. Entries are *needed* if an app that is desired or served depends on them.
//! Eviction order, least recently used first within each group: entries that are not needed; then needed components whose compiled form is in the
//! cache (they can be fetched again). A needed compiled file is never evicted; the new file is refused instead.
//!
//! Invariant: entries plus reservations never exceed the limit after a successful [`Index::reserve`].

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::{ByteSize, Digest};

/// The kind of a file in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The component as it was uploaded.
    Component,
    /// The component compiled for this node.
    Compiled,
}

/// The identity of a file in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The component's digest.
    pub digest: Digest,
    /// Whether it is the component or its compiled form.
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    size: u64,
    used: u64,
}

/// There is no room, and none can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheFull {
    /// The size that was requested.
    pub wanted: ByteSize,
    /// The size that cannot be evicted.
    pub needed: ByteSize,
    /// The limit of the cache.
    pub limit: ByteSize,
}

/// The index of the cache.
#[derive(Debug)]
pub struct Index {
    limit: u64,
    entries: BTreeMap<Key, Entry>,
    needed: BTreeSet<Digest>,
    reserved: u64,
    clock: u64,
}

impl Index {
    /// An empty index with this limit.
    #[must_use]
    pub const fn new(limit: ByteSize) -> Self {
        Self {
            limit: limit.as_bytes(),
            entries: BTreeMap::new(),
            needed: BTreeSet::new(),
            reserved: 0,
            clock: 0,
        }
    }

    /// Sets the components that are needed from now on.
    pub fn set_needed(&mut self, needed: BTreeSet<Digest>) {
        self.needed = needed;
    }

    /// Adds a file as the most recently used one.
    pub fn insert(&mut self, key: Key, size: u64) {
        self.clock += 1;
        let used = self.clock;
        self.entries.insert(key, Entry { size, used });
    }

    /// Marks a file as used; `false` if it is not there.
    pub fn touch(&mut self, key: Key) -> bool {
        self.clock += 1;
        let used = self.clock;
        self.entries
            .get_mut(&key)
            .map(|entry| entry.used = used)
            .is_some()
    }

    /// Removes a file from the index.
    pub fn remove(&mut self, key: Key) {
        self.entries.remove(&key);
    }

    /// The total size of all files, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.entries.values().map(|entry| entry.size).sum()
    }

    /// The total size of the needed files, in bytes.
    #[must_use]
    pub fn needed_size(&self) -> u64 {
        self.entries
            .iter()
            .filter(|(key, _)| self.needed.contains(&key.digest))
            .map(|(_, entry)| entry.size)
            .sum()
    }

    /// Reserves room for `wanted` bytes and returns the files to delete for it, which are already removed from the index.
    ///
    /// # Errors
    /// [`CacheFull`] when evicting all that may go is not enough; nothing is changed then.
    pub fn reserve(&mut self, wanted: u64) -> Result<Vec<Key>, CacheFull> {
        let victims = self.victims(wanted)?;
        for key in &victims {
            self.entries.remove(key);
        }
        self.reserved += wanted;
        Ok(victims)
    }

    /// Releases a reservation, whether the file was written or not.
    pub fn release(&mut self, reserved: u64) {
        self.reserved = self.reserved.saturating_sub(reserved);
    }

    fn victims(&self, wanted: u64) -> Result<Vec<Key>, CacheFull> {
        let total = self.size() + self.reserved;
        let mut surplus = (total + wanted).saturating_sub(self.limit);
        let mut order: Vec<(bool, u64, Key, u64)> = self
            .entries
            .iter()
            .filter_map(|(key, entry)| {
                let needed = self.needed.contains(&key.digest);
                self.may_go(*key)
                    .then_some((needed, entry.used, *key, entry.size))
            })
            .collect();
        order.sort_unstable();
        let mut victims = Vec::new();
        for (_, _, key, size) in order {
            if surplus == 0 {
                break;
            }
            surplus = surplus.saturating_sub(size);
            victims.push(key);
        }
        if surplus > 0 {
            return Err(CacheFull {
                wanted: ByteSize::from_bytes(wanted),
                needed: ByteSize::from_bytes(self.needed_size() + self.reserved),
                limit: ByteSize::from_bytes(self.limit),
            });
        }
        Ok(victims)
    }

    fn may_go(&self, key: Key) -> bool {
        let compiled = Key {
            kind: Kind::Compiled,
            ..key
        };
        !self.needed.contains(&key.digest)
            || (key.kind == Kind::Component && self.entries.contains_key(&compiled))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn digest(n: u8) -> Digest {
        Digest::of(&[n])
    }

    fn component(n: u8) -> Key {
        Key {
            digest: digest(n),
            kind: Kind::Component,
        }
    }

    fn compiled(n: u8) -> Key {
        Key {
            digest: digest(n),
            kind: Kind::Compiled,
        }
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut index = Index::new(ByteSize::from_bytes(30));
        for n in 0..3 {
            index.insert(component(n), 10);
        }
        assert!(index.touch(component(0)));
        assert_eq!(index.reserve(5), Ok(vec![component(1)]));
        assert!(!index.touch(component(1)), "an evicted file is gone");
    }

    #[test]
    fn needed_files_stay_but_a_component_goes_before_the_newcomer_is_refused() {
        let mut index = Index::new(ByteSize::from_bytes(40));
        index.insert(component(0), 10);
        index.insert(compiled(0), 20);
        index.insert(component(1), 10);
        index.set_needed([digest(0)].into());
        assert_eq!(index.reserve(10), Ok(vec![component(1)]));
        index.release(10);
        assert_eq!(index.reserve(20), Ok(vec![component(0)]));
        index.release(20);
        let full = index
            .reserve(21)
            .expect_err("only the needed compiled file is left");
        assert_eq!(full.needed.as_bytes(), 20);
        assert!(index.touch(compiled(0)), "a refusal changes nothing");
    }

    #[test]
    fn a_component_without_its_compiled_form_is_kept_while_needed() {
        let mut index = Index::new(ByteSize::from_bytes(10));
        index.insert(component(0), 10);
        index.set_needed([digest(0)].into());
        assert!(index.reserve(1).is_err());
        index.set_needed(BTreeSet::new());
        assert_eq!(index.reserve(1), Ok(vec![component(0)]));
    }

    proptest! {
        #[test]
        fn the_bound_holds_and_needed_compiled_files_survive(
            steps in prop::collection::vec((0_u8..6, any::<bool>(), 1_u64..60, any::<bool>()), 1..80),
            needed in prop::collection::btree_set(0_u8..6, 0..4),
        ) {
            let mut index = Index::new(ByteSize::from_bytes(100));
            index.set_needed(needed.iter().copied().map(digest).collect());
            for (n, is_component, size, touch) in steps {
                let key = if is_component { component(n) } else { compiled(n) };
                if touch {
                    index.touch(key);
                    continue;
                }
                index.remove(key);
                let before: Vec<_> = needed.iter().copied().map(compiled).filter(|k| index.entries.contains_key(k)).collect();
                if index.reserve(size).is_ok() {
                    index.release(size);
                    index.insert(key, size);
                }
                prop_assert!(index.size() <= 100);
                for kept in before {
                    prop_assert!(index.entries.contains_key(&kept));
                }
            }
        }
    }
}
