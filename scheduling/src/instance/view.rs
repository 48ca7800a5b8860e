//! The global scheduler's view of free resources, and the node with the most room for a demand.
//!
//! A tournament tree: each inner entry holds the most room in its subtree and the class-by-class maximum of what is free there, so that a
//! subtree where the demand cannot fit is skipped at once.
//!
//! **Complexity.** O(log n) per change. O(log n) per query when all nodes have resources of one class, as unit slots do; with several
//! classes the bound of a subtree may promise what none of its nodes has, and in the worst case all are visited.
//!
//! **Ties.** The smaller index.

use super::demand::Demand;
use super::message::NodeIndex;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Entry<D> {
    room: u32,
    bound: D,
}

/// The tournament tree.
#[derive(Clone, Debug)]
pub(super) struct View<D> {
    /// The root at 1, the leaves from `leaves` on.
    entries: Vec<Entry<D>>,
    leaves: usize,
}

impl<D: Demand> View<D> {
    /// A view of `nodes` nodes with nothing free anywhere.
    pub(super) fn new(nodes: usize) -> Self {
        let leaves = nodes.next_power_of_two();
        Self {
            entries: vec![Entry::default(); leaves * 2],
            leaves,
        }
    }

    /// Extends the view to `nodes` nodes, keeping what is free on the present ones.
    pub(super) fn grow(&mut self, nodes: usize) {
        let leaves = nodes.next_power_of_two();
        if leaves <= self.leaves {
            return;
        }
        let mut grown = Self::new(nodes);
        grown.entries[leaves..leaves + self.leaves]
            .copy_from_slice(&self.entries[self.leaves..self.leaves * 2]);
        for at in (1..leaves).rev() {
            let (left, right) = (grown.entries[at * 2], grown.entries[at * 2 + 1]);
            grown.entries[at] = Entry {
                room: left.room.max(right.room),
                bound: left.bound.ceiling(&right.bound),
            };
        }
        *self = grown;
    }

    pub(super) fn free(&self, node: NodeIndex) -> D {
        self.entries[self.leaves + node.get()].bound
    }

    pub(super) fn set(&mut self, node: NodeIndex, free: D, room: u32) {
        let mut at = self.leaves + node.get();
        self.entries[at] = Entry { room, bound: free };
        while at > 1 {
            at /= 2;
            let (left, right) = (self.entries[at * 2], self.entries[at * 2 + 1]);
            let entry = Entry {
                room: left.room.max(right.room),
                bound: left.bound.ceiling(&right.bound),
            };
            if entry == self.entries[at] {
                return;
            }
            self.entries[at] = entry;
        }
    }

    /// Whether some node may have room, in O(1); if false, none has.
    pub(super) fn may_fit(&self, demand: &D) -> bool {
        demand.fits(&self.entries[1].bound)
    }

    /// The node with the most room among those where the demand fits; ties by the smaller index.
    pub(super) fn best(&self, demand: &D) -> Option<NodeIndex> {
        let (_, leaf) = self.best_below(1, demand, None)?;
        Some(NodeIndex(
            u32::try_from(leaf - self.leaves).expect("there are fewer nodes than that"),
        ))
    }

    /// The best leaf of a subtree, if it has more room than `least`.
    fn best_below(&self, at: usize, demand: &D, least: Option<u32>) -> Option<(u32, usize)> {
        let entry = &self.entries[at];
        if !demand.fits(&entry.bound) || least.is_some_and(|least| entry.room <= least) {
            return None;
        }
        if at >= self.leaves {
            return Some((entry.room, at));
        }
        let (left, right) = (at * 2, at * 2 + 1);
        if self.entries[left].room >= self.entries[right].room {
            let first = self.best_below(left, demand, least);
            let least = first.map_or(least, |(room, _)| Some(room));
            self.best_below(right, demand, least).or(first)
        } else {
            let first = self.best_below(right, demand, least);
            // On a tie the left one wins.
            let below = match first {
                Some((0, _)) => None,
                Some((room, _)) => Some(room - 1),
                None => least,
            };
            self.best_below(left, demand, below.max(least)).or(first)
        }
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::{MebiBytes, MilliCpu, Resources};
    use proptest::prelude::*;

    use super::super::demand::Slots;
    use super::*;

    fn check<D: Demand>(capacity: D, changes: &[(usize, D)], demands: &[D], nodes: usize) {
        let mut view = View::new(nodes);
        let mut model = vec![D::default(); nodes];
        for (at, free) in changes {
            let node = NodeIndex(u32::try_from(at % nodes).unwrap());
            view.set(node, *free, free.room(&capacity));
            model[node.get()] = *free;
            assert_eq!(view.free(node), *free);
            for demand in demands {
                let best = (0..nodes)
                    .filter(|&node| demand.fits(&model[node]))
                    .min_by_key(|&node| (std::cmp::Reverse(model[node].room(&capacity)), node))
                    .map(|node| NodeIndex(u32::try_from(node).unwrap()));
                assert_eq!(view.best(demand), best, "{model:?} {demand:?}");
                assert!(best.is_none() || view.may_fit(demand));
            }
        }
    }

    proptest! {
        #[test]
        fn the_best_node_is_the_one_a_look_at_all_of_them_finds(
            nodes in 1usize..20,
            changes in prop::collection::vec((0usize..20, 0u32..4), 1..40),
        ) {
            let changes: Vec<(usize, Slots)> =
                changes.into_iter().map(|(at, free)| (at, Slots(free))).collect();
            check(Slots(20), &changes, &[Slots(1), Slots(2), Slots(4)], nodes);
        }

        #[test]
        fn a_view_that_has_grown_is_one_that_was_as_large_from_the_start(
            steps in prop::collection::vec((0usize..40, 0u32..5, 1usize..40), 1..40),
        ) {
            let (mut grown, mut large) = (View::new(1), View::new(40));
            let mut size = 1;
            for (at, free, nodes) in steps {
                size = size.max(nodes);
                grown.grow(size);
                let node = NodeIndex(u32::try_from(at % size).unwrap());
                for view in [&mut grown, &mut large] {
                    view.set(node, Slots(free), free);
                }
                for demand in 1..5 {
                    prop_assert_eq!(grown.best(&Slots(demand)), large.best(&Slots(demand)));
                }
            }
        }

        #[test]
        fn the_best_node_by_several_classes(
            nodes in 1usize..20,
            changes in prop::collection::vec((0usize..20, 0u64..4, 0u64..4), 1..40),
        ) {
            let vector = |cpu, memory| Resources::new(MilliCpu(cpu), MebiBytes(memory));
            let changes: Vec<(usize, Resources)> = changes
                .into_iter()
                .map(|(at, cpu, memory)| (at, vector(cpu, memory)))
                .collect();
            let demands = [vector(1, 1), vector(3, 1), vector(0, 3), vector(4, 0)];
            check(vector(4, 4), &changes, &demands, nodes);
        }
    }
}
