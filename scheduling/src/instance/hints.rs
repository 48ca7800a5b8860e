//! Forwarding by hints: a snapshot of every node's free resources, a few milliseconds old, replaces probes.
//!
//! **Problem.** A probe costs a round trip, and half of them are answered no on a busy cluster. A node that knows roughly what is free
//! elsewhere sends the task itself, which takes one way; the receiving node does its own local check.
//!
//! **Source.** The best of eight random nodes by a snapshot, whose local copy is decremented with each task sent (the power of d choices,
//! Mitzenmacher: IEEE TPDS 12(10), 2001). All nodes decide by the same snapshot, so the older it is and the more tasks are sent by it,
//! the more of them collide where it showed most room. [`Spread::Even`] therefore interprets the age (Dahlin: IEEE TPDS 11(10), 2000):
//! within the sample, each node is chosen with the probability that fills all of them to one level, given how many tasks a node receives
//! per snapshot. With few tasks per snapshot that is the node with the most room; with many, any of them. A node estimates that number
//! from what it sends itself, since on average it receives as many.
//!
//! [`Spread::Dealt`] avoids collisions: the free slots in the snapshot are partitioned among the nodes. The slots are ordered by level,
//! those of the nodes with the most room first (a node with three free slots has one on the third, the second and the first level), and
//! every n-th belongs to the same node. All nodes compute the same partition from the same snapshot, without a message, so each slot is
//! used once; where snapshots differ, some tasks collide, and the next hop resolves that. A node that has used up its slots continues
//! with [`Spread::Even`].
//!
//! **Complexity.** O(d^2) per choice for samples of d nodes; O(n) per snapshot, and k·O(n) to deal k slots with the first choice after
//! it; each node keeps n loads of the snapshot in memory.

use rand::{Rng, RngExt};

use super::demand::Demand;
use super::message::NodeIndex;
use super::peers::Peers;
use super::settings::{HINT_SAMPLE_MAX, Spread};

/// The weight of the latest snapshot in the moving average of tasks sent per snapshot.
const FOLLOW: f64 = 1.0 / 16.0;

/// A node's capacity and the free part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load<D> {
    /// Its capacity.
    pub capacity: D,
    /// The part neither used nor reserved.
    pub free: D,
}

/// The highest level: room for more tasks than this counts as this many.
const LEVELS: usize = 32;

/// The most slots dealt to a node per snapshot.
const HAND: usize = 8;

/// The node's copy of the last snapshot.
#[derive(Clone, Debug)]
pub(super) struct Hints<D> {
    this: NodeIndex,
    loads: Vec<Load<D>>,
    /// The nodes of the slots dealt to this one, the best last; valid if `is_dealt`.
    hand: Vec<NodeIndex>,
    is_dealt: bool,
    /// Tasks sent by this snapshot, and the moving average over earlier ones.
    sent: u32,
    mean_sent: f64,
}

/// A node of the sample, and for how many tasks of the present demand it has room.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Candidate {
    node: NodeIndex,
    room: f64,
}

impl<D: Demand> Hints<D> {
    pub(super) fn new(this: NodeIndex) -> Self {
        Self {
            this,
            loads: Vec::new(),
            hand: Vec::with_capacity(HAND),
            is_dealt: false,
            sent: 0,
            mean_sent: 0.0,
        }
    }

    /// Replaces the snapshot.
    pub(super) fn renew(&mut self, loads: &[Load<D>]) {
        self.is_dealt = false;
        self.loads.clear();
        self.loads.extend_from_slice(loads);
        self.mean_sent += (f64::from(self.sent) - self.mean_sent) * FOLLOW;
        self.sent = 0;
    }

    /// Marks a lost node as having nothing free.
    pub(super) fn forget(&mut self, node: NodeIndex) {
        if let Some(load) = self.loads.get_mut(node.get()) {
            load.free = D::default();
        }
    }

    /// Chooses a node by the snapshot, from a random `sample` or from the slots dealt to this node, and subtracts the demand from the copy.
    pub(super) fn choose(
        &mut self,
        demand: &D,
        sample: u32,
        spread: Spread,
        peers: &Peers,
        rng: &mut impl Rng,
    ) -> Option<NodeIndex> {
        if self.loads.is_empty() {
            return None;
        }
        if spread == Spread::Dealt
            && let Some(node) = self.own(demand, peers)
        {
            self.send(node, demand);
            return Some(node);
        }
        let mut drawn = [Candidate::default(); HINT_SAMPLE_MAX as usize];
        let mut count = 0;
        for _ in 0..sample.min(HINT_SAMPLE_MAX) {
            if let Some(candidate) = peers.one(rng).and_then(|node| self.candidate(node, demand)) {
                // Sorted by room, descending; equals in the order drawn.
                let at = drawn[..count].partition_point(|other| other.room >= candidate.room);
                drawn.copy_within(at..count, at + 1);
                drawn[at] = candidate;
                count += 1;
            }
        }
        let sorted = &drawn[..count];
        let chosen = match spread {
            Spread::Best => sorted.first()?.node,
            Spread::Even | Spread::Dealt => even(sorted, self.mean_sent, rng)?,
        };
        self.send(chosen, demand);
        Some(chosen)
    }

