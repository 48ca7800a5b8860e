//! Nodes that are added, drained, lost, used by others, or refuse containers; and who gets freed capacity.

use fdn_core::{InstanceId, Resources};

use super::committer::{Committer, Placed, Refusal};
use super::list::Container;
use super::record::{NodeIndex, Presence};
use super::score::Scoring;
use super::table::ContainerState;

impl<S: Scoring> Committer<S> {
    /// Handles a node's refusal of a container placed there, because others hold `foreign` on it: the container is pending again.
    /// False if the container was not there.
    ///
    /// If the record still shows room for it, the two disagree, and the node counts as full until it is next observed; otherwise the
    /// container would be placed there again and again.
    pub fn refuse(
        &mut self,
        id: InstanceId,
        node: NodeIndex,
        foreign: Resources,
        placed: &mut Vec<Placed>,
    ) -> bool {
        let at = ContainerState::On(node);
        let slot = self.table.find(id);
        let Some(slot) = slot.filter(|&slot| self.table.slot(slot).at == at) else {
            return false;
        };
        let demand = self.table.slot(slot).container.demand;
        self.table.move_to(slot, ContainerState::Pending);
        self.store.give_back(node, &demand);
        self.store.set_foreign(node, foreign);
        let record = self.store.get(node).expect("a container was on it");
        if demand.fits(&record.free()) {
            let capacity = *record.capacity();
            self.store.set_foreign(node, capacity);
        }
        self.serve(node, placed);
        true
    }

    /// Updates what others than this committer hold on a node; has no effect for an unknown node.
    pub fn observe(&mut self, node: NodeIndex, foreign: Resources, placed: &mut Vec<Placed>) {
        if self.is_present(node) {
            self.store.set_foreign(node, foreign);
            self.serve(node, placed);
        }
    }

    /// Adds a node, at the smallest unused index.
    ///
    /// # Errors
    /// When the bound on nodes is reached.
    pub fn add_node(
        &mut self,
        capacity: Resources,
        placed: &mut Vec<Placed>,
    ) -> Result<NodeIndex, Refusal> {
        let places = self.store.records().len();
        let node = match self.absent.pop() {
            Some(node) => node,
            None if places < self.settings.nodes_max => {
                NodeIndex::new(u32::try_from(places).expect("the settings bound the nodes"))
            }
            None => {
                return Err(Refusal::Nodes {
                    max: self.settings.nodes_max,
                });
            }
        };
        self.store.put(node, capacity);
        self.serve(node, placed);
        Ok(node)
    }

    /// Drains a node: it takes nothing new. False if there is no such node.
    pub fn drain_node(&mut self, node: NodeIndex) -> bool {
        let present = self.is_present(node);
        if present {
            self.store.set_presence(node, Presence::Draining);
        }
        present
    }

    /// Resumes a draining node. False if there is no such node.
    pub fn resume_node(&mut self, node: NodeIndex, placed: &mut Vec<Placed>) -> bool {
        let present = self.is_present(node);
        if present {
            self.store.set_presence(node, Presence::Up);
            self.serve(node, placed);
        }
        present
    }

    /// Removes a lost node with everything on it: its containers are forgotten and appended to `lost`, in the order in which they
    /// were placed. False if there was no such node.
    pub fn lose_node(&mut self, node: NodeIndex, lost: &mut Vec<Container>) -> bool {
        if !self.is_present(node) {
            return false;
        }
        while let Some(slot) = self.table.first(ContainerState::On(node)) {
            lost.push(self.table.remove(slot).container);
        }
        self.store.clear(node);
        let at = self.absent.partition_point(|&other| other > node);
        self.absent.insert(at, node);
        true
    }

    fn is_present(&self, node: NodeIndex) -> bool {
        let record = self.store.get(node);
        record.is_some_and(|record| record.presence() != Presence::Absent)
    }

    /// Places waiting containers on a node that gained capacity, longest waiting first, as far as they fit.
    pub(super) fn serve(&mut self, node: NodeIndex, placed: &mut Vec<Placed>) {
        let mut next = self.table.first(ContainerState::Waiting);
        while let Some(slot) = next {
            next = self.table.next(slot);
            let container = self.table.slot(slot).container;
            if let Some(version) = self.store.reserve(node, &container.demand) {
                self.table.move_to(slot, ContainerState::On(node));
                placed.push(Placed {
                    container,
                    node,
                    version,
                });
            }
        }
    }
}
