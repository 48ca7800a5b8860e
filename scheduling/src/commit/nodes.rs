//! Nodes that come, drain, go, are used by others, or refuse; and who gets the room that becomes free.

use fdn_core::{InstanceId, Resources};

use super::committer::{Committer, Placed, Refusal};
use super::list::Container;
use super::record::{NodeIndex, Presence};
use super::score::Scoring;
use super::table::Whereabouts;

impl<S: Scoring> Committer<S> {
    /// A node refuses a container that was put there, because others hold `foreign` on it: the container is pending again.
    /// Says whether it was there at all.
    ///
    /// If the record would have room for it all the same, the two disagree, and the node counts as full until it is next
    /// observed: else the container would go there again and again.
    pub fn refuse(
        &mut self,
        id: InstanceId,
        node: NodeIndex,
        foreign: Resources,
        placed: &mut Vec<Placed>,
    ) -> bool {
        let at = Whereabouts::On(node);
        let slot = self.table.find(id);
        let Some(slot) = slot.filter(|&slot| self.table.slot(slot).at == at) else {
            return false;
        };
        let demand = self.table.slot(slot).container.demand;
        self.table.move_to(slot, Whereabouts::Pending);
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

    /// Takes over what others than this committer hold on a node; nothing for a node that is absent.
    pub fn observe(&mut self, node: NodeIndex, foreign: Resources, placed: &mut Vec<Placed>) {
        if self.is_present(node) {
            self.store.set_foreign(node, foreign);
            self.serve(node, placed);
        }
    }

    /// Adds a node, at the smallest absent place.
    ///
    /// # Errors
    /// When there are as many nodes as may be.
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

    /// A node takes nothing new from now on. Says whether there is such a node.
    pub fn drain_node(&mut self, node: NodeIndex) -> bool {
        let present = self.is_present(node);
        if present {
            self.store.set_presence(node, Presence::Draining);
        }
        present
    }

    /// A draining node takes containers again. Says whether there is such a node.
    pub fn resume_node(&mut self, node: NodeIndex, placed: &mut Vec<Placed>) -> bool {
        let present = self.is_present(node);
        if present {
            self.store.set_presence(node, Presence::Up);
            self.serve(node, placed);
        }
        present
    }

    /// A node is lost, with all that was on it: these containers are forgotten and appended to `lost`, in the order in which
    /// they were placed. Says whether there was such a node.
    pub fn lose_node(&mut self, node: NodeIndex, lost: &mut Vec<Container>) -> bool {
        if !self.is_present(node) {
            return false;
        }
        while let Some(slot) = self.table.first(Whereabouts::On(node)) {
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

    /// Puts those that wait on a node that has got room, longest waiting first, as long as they fit.
    pub(super) fn serve(&mut self, node: NodeIndex, placed: &mut Vec<Placed>) {
        let mut next = self.table.first(Whereabouts::Waiting);
        while let Some(slot) = next {
            next = self.table.next(slot);
            let container = self.table.slot(slot).container;
            if let Some(version) = self.store.reserve(node, &container.demand) {
                self.table.move_to(slot, Whereabouts::On(node));
                placed.push(Placed {
                    container,
                    node,
                    version,
                });
            }
        }
    }
}
