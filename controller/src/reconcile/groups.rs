//! The groups of client prefixes, computed once for all apps of a pass.
//!
//! Many apps are called from the same places. A prefix's distances from the clusters, and the group that they imply, do not depend on the
//! app. Groups are numbered in the order of their keys, so that equal networks give equal plans whatever was asked for first.

use std::collections::BTreeMap;

use fdn_core::{ClientPrefix, Millis};
use fdn_scheduling::group::GroupKey;

use super::world::World;

/// A client group.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// The distances by which its members are grouped.
    pub(super) key: GroupKey,
    /// Its name, as used for plans.
    pub(super) name: String,
    /// Its distance from each cluster, in the order of the world's clusters.
    pub(super) distance: Vec<Millis>,
}

/// The groups of all prefixes of a pass.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: Vec<Group>,
    of: BTreeMap<ClientPrefix, usize>,
}

impl Groups {
    /// Computes the groups of `prefixes`.
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

    /// The number of a prefix's group; `None` for a prefix that was not given.
    pub(super) fn of(&self, prefix: ClientPrefix) -> Option<usize> {
        self.of.get(&prefix).copied()
    }

    /// The group with this number.
    pub(super) fn get(&self, number: usize) -> &Group {
        &self.groups[number]
    }
}
