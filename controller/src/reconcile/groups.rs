//! The groups that client prefixes belong to, each worked out once for all apps of a pass.
//!
//! A thousand apps are asked for from the same places. How far a place is from every cluster, and which group that makes, does not depend on the
//! app; groups are numbered in the order of their keys, so that equal networks give equal plans whatever was asked for first.

use std::collections::BTreeMap;

use fdn_core::{ClientPrefix, Millis};
use fdn_scheduling::group::GroupKey;

use super::world::World;

/// A group.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// How its members see the clusters.
    pub(super) key: GroupKey,
    /// Its name.
    pub(super) name: String,
    /// How far it is from each cluster of the world.
    pub(super) distance: Vec<Millis>,
}

/// The groups of all prefixes of a pass.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: Vec<Group>,
    of: BTreeMap<ClientPrefix, usize>,
}

impl Groups {
    /// Works out the groups of `prefixes`.
    pub(super) fn new(world: &World, prefixes: impl IntoIterator<Item = ClientPrefix>) -> Self {
        let mut keys: BTreeMap<GroupKey, Vec<ClientPrefix>> = BTreeMap::new();
        let mut seen = std::collections::BTreeSet::new();
        for prefix in prefixes {
            if seen.insert(prefix) {
                keys.entry(world.group(prefix)).or_default().push(prefix);
            }
        }
        let mut groups = Self::default();
        for (number, (key, members)) in keys.into_iter().enumerate() {
            groups.groups.push(Group {
                distance: world.distances(&key),
                name: key.to_string(),
                key,
            });
            groups.of.extend(members.into_iter().map(|p| (p, number)));
        }
        groups
    }

    /// The number of a prefix's group.
    pub(super) fn of(&self, prefix: ClientPrefix) -> Option<usize> {
        self.of.get(&prefix).copied()
    }

    /// A group by its number.
    pub(super) fn get(&self, number: usize) -> &Group {
        &self.groups[number]
    }
}
