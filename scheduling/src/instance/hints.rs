//! Hints: a snapshot of what is free everywhere, a few milliseconds old, instead of questions.
//!
//! **Problem.** A question costs a round trip, and half of them are answered no on a busy cluster. A node that knows roughly
//! what is free elsewhere sends the task itself, which takes one way, and the node that gets it looks for itself.
//!
//! **Source.** The power of d choices (Mitzenmacher: IEEE TPDS 12(10), 2001) on stale information: the best of all would draw
//! every node to the same place until the next snapshot; the best of eight random ones spreads. What was sent away is subtracted
//! from the own copy, so that one node does not send twice to the same room.
//!
//! **Complexity.** O(d) per choice, O(n) per snapshot; a snapshot takes n demands of memory on each node.

use rand::Rng;

use super::demand::Demand;
use super::message::NodeIndex;
use super::peers::Peers;

/// What a node has, and what of it is free.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load<D> {
    /// All of it.
    pub capacity: D,
    /// What is neither used nor reserved.
    pub free: D,
}

/// The own copy of the last snapshot.
#[derive(Clone, Debug, Default)]
pub(super) struct Hints<D> {
    loads: Vec<Load<D>>,
}

impl<D: Demand> Hints<D> {
    /// Takes a new snapshot.
    pub(super) fn renew(&mut self, loads: &[Load<D>]) {
        self.loads.clear();
        self.loads.extend_from_slice(loads);
    }

    /// Nothing is free on a lost node.
    pub(super) fn forget(&mut self, node: NodeIndex) {
        if let Some(load) = self.loads.get_mut(node.get()) {
            load.free = D::default();
        }
    }

    /// The node with the most room of `sample` random ones, among those where the demand fits by the snapshot; ties the one
    /// drawn first, so that nodes do not all prefer the same. Its room is taken off the copy.
    pub(super) fn best(
        &mut self,
        demand: &D,
        sample: u32,
        peers: &Peers,
        rng: &mut impl Rng,
    ) -> Option<NodeIndex> {
        if self.loads.is_empty() {
            return None;
        }
        let mut best: Option<(u32, NodeIndex)> = None;
        for _ in 0..sample {
            let Some(node) = peers.one(rng) else {
                break;
            };
            let Some(load) = self.loads.get(node.get()) else {
                continue;
            };
            let room = load.free.room(&load.capacity);
            if demand.fits(&load.free) && best.is_none_or(|(most, _)| room > most) {
                best = Some((room, node));
            }
        }
        let (_, node) = best?;
        let load = &mut self.loads[node.get()];
        load.free = load.free.minus_or_zero(demand);
        Some(node)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::super::demand::Slots;
    use super::*;

    fn loads(free: &[u32]) -> Vec<Load<Slots>> {
        let load = |&free| Load {
            capacity: Slots(20),
            free: Slots(free),
        };
        free.iter().map(load).collect()
    }

    #[test]
    fn the_most_room_of_the_sample_is_taken_off_the_copy() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let peers = Peers::new(NodeIndex(0), 4);
        let mut hints = Hints::default();
        let mut best = |hints: &mut Hints<Slots>| hints.best(&Slots(1), 64, &peers, &mut rng);
        assert_eq!(best(&mut hints), None, "there is no snapshot yet");
        hints.renew(&loads(&[9, 0, 2, 1]));
        assert_eq!(
            best(&mut hints),
            Some(NodeIndex(2)),
            "never this node itself"
        );
        let mut then = [best(&mut hints), best(&mut hints)];
        then.sort_unstable();
        assert_eq!(then, [Some(NodeIndex(2)), Some(NodeIndex(3))]);
        assert_eq!(best(&mut hints), None, "all was sent away");
        hints.renew(&loads(&[9, 0, 2, 1]));
        hints.forget(NodeIndex(2));
        assert_eq!(best(&mut hints), Some(NodeIndex(3)));
    }

    #[test]
    fn a_small_sample_spreads() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let peers = Peers::new(NodeIndex(0), 100);
        let mut hints = Hints::default();
        let mut chosen = [0u32; 100];
        let mut free = vec![1; 100];
        free[50] = 20;
        for _ in 0..1000 {
            hints.renew(&loads(&free));
            let node = hints.best(&Slots(1), 8, &peers, &mut rng).unwrap();
            chosen[node.get()] += 1;
        }
        // The best one is among eight of 99 with probability 1 - (98/99)^8 = 0.078.
        assert!((50..110).contains(&chosen[50]), "{}", chosen[50]);
        assert!(chosen.iter().filter(|count| **count > 0).count() > 95);
    }
}
