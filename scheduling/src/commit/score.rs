//! How suitable a node is for a container.
//!
//! Scores are computed only for nodes that have room, and from the record alone: equal records give equal scores, to the last bit, so
//! that ties between identical nodes are recognised.

use std::cmp::Ordering;

use fdn_core::Resources;

use super::record::NodeRecord;

/// A score; higher is better. Totally ordered: NaN is worse than everything.
#[derive(Clone, Copy, Debug)]
pub struct Score(f64);

impl Score {
    /// Wraps a number; NaN becomes the worst score.
    #[must_use]
    pub const fn new(score: f64) -> Self {
        if score.is_nan() {
            Self(f64::NEG_INFINITY)
        } else {
            // -0.0 becomes 0.0: the two must tie.
            Self(score + 0.0)
        }
    }

    /// The score as a number.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl PartialEq for Score {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// A rule for scoring nodes. Pre-schedulers and committer must use the same one.
pub trait Scoring {
    /// The score of a node, which must have room for this demand.
    fn score(&self, demand: &Resources, node: &NodeRecord) -> Score;
}

/// Prefers the node with the least use: `1 - mean of u_i`, where `u_i` is the utilization of class `i` after placing. Classes that the
/// node lacks are left out.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeastRequested;

/// Prefers the node with the most use, `mean of u_i`, which keeps whole nodes free.
#[derive(Clone, Copy, Debug, Default)]
pub struct MostRequested;

/// Prefers the node that could take the most containers like this one, this one included: `min of free_i / demand_i`.
#[derive(Clone, Copy, Debug, Default)]
pub struct MostFree;

/// The classes of a resource vector, as numbers.
const fn classes(resources: &Resources) -> [u64; 3] {
    [
        resources.cpu_milli.get(),
        resources.memory_mib.get(),
        resources.gpu_memory_mib.get(),
    ]
}

/// `mean of u_i` after placing; 0 for a node without any resources.
fn mean_use(demand: &Resources, node: &NodeRecord) -> f64 {
    let (demand, used, capacity) = (
        classes(demand),
        classes(node.used()),
        classes(node.capacity()),
    );
    let (mut sum, mut present) = (0.0, 0.0);
    for class in 0..capacity.len() {
        if capacity[class] > 0 {
            sum += (used[class].saturating_add(demand[class])) as f64 / capacity[class] as f64;
            present += 1.0;
        }
    }
    if present > 0.0 { sum / present } else { 0.0 }
}

impl Scoring for LeastRequested {
    fn score(&self, demand: &Resources, node: &NodeRecord) -> Score {
        Score::new(1.0 - mean_use(demand, node))
    }
}

impl Scoring for MostRequested {
    fn score(&self, demand: &Resources, node: &NodeRecord) -> Score {
        Score::new(mean_use(demand, node))
    }
}

impl Scoring for MostFree {
    fn score(&self, demand: &Resources, node: &NodeRecord) -> Score {
        let (demand, free) = (classes(demand), classes(&node.free()));
        let copies = (0..demand.len())
            .filter(|&class| demand[class] > 0)
            .map(|class| free[class] as f64 / demand[class] as f64)
            .fold(f64::INFINITY, f64::min);
        Score::new(copies)
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::{MebiBytes, MilliCpu};

    use super::super::record::Version;
    use super::*;

    fn node(used: [u64; 3], capacity: [u64; 3]) -> NodeRecord {
        let vector = |[cpu, memory, gpu]: [u64; 3]| Resources {
            cpu_milli: MilliCpu(cpu),
            memory_mib: MebiBytes(memory),
            gpu_memory_mib: MebiBytes(gpu),
        };
        NodeRecord::new(vector(capacity), vector(used), Version::default())
    }

    #[test]
    fn least_requested_is_one_minus_the_mean_share_in_use_with_the_new_container() {
        let demand = Resources::new(MilliCpu(100), MebiBytes(100));
        // Shares in use after placing: 0.5, 0.7 and 0.3: mean 0.5.
        let a = node([400, 600, 300], [1000, 1000, 1000]);
        let b = node([500, 500, 600], [1000, 1000, 1000]);
        let scores = [a, b].map(|node| LeastRequested.score(&demand, &node).get());
        assert!((scores[0] - 0.5).abs() < 1e-12 && (scores[1] - 0.4).abs() < 1e-12);
        assert!((MostRequested.score(&demand, &b).get() - 0.6).abs() < 1e-12);
    }

    #[test]
    fn classes_that_a_node_lacks_are_left_out() {
        let demand = Resources::new(MilliCpu(100), MebiBytes(300));
        let plain = node([0, 0, 0], [1000, 1000, 0]);
        assert!((LeastRequested.score(&demand, &plain).get() - 0.8).abs() < 1e-12);
        let nothing = node([0, 0, 0], [0, 0, 0]);
        let none = LeastRequested.score(&Resources::default(), &nothing);
        assert_eq!(none, Score::new(1.0));
    }

    #[test]
    fn most_free_counts_the_containers_that_still_fit() {
        let demand = Resources::new(MilliCpu(100), MebiBytes(200));
        let tight = node([0, 800, 0], [10_000, 1000, 0]);
        let wide = node([0, 0, 0], [400, 1000, 0]);
        assert_eq!(MostFree.score(&demand, &tight), Score::new(1.0));
        assert_eq!(MostFree.score(&demand, &wide), Score::new(4.0));
    }

    #[test]
    fn scores_are_ordered_totally_and_no_number_is_worst() {
        assert_eq!(Score::new(-0.0), Score::new(0.0));
        assert!(Score::new(f64::NAN) < Score::new(-1e300));
        assert!(Score::new(0.85) > Score::new(0.8));
    }
}
