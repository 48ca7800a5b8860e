//! A pre-scheduler: filters and scores the nodes of its copy, and names the best few.

use rand::{Rng, RngExt};

use super::list::{Assignment, Entry, List, ListRequest};
use super::record::{NodeIndex, NodeRecord};
use super::score::{Score, Scoring};

/// How equal scores are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ties {
    /// By a random order drawn for each list, so that pre-schedulers that see the same records do not all name the same node.
    #[default]
    Random,
    /// By the smaller node, as a serial scheduler would.
    Node,
}

/// Which nodes a pre-scheduler evaluates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeSelection {
    /// All of them.
    #[default]
    All,
    /// This many, drawn at random for each list: fewer conflicts, since not every pre-scheduler sees the best node, and less to
    /// score. When hardly any node has room, a sample may miss them all.
    Sample(usize),
    /// A fixed part of them, so that pre-schedulers with disjoint parts have no conflicts: the nodes whose index modulo `of` is `index`.
    Part {
        /// Which part.
        index: u32,
        /// The number of parts; 0 counts as 1.
        of: u32,
    },
    /// A hand: all nodes are shuffled and dealt out to this many lists in turn, then shuffled again. Lists in flight share no node as
    /// long as no more of them are in flight than there are hands, except for those of two deals. 0 counts as 1.
    Dealt {
        /// The number of hands per deal.
        hands: u32,
    },
}

/// How a pre-scheduler selects nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The length of a list, `h`; 0 for all nodes with room.
    pub length: usize,
    /// Which nodes are evaluated.
    pub selection: NodeSelection,
    /// How equal scores are ordered.
    pub ties: Ties,
}

impl Default for Choice {
    fn default() -> Self {
        Self {
            length: 8,
            selection: NodeSelection::default(),
            ties: Ties::default(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    score: Score,
    tie: u64,
    node: u32,
}

/// A pre-scheduler with its buffers.
#[derive(Debug)]
pub struct PreScheduler<S> {
    scoring: S,
    choice: Choice,
    candidates: Vec<Candidate>,
    /// All node indices, partly shuffled by every sample.
    places: Vec<u32>,
}

impl<S: Scoring> PreScheduler<S> {
    /// A pre-scheduler with this rule and selection.
    #[must_use]
    pub const fn new(scoring: S, choice: Choice) -> Self {
        Self {
            scoring,
            choice,
            candidates: Vec::new(),
            places: Vec::new(),
        }
    }

    /// Writes list 1 for an assignment: the best of the evaluated nodes that have room, by score.
    ///
    /// O(n + h log h) for n evaluated nodes. Draws one number for the order of ties and one for each node of a sample.
    pub fn list(
        &mut self,
        assignment: &Assignment,
        nodes: &[NodeRecord],
        rng: &mut impl Rng,
        list: &mut List,
    ) {
        self.list_for(&ListRequest::from(assignment), nodes, rng, list);
    }

    /// As [`Self::list`], for any demand with a ticket.
    pub fn list_for(
        &mut self,
        wanted: &ListRequest,
        nodes: &[NodeRecord],
        rng: &mut impl Rng,
        list: &mut List,
    ) {
        let demand = &wanted.demand;
        let salt = match self.choice.ties {
            Ties::Random => Some(rng.next_u64()),
            Ties::Node => None,
        };
        self.candidates.clear();
        let consider = |node: u32| {
            let record = &nodes[node as usize];
            record.has_room(demand).then(|| Candidate {
                score: self.scoring.score(demand, record),
                tie: salt.map_or(u64::from(node), |salt| mix(salt ^ u64::from(node))),
                node,
            })
        };
        let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        match self.choice.selection {
            NodeSelection::Sample(size) if size < nodes.len() => {
                sample(&mut self.places, count, size, rng);
                let drawn = self.places[..size].iter().copied();
                self.candidates.extend(drawn.filter_map(consider));
            }
            NodeSelection::All | NodeSelection::Sample(_) => {
                self.candidates.extend((0..count).filter_map(consider));
            }
            NodeSelection::Part { index, of } => {
                let of = of.max(1);
                let part = (index % of..count).step_by(of as usize);
                self.candidates.extend(part.filter_map(consider));
            }
            NodeSelection::Dealt { hands } => {
                let hand = hand(wanted.ticket.attempt, hands.max(1), count);
                self.candidates.extend(hand.filter_map(consider));
            }
        }
        self.keep_best();
        list.ticket = wanted.ticket;
        list.entries.clear();
        list.entries
            .extend(self.candidates.iter().map(|candidate| Entry {
                node: NodeIndex::new(candidate.node),
                version: nodes[candidate.node as usize].version(),
                score: candidate.score,
            }));
    }

    /// Sorts the best `h` candidates and drops the others.
    fn keep_best(&mut self) {
        let order = |a: &Candidate, b: &Candidate| {
            (b.score.cmp(&a.score))
                .then(a.tie.cmp(&b.tie))
                .then(a.node.cmp(&b.node))
        };
        let length = self.choice.length;
        if (1..self.candidates.len()).contains(&length) {
            self.candidates.select_nth_unstable_by(length - 1, order);
            self.candidates.truncate(length);
        }
        self.candidates.sort_unstable_by(order);
    }
}

/// Brings `size` distinct indices, each set equally likely, to the front (Fisher and Yates).
fn sample(places: &mut Vec<u32>, count: u32, size: usize, rng: &mut impl Rng) {
    if places.len() != count as usize {
        places.clear();
        places.extend(0..count);
    }
    for at in 0..size {
        let other = rng.random_range(at..places.len());
        places.swap(at, other);
    }
}

/// The node indices in the hand of an attempt. A deal is an affine permutation of all indices, a different one for each deal.
fn hand(attempt: u64, hands: u32, count: u32) -> impl Iterator<Item = u32> {
    let (deal, index) = (attempt / u64::from(hands), attempt % u64::from(hands));
    let count = u64::from(count);
    let (mut factor, offset) = (mix(2 * deal + 1), mix(2 * deal + 2));
    while count > 1 && gcd(factor % count, count) != 1 {
        factor = mix(factor);
    }
    let place = move |at: u64| {
        let place = (factor % count * at + offset % count) % count;
        u32::try_from(place).expect("places are numbered in 32 bits")
    };
    (index..count).step_by(hands as usize).map(place)
}

const fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A bijection of 64 bits without visible structure (the finalizer of SplitMix64; Steele, Lea, Flood: OOPSLA 2014).
const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deal_gives_every_place_to_one_hand_and_no_two_deals_are_alike() {
        for count in [0, 1, 2, 12, 97, 500] {
            for hands in [1, 7, 44, 1000] {
                let deal = |number: u64| -> Vec<Vec<u32>> {
                    let attempts = number * u64::from(hands)..(number + 1) * u64::from(hands);
                    attempts
                        .map(|attempt| hand(attempt, hands, count).collect())
                        .collect()
                };
                let first = deal(3);
                let mut all: Vec<u32> = first.concat();
                all.sort_unstable();
                assert_eq!(all, (0..count).collect::<Vec<_>>());
                let sizes = first.iter().map(Vec::len);
                let (least, most) = (sizes.clone().min(), sizes.max());
                assert!(most <= least.map(|least| least + 1), "{least:?} {most:?}");
                if count == 500 && hands == 44 {
                    assert_ne!(first, deal(4));
                }
            }
        }
    }
}
