//! Selects the node and the devices for an instance: filter, then score, then choice of devices.
//!
//! **Source.** Patent CN111381957A. **Ties** go to the smaller node and the lower device. **Complexity.** The filter, then the score of
//! each node that passed; for the fragmentation score, only of those that changed since the last instance of the same kind. Buffers are
//! kept, so a choice does not allocate.

use super::filter::NodeSet;
use super::fleet::{Fleet, NodeIndex};
use super::query::{DeviceChoice, DeviceSet};
use super::score::{Cost, Score};
use super::vector::Request;
use super::word::Word;

/// The node and devices for an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The node.
    pub node: NodeIndex,
    /// The devices; empty if none are requested.
    pub devices: DeviceSet,
    /// The cost of this choice, the smallest of all nodes that fit.
    pub cost: Cost,
}

/// The most costs that a selector caches, 16 bytes each; for a fleet with more nodes times kinds of instances nothing is cached.
const REMEMBERED_MAX: usize = 1 << 20;

/// Selects nodes of one fleet by one score.
#[derive(Clone, Debug)]
pub struct Selector<W> {
    score: Score<W>,
    devices: DeviceChoice,
    candidates: NodeSet,
    /// By typical kind and node: the cost computed last, with the node's version at that time (0: none). Used for the fragmentation
    /// score only, which is expensive, and between two instances of a kind few nodes change.
    remembered: Vec<(u64, f64)>,
}

impl<W: Word> Selector<W> {
    /// A selector for a fleet of this many nodes.
    #[must_use]
    pub fn new(score: Score<W>, devices: DeviceChoice, nodes: usize) -> Self {
        let kinds = match &score {
            Score::Fragmentation(typical) => typical.kinds(),
            _ => 0,
        };
        let costs = Some(kinds.saturating_mul(nodes)).filter(|costs| *costs <= REMEMBERED_MAX);
        Self {
            score,
            devices,
            candidates: NodeSet::with_room(nodes),
            remembered: vec![(0, 0.0); costs.unwrap_or(0)],
        }
    }

    /// The nodes that had room at the last choice.
    #[must_use]
    pub const fn candidates(&self) -> &NodeSet {
        &self.candidates
    }

    /// The best node with room; `None` if there is none.
    pub fn choose(&mut self, fleet: &Fleet<W>, request: &Request) -> Option<Choice> {
        fleet.filter(request, &mut self.candidates);
        let of_kind = self.remembered_of(fleet, request);
        let mut none = [];
        let (score, devices) = (&mut self.score, self.devices);
        let remembered = match of_kind {
            Some(from) => &mut self.remembered[from..from + fleet.len()],
            None => &mut none,
        };
        let mut best: Option<(Cost, NodeIndex)> = None;
        for node in self.candidates.iter() {
            let version = fleet.version(node) + 1;
            let cost = match remembered.get(node.get()) {
                Some((of, cost)) if *of == version => Cost::new(*cost, 0),
                _ => {
                    let Some(choice) = evaluate(score, devices, fleet, node, request) else {
                        continue;
                    };
                    if let Some(remembered) = remembered.get_mut(node.get()) {
                        *remembered = (version, choice.cost.get());
                    }
                    choice.cost
                }
            };
            if best.is_none_or(|best| (cost, node) < best) {
                best = Some((cost, node));
            }
        }
        let (cost, node) = best?;
        Some(Choice {
            node,
            devices: devices_of(devices, fleet, node, request)?,
            cost,
        })
    }

    /// The position of the cached costs for requests like this one; `None` if they are not cached.
    fn remembered_of(&self, fleet: &Fleet<W>, request: &Request) -> Option<usize> {
        let Score::Fragmentation(typical) = &self.score else {
            return None;
        };
        let from = typical.kind(request)? * fleet.len();
        (from + fleet.len() <= self.remembered.len()).then_some(from)
    }

    /// The cost of an instance on one node, and the devices that it would get; `None` if it does not fit.
    pub fn evaluate(
        &mut self,
        fleet: &Fleet<W>,
        node: NodeIndex,
        request: &Request,
    ) -> Option<Choice> {
        let fits = request.classes.fits(&fleet.free_vector(node));
        fits.then(|| evaluate(&mut self.score, self.devices, fleet, node, request))?
    }
}

fn devices_of<W: Word>(
    choice: DeviceChoice,
    fleet: &Fleet<W>,
    node: NodeIndex,
    request: &Request,
) -> Option<DeviceSet> {
    let among = fleet.fitting(node, request)?;
    let count = request.devices.count();
    fleet
        .layout()
        .choose_many(fleet.device_free(node), among, count, choice)
}

fn evaluate<W: Word>(
    score: &mut Score<W>,
    choice: DeviceChoice,
    fleet: &Fleet<W>,
    node: NodeIndex,
    request: &Request,
) -> Option<Choice> {
    let devices = devices_of(choice, fleet, node, request)?;
    let cost = match score {
        Score::LeastRequested => Cost::new(fleet.usage_with(node, request).mean, 0),
        Score::MostBalanced => Cost::new(fleet.usage_with(node, request).variance, 0),
        Score::Packing => Cost::new(-fleet.usage_with(node, request).mean, 0),
        Score::SmallestLeftover => {
            let (there, all) = fleet.leftover(node, request, devices);
            Cost::new(there as f64, all)
        }
        Score::Fragmentation(typical) => {
            Cost::new(typical.gradient(fleet, node, request, devices)?, 0)
        }
    };
    Some(Choice {
        node,
        devices,
        cost,
    })
}