    fn send(&mut self, node: NodeIndex, demand: &D) {
        let load = &mut self.loads[node.get()];
        load.free = load.free.minus_or_zero(demand);
        self.sent += 1;
    }

    /// Takes the node of the best remaining slot of those dealt to this one.
    fn own(&mut self, demand: &D, peers: &Peers) -> Option<NodeIndex> {
        if !self.is_dealt {
            self.is_dealt = true;
            self.deal(demand);
        }
        while let Some(node) = self.hand.pop() {
            let fits = demand.fits(&self.loads[node.get()].free);
            if fits && node != self.this && !peers.is_lost(node) {
                return Some(node);
            }
        }
        None
    }

    /// For how many tasks of this demand a node has room, at most [`LEVELS`].
    fn level(load: &Load<D>, demand: &D) -> usize {
        if !demand.fits(&load.free) {
            return 0;
        }
        let each = demand.room(&load.capacity).max(1);
        ((load.free.room(&load.capacity) / each).max(1) as usize).min(LEVELS)
    }

    /// Deals the free resources in units of this demand.
    fn deal(&mut self, demand: &D) {
        self.hand.clear();
        let nodes = self.loads.len();
        // By level, how many nodes have exactly that much room; and who is dealt the first slot, which varies from snapshot to snapshot.
        let mut count = [0; LEVELS + 1];
        let mut dealer = 0;
        for (load, at) in self.loads.iter().zip(1..) {
            let level = Self::level(load, demand);
            count[level] += 1;
            dealer = (dealer + level * at) % nodes;
        }
        let mut rank = (self.this.get() + nodes - dealer) % nodes;
        let (mut first, mut wide) = (0, 0);
        for level in (1..=LEVELS).rev() {
            // A level has as many slots as there are nodes with room for at least that many tasks.
            wide += count[level];
            while rank < first + wide && self.hand.len() < HAND {
                let reaches = |(_, load): &(u32, &Load<D>)| Self::level(load, demand) >= level;
                let mut there = (0..).zip(&self.loads).filter(reaches);
                self.hand
                    .extend(there.nth(rank - first).map(|(node, _)| NodeIndex(node)));
                rank += nodes;
            }
            first += wide;
        }
        self.hand.reverse();
    }

    fn candidate(&self, node: NodeIndex, demand: &D) -> Option<Candidate> {
        let load = self.loads.get(node.get())?;
        let room = if demand.fits(&load.free) {
            let each = demand.room(&load.capacity).max(1);
            f64::from(load.free.room(&load.capacity)) / f64::from(each)
        } else {
            0.0
        };
        Some(Candidate { node, room })
    }
}

