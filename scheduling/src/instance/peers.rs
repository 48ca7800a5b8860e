//! The other nodes of the cluster: which are lost, and random choices among the rest.

use rand::{Rng, RngExt};

use super::message::NodeIndex;

/// How many draws a choice makes before it gives up because all hit lost nodes.
const DRAWS: usize = 8;

/// The other nodes, as seen by one of them.
#[derive(Clone, Debug)]
pub(super) struct Peers {
    this: NodeIndex,
    count: u32,
    /// Sorted; nearly always empty.
    lost: Vec<NodeIndex>,
}

impl Peers {
    pub(super) const fn new(this: NodeIndex, count: u32) -> Self {
        Self {
            this,
            count,
            lost: Vec::new(),
        }
    }

    pub(super) fn lose(&mut self, node: NodeIndex) {
        if let Err(at) = self.lost.binary_search(&node) {
            self.lost.insert(at, node);
        }
    }

    pub(super) fn regain(&mut self, node: NodeIndex) {
        if let Ok(at) = self.lost.binary_search(&node) {
            self.lost.remove(at);
        }
    }

    /// Raises the number of nodes to `count`; it never decreases.
    pub(super) fn grow(&mut self, count: u32) {
        self.count = self.count.max(count);
    }

    pub(super) fn lost(&self) -> &[NodeIndex] {
        &self.lost
    }

    pub(super) fn is_lost(&self, node: NodeIndex) -> bool {
        self.lost.binary_search(&node).is_ok()
    }

    /// Another node that is not lost, drawn uniformly.
    pub(super) fn one(&self, rng: &mut impl Rng) -> Option<NodeIndex> {
        self.draw(None, rng)
    }

    /// Two distinct other nodes that are not lost, drawn uniformly among all pairs.
    pub(super) fn two(&self, rng: &mut impl Rng) -> [Option<NodeIndex>; 2] {
        let first = self.draw(None, rng);
        [first, first.and_then(|_| self.draw(first, rng))]
    }

    /// Another node, different from the one drawn before.
    fn draw(&self, before: Option<NodeIndex>, rng: &mut impl Rng) -> Option<NodeIndex> {
        let before = before.map_or(self.this.0, |node| node.0);
        let (low, high) = (before.min(self.this.0), before.max(self.this.0));
        let excluded = 1 + u32::from(low != high);
        if self.count <= excluded {
            return None;
        }
        for _ in 0..DRAWS {
            let mut drawn = rng.random_range(0..self.count - excluded);
            drawn += u32::from(drawn >= low);
            drawn += u32::from(low != high && drawn >= high);
            let node = NodeIndex(drawn);
            if !self.is_lost(node) {
                return Some(node);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn two_distinct_others_are_drawn_uniformly() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let peers = Peers::new(NodeIndex(2), 5);
        let mut seen = [[0u32; 5]; 5];
        for _ in 0..12_000 {
            let [Some(a), Some(b)] = peers.two(&mut rng) else {
                panic!("there are two");
            };
            seen[a.get()][b.get()] += 1;
        }
        for (a, row) in seen.iter().enumerate() {
            for (b, count) in row.iter().enumerate() {
                if a == b || a == 2 || b == 2 {
                    assert_eq!(*count, 0, "{a} {b}");
                } else {
                    assert!((850..1150).contains(count), "{a} {b}: {count}");
                }
            }
        }
    }

    #[test]
    fn lost_nodes_are_not_drawn() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut peers = Peers::new(NodeIndex(0), 4);
        peers.lose(NodeIndex(2));
        peers.lose(NodeIndex(2));
        for _ in 0..1000 {
            assert!(!peers.two(&mut rng).contains(&Some(NodeIndex(2))));
        }
        peers.regain(NodeIndex(2));
        assert!((0..100).any(|_| peers.one(&mut rng) == Some(NodeIndex(2))));
    }

    #[test]
    fn a_small_cluster_has_fewer_others() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        assert_eq!(Peers::new(NodeIndex(0), 1).two(&mut rng), [None, None]);
        let two = Peers::new(NodeIndex(1), 2).two(&mut rng);
        assert_eq!(two, [Some(NodeIndex(0)), None]);
        let mut all_lost = Peers::new(NodeIndex(0), 3);
        all_lost.lose(NodeIndex(1));
        all_lost.lose(NodeIndex(2));
        assert_eq!(all_lost.two(&mut rng), [None, None]);
    }
}
