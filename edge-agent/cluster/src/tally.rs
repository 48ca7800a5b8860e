//! A table of instances with a sum per process over the instances that concern it: two nodes compare their sums with every ping, so that
//! news of instances that one has missed is detected, however it was lost.
//!
//! The sum is over numbers mixed from the ids, so it changes with every instance added or removed; the difference of two sums stays the same
//! as long as both sides hear of the same instances.

use std::collections::BTreeMap;

use crate::identity::Tag;
use crate::idmap::IdMap;

/// The table.
#[derive(Clone, Debug)]
pub(crate) struct TallyMap<V> {
    entries: IdMap<V>,
    /// The number of instances that concern a process, and their sum.
    sums: BTreeMap<Tag, (usize, u64)>,
    concerns: fn(&V) -> Tag,
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood: OOPSLA 2014).
const fn mix(id: u64) -> u64 {
    let mut x = id.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

impl<V> TallyMap<V> {
    pub(crate) fn new(concerns: fn(&V) -> Tag) -> Self {
        Self {
            entries: IdMap::default(),
            sums: BTreeMap::new(),
            concerns,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn get(&self, id: u64) -> Option<&V> {
        self.entries.get(&id)
    }

    /// The entry, to be changed; the process that it concerns must stay the same.
    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut V> {
        self.entries.get_mut(&id)
    }

    /// All entries, to be changed; the processes that they concern must stay the same.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.entries.values_mut()
    }

    pub(crate) fn insert(&mut self, id: u64, value: V) {
        self.remove(id);
        let (count, sum) = self.sums.entry((self.concerns)(&value)).or_default();
        *count += 1;
        *sum = sum.wrapping_add(mix(id));
        self.entries.insert(id, value);
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<V> {
        let value = self.entries.remove(&id)?;
        let tag = (self.concerns)(&value);
        if let Some((count, sum)) = self.sums.get_mut(&tag) {
            *count -= 1;
            *sum = sum.wrapping_sub(mix(id));
            if *count == 0 {
                self.sums.remove(&tag);
            }
        }
        Some(value)
    }

    /// The sum over the instances that concern a process.
    pub(crate) fn sum(&self, tag: Tag) -> u64 {
        self.sums.get(&tag).map_or(0, |(_, sum)| *sum)
    }

    /// The sorted ids of the instances that concern a process and for which `holds` is true.
    pub(crate) fn ids(&self, tag: Tag, holds: impl Fn(u64, &V) -> bool) -> Vec<u64> {
        if !self.sums.contains_key(&tag) {
            return Vec::new();
        }
        let wanted =
            |entry: &(&u64, &V)| (self.concerns)(entry.1) == tag && holds(*entry.0, entry.1);
        let mut ids: Vec<u64> = self
            .entries
            .iter()
            .filter(wanted)
            .map(|(id, _)| *id)
            .collect();
        ids.sort_unstable();
        ids
    }

    /// All ids, sorted.
    pub(crate) fn all(&self) -> Vec<u64> {
        let mut ids: Vec<u64> = self.entries.keys().copied().collect();
        ids.sort_unstable();
        ids
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tag_of(value: &(u32, u8)) -> Tag {
        Tag::new(value.0)
    }

    proptest! {
        #[test]
        fn the_sum_depends_on_what_is_there_alone(
            steps in prop::collection::vec((0u64..20, 0u32..3, any::<bool>()), 0..100),
        ) {
            let mut table = TallyMap::new(tag_of);
            let mut model: BTreeMap<u64, u32> = BTreeMap::new();
            for (id, tag, put) in steps {
                if put {
                    table.insert(id, (tag, 0));
                    model.insert(id, tag);
                } else {
                    prop_assert_eq!(table.remove(id).map(|value| value.0), model.remove(&id));
                }
                let mut anew = TallyMap::new(tag_of);
                for (id, tag) in &model {
                    anew.insert(*id, (*tag, 1));
                }
                for tag in (0..3).map(Tag::new) {
                    prop_assert_eq!(table.sum(tag), anew.sum(tag));
                    prop_assert_eq!(table.ids(tag, |_, _| true), anew.ids(tag, |_, _| true));
                }
                prop_assert_eq!(table.all(), model.keys().copied().collect::<Vec<u64>>());
            }
        }
    }
}
