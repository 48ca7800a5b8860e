//! The node and the devices for an instance: filter, then score, then choice of devices.
//!
//! **Source.** Patent CN111381957A. **Ties** go to the smaller node and the lower device. **Complexity.** The filter, then the score of
//! each node that passed. Buffers are kept, so a choice does not allocate.

use super::filter::NodeSet;
use super::fleet::{Fleet, NodeIndex};
use super::query::{DeviceChoice, DeviceSet};
use super::score::{Cost, Score};
use super::vector::Request;
use super::word::Word;

/// Where an instance goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The node.
    pub node: NodeIndex,
    /// Its devices.
    pub devices: DeviceSet,
    /// What the choice cost; the smallest of all that fit.
    pub cost: Cost,
}

/// Chooses nodes of one fleet, by one score.
#[derive(Clone, Debug)]
pub struct Selector<W> {
    score: Score<W>,
    devices: DeviceChoice,
    candidates: NodeSet,
}

impl<W: Word> Selector<W> {
    /// A selector for a fleet of this many nodes.
    #[must_use]
    pub fn new(score: Score<W>, devices: DeviceChoice, nodes: usize) -> Self {
        Self {
            score,
            devices,
            candidates: NodeSet::with_room(nodes),
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
        let (score, devices) = (&mut self.score, self.devices);
        let choices = self
            .candidates
            .iter()
            .filter_map(|node| evaluate(score, devices, fleet, node, request));
        choices.min_by(|a, b| (a.cost, a.node).cmp(&(b.cost, b.node)))
    }

    /// What an instance would cost on one node, and the devices that it would get; `None` if it has no room.
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

fn evaluate<W: Word>(
    score: &mut Score<W>,
    choice: DeviceChoice,
    fleet: &Fleet<W>,
    node: NodeIndex,
    request: &Request,
) -> Option<Choice> {
    let layout = fleet.layout();
    let among = fleet.fitting(node, request)?;
    let count = request.devices.count();
    let devices = layout.choose_many(fleet.device_free(node), among, count, choice)?;
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
