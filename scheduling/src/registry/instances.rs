//! The instances, with the counts of each function and the set of each node, which are never counted anew.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::InstanceId;

use super::counts::Counts;
use super::lifecycle::State;
use super::profile::FunctionIndex;
use super::stamp::Stamp;
use crate::NodeIndex;

/// An instance as the registry holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Whose it is.
    pub function: FunctionIndex,
    /// What it does.
    pub state: State,
    /// Where it is; none while it is pending.
    pub node: Option<NodeIndex>,
    /// When its node said so last; none as long as the node has said nothing of it.
    pub stamp: Option<Stamp>,
}

/// An instance that is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Its id.
    pub id: InstanceId,
    /// Whose it was.
    pub function: FunctionIndex,
    /// What it did.
    pub state: State,
}

/// All instances.
#[derive(Debug, Default)]
pub(super) struct Instances {
    by_id: BTreeMap<InstanceId, Instance>,
    on: Vec<BTreeSet<InstanceId>>,
    counts: Vec<Counts>,
}

impl Instances {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn get(&self, id: InstanceId) -> Option<&Instance> {
        self.by_id.get(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (InstanceId, &Instance)> {
        self.by_id.iter().map(|(id, instance)| (*id, instance))
    }

    pub(super) fn counts(&self, function: FunctionIndex) -> Counts {
        self.counts.get(function.get()).copied().unwrap_or_default()
    }

    /// The instances on a node, by id.
    pub(super) fn on(&self, node: NodeIndex) -> impl Iterator<Item = InstanceId> {
        let sets = self.on.get(node.get());
        sets.into_iter().flatten().copied()
    }

    /// Holds this of an instance from now on; one that is gone is forgotten. Returns what was held.
    pub(super) fn set(&mut self, id: InstanceId, instance: Instance) -> Option<Instance> {
        let before = self.by_id.get(&id).copied();
        if let Some(before) = &before {
            self.count(before, |count| *count -= 1);
            if let Some(node) = before.node {
                self.on[node.get()].remove(&id);
            }
        }
        if instance.state == State::Gone {
            self.by_id.remove(&id);
            return before;
        }
        self.count(&instance, |count| *count += 1);
        if let Some(node) = instance.node {
            if node.get() >= self.on.len() {
                self.on.resize_with(node.get() + 1, BTreeSet::new);
            }
            self.on[node.get()].insert(id);
        }
        self.by_id.insert(id, instance);
        before
    }

    /// Forgets an instance and says what it was.
    pub(super) fn remove(&mut self, id: InstanceId) -> Option<Lost> {
        let held = *self.by_id.get(&id)?;
        let gone = Instance {
            state: State::Gone,
            ..held
        };
        self.set(id, gone);
        Some(Lost {
            id,
            function: held.function,
            state: held.state,
        })
    }

    fn count(&mut self, instance: &Instance, change: impl FnOnce(&mut u32)) {
        let function = instance.function.get();
        if function >= self.counts.len() {
            self.counts.resize(function + 1, Counts::default());
        }
        if let Some(count) = self.counts[function].of(instance.state) {
            change(count);
        }
    }
}