/// Draws one of the candidates, sorted by room, with the probabilities that bring all to one level when each is sent `inflow` tasks on average.
fn even(sorted: &[Candidate], inflow: f64, rng: &mut impl Rng) -> Option<NodeIndex> {
    let total = inflow * sorted.len() as f64;
    let mut drawn = total * rng.random::<f64>();
    // The level follows from the first k candidates as long as the next one lies below it.
    let mut sum = 0.0;
    let mut level = f64::INFINITY;
    for (candidate, k) in sorted.iter().zip(1u32..) {
        if candidate.room <= level && k > 1 {
            break;
        }
        sum += candidate.room;
        level = (sum - total) / f64::from(k);
    }
    for candidate in sorted {
        let above = candidate.room - level;
        if drawn < above {
            return Some(candidate.node);
        }
        drawn -= above.max(0.0);
    }
    // Reached when nothing is sent, or when the probabilities sum to less than 1 by rounding.
    sorted.first().map(|best| best.node)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use proptest::prelude::*;

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
        let mut hints = Hints::new(NodeIndex(0));
        let mut best =
            |hints: &mut Hints<Slots>| hints.choose(&Slots(1), 32, Spread::Best, &peers, &mut rng);
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
        assert!(
            best(&mut hints).is_some(),
            "all was sent away, but it may be wrong"
        );
        hints.renew(&loads(&[9, 0, 2, 1]));
        hints.forget(NodeIndex(2));
        assert_eq!(best(&mut hints), Some(NodeIndex(3)));
    }

    #[test]
    fn a_small_sample_spreads() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let peers = Peers::new(NodeIndex(0), 100);
        let mut hints = Hints::new(NodeIndex(0));
        let mut chosen = [0u32; 100];
        let mut free = vec![1; 100];
        free[50] = 20;
        for _ in 0..1000 {
            hints.renew(&loads(&free));
            let node = hints
                .choose(&Slots(1), 8, Spread::Best, &peers, &mut rng)
                .unwrap();
            chosen[node.get()] += 1;
        }
        // The best one is among eight of 99 with probability 1 - (98/99)^8 = 0.078.
        assert!((50..110).contains(&chosen[50]), "{}", chosen[50]);
        assert!(chosen.iter().filter(|count| **count > 0).count() > 95);
    }

    fn shares(rooms: &[f64], inflow: f64) -> Vec<f64> {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let sorted: Vec<Candidate> = rooms
            .iter()
            .zip(0..)
            .map(|(&room, node)| Candidate {
                node: NodeIndex(node),
                room,
            })
            .collect();
        let mut count = vec![0.0; rooms.len()];
        for _ in 0..100_000 {
            count[even(&sorted, inflow, &mut rng).unwrap().get()] += 1e-5;
        }
        count
    }

    fn close(found: &[f64], expected: &[f64]) {
        let near = |(a, b): (&f64, &f64)| (a - b).abs() < 0.01;
        assert!(
            found.iter().zip(expected).all(near),
            "{found:?} {expected:?}"
        );
    }

    #[test]
    fn candidates_are_filled_to_one_level() {
        close(&shares(&[3.0, 2.0, 0.0], 0.0), &[1.0, 0.0, 0.0]);
        // One task comes: it fits above the second.
        close(&shares(&[3.0, 2.0, 0.0], 1.0 / 3.0), &[1.0, 0.0, 0.0]);
        // Two come: the level is (5 - 2) / 2 = 1.5.
        close(&shares(&[3.0, 2.0, 0.0], 2.0 / 3.0), &[0.75, 0.25, 0.0]);
        // Eight come: the level is (5 - 8) / 3 = -1, so 4, 3 and 1 of eight.
        close(&shares(&[3.0, 2.0, 0.0], 8.0 / 3.0), &[0.5, 0.375, 0.125]);
        close(&shares(&[0.0, 0.0], 5.0), &[0.5, 0.5]);
        close(&shares(&[2.0, 2.0], 1.0), &[0.5, 0.5]);
        assert_eq!(even(&[], 1.0, &mut ChaCha8Rng::seed_from_u64(1)), None);
    }

    #[test]
    fn the_inflow_is_learned_from_what_is_sent() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let peers = Peers::new(NodeIndex(0), 3);
        let mut hints = Hints::new(NodeIndex(0));
        for _ in 0..200 {
            hints.renew(&loads(&[0, 5, 5]));
            for _ in 0..3 {
                hints.choose(&Slots(1), 8, Spread::Even, &peers, &mut rng);
            }
        }
        assert!((hints.mean_sent - 3.0).abs() < 0.01, "{}", hints.mean_sent);
    }

    /// What every node is dealt of the same snapshot.
    fn hands(free: &[u32]) -> Vec<Vec<NodeIndex>> {
        let hand = |this| {
            let mut hints = Hints::new(NodeIndex(this));
            hints.renew(&loads(free));
            hints.deal(&Slots(1));
            hints.hand
        };
        (0..).take(free.len()).map(hand).collect()
    }

    proptest! {
        #[test]
        fn every_free_slot_is_dealt_to_one_node(free in prop::collection::vec(0u32..6, 1..40)) {
            let hands = hands(&free);
            let mut dealt = vec![0; free.len()];
            for node in hands.iter().flatten() {
                dealt[node.get()] += 1;
            }
            prop_assert_eq!(&dealt, &free);
            let sizes = || hands.iter().map(Vec::len);
            prop_assert!(sizes().max() <= sizes().min().map(|least| least + 1), "evenly");
        }
    }

    #[test]
    fn the_slots_of_the_emptiest_nodes_are_dealt_first() {
        // Nine slots: two and one level of node 1, then one of three nodes each.
        let hands = hands(&[0, 3, 1, 1, 0, 0]);
        let mut first: Vec<NodeIndex> = hands
            .iter()
            .filter_map(|hand| hand.last().copied())
            .collect();
        first.sort_unstable();
        assert_eq!(first, [1, 1, 1, 2, 3].map(NodeIndex));
        assert!(hands.iter().all(|hand| hand.len() <= 1));
    }

    #[test]
    fn a_node_uses_its_own_slots_before_it_draws() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let free = [0, 9, 9, 0, 0, 0];
        let own = hands(&free);
        let peers = Peers::new(NodeIndex(0), 6);
        let mut hints = Hints::new(NodeIndex(0));
        hints.renew(&loads(&free));
        let mut hand = own[0].clone();
        while let Some(expected) = hand.pop() {
            let chosen = hints.choose(&Slots(1), 8, Spread::Dealt, &peers, &mut rng);
            assert_eq!(chosen, Some(expected));
        }
        assert!(
            hints
                .choose(&Slots(1), 8, Spread::Dealt, &peers, &mut rng)
                .is_some()
        );
    }
}
