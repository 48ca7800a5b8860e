//! The containers that the committer knows, each in exactly one list: pending, handed out to a pre-scheduler, waiting for capacity, or on a node.
//!
//! The lists are threaded through one table, so that moving a container costs O(1) and allocates nothing. The index by id is changed only
//! when a container is added or removed.

use std::collections::BTreeMap;

use fdn_core::{InstanceId, Millis};

use super::list::{Container, Ticket};
use super::record::NodeIndex;

/// The place of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// Pending, in the queue from which pre-schedulers take.
    Pending,
    /// Handed out to a pre-scheduler, or in its list on the way to the committer.
    Out,
    /// Waiting, since no node had room; the first node that gains capacity takes it.
    Waiting,
    /// On this node.
    On(NodeIndex),
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Chain {
    head: u32,
    tail: u32,
    len: usize,
}

impl Default for Chain {
    fn default() -> Self {
        Self {
            head: NONE,
            tail: NONE,
            len: 0,
        }
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) container: Container,
    pub(super) at: ContainerState,
    /// The attempt for which it is, or was last, handed out.
    pub(super) attempt: u64,
    /// How many lists for it have failed.
    pub(super) retries: u32,
    /// When it was last handed out.
    pub(super) taken: Millis,
    previous: u32,
    next: u32,
}

/// The containers.
#[derive(Debug, Default)]
pub(super) struct Table {
    slots: Vec<Slot>,
    unused: Vec<u32>,
    index: BTreeMap<InstanceId, u32>,
    pending: Chain,
    out: Chain,
    waiting: Chain,
    on: Vec<Chain>,
}

impl Table {
    /// The number of known containers.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// The number of containers in a list.
    pub(super) fn count(&self, at: ContainerState) -> usize {
        match at {
            ContainerState::On(node) => self.on.get(node.get()).map_or(0, |chain| chain.len),
            ContainerState::Pending => self.pending.len,
            ContainerState::Out => self.out.len,
            ContainerState::Waiting => self.waiting.len,
        }
    }

    pub(super) fn find(&self, id: InstanceId) -> Option<u32> {
        self.index.get(&id).copied()
    }

    pub(super) fn slot(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    pub(super) fn slot_mut(&mut self, slot: u32) -> &mut Slot {
        &mut self.slots[slot as usize]
    }

    /// The slot of a container that is handed out for this attempt; `None` otherwise.
    pub(super) fn out_for(&self, ticket: Ticket) -> Option<u32> {
        let slot = self.slots.get(ticket.slot as usize)?;
        (slot.at == ContainerState::Out && slot.attempt == ticket.attempt).then_some(ticket.slot)
    }

    /// All containers, by id.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.index.values().map(|&slot| self.slot(slot))
    }

    /// The first container of a list.
    pub(super) fn first(&self, at: ContainerState) -> Option<u32> {
        let chain = match at {
            ContainerState::On(node) => self.on.get(node.get())?,
            ContainerState::Pending => &self.pending,
            ContainerState::Out => &self.out,
            ContainerState::Waiting => &self.waiting,
        };
        (chain.head != NONE).then_some(chain.head)
    }

    /// The next container in the same list.
    pub(super) fn next(&self, slot: u32) -> Option<u32> {
        let next = self.slot(slot).next;
        (next != NONE).then_some(next)
    }

    /// Adds a new container at the end of the pending ones.
    pub(super) fn insert(&mut self, container: Container) {
        let new = Slot {
            container,
            at: ContainerState::Pending,
            attempt: 0,
            retries: 0,
            taken: Millis::ZERO,
            previous: NONE,
            next: NONE,
        };
        let slot = match self.unused.pop() {
            Some(slot) => {
                self.slots[slot as usize] = new;
                slot
            }
            None => {
                self.slots.push(new);
                u32::try_from(self.slots.len() - 1).expect("the settings bound the containers")
            }
        };
        self.index.insert(container.id, slot);
        self.link(slot);
    }

    /// Moves a container to the end of another list.
    pub(super) fn move_to(&mut self, slot: u32, at: ContainerState) {
        self.unlink(slot);
        self.slot_mut(slot).at = at;
        self.link(slot);
    }

    /// Forgets a container.
    pub(super) fn remove(&mut self, slot: u32) -> Slot {
        self.unlink(slot);
        let removed = *self.slot(slot);
        self.index.remove(&removed.container.id);
        // A list in flight for it must match no container: attempts count from 1.
        self.slot_mut(slot).attempt = 0;
        self.unused.push(slot);
        removed
    }

    fn chain(&mut self, at: ContainerState) -> &mut Chain {
        match at {
            ContainerState::On(node) => {
                if node.get() >= self.on.len() {
                    self.on.resize(node.get() + 1, Chain::default());
                }
                &mut self.on[node.get()]
            }
            ContainerState::Pending => &mut self.pending,
            ContainerState::Out => &mut self.out,
            ContainerState::Waiting => &mut self.waiting,
        }
    }

    fn link(&mut self, slot: u32) {
        let at = self.slot(slot).at;
        let chain = self.chain(at);
        let tail = chain.tail;
        chain.tail = slot;
        chain.len += 1;
        if tail == NONE {
            chain.head = slot;
        } else {
            self.slot_mut(tail).next = slot;
        }
        let linked = self.slot_mut(slot);
        (linked.previous, linked.next) = (tail, NONE);
    }

    fn unlink(&mut self, slot: u32) {
        let Slot {
            at, previous, next, ..
        } = *self.slot(slot);
        let chain = self.chain(at);
        chain.len -= 1;
        if previous == NONE {
            chain.head = next;
        }
        if next == NONE {
            chain.tail = previous;
        }
        if previous != NONE {
            self.slot_mut(previous).next = next;
        }
        if next != NONE {
            self.slot_mut(next).previous = previous;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use fdn_core::Resources;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn id(n: u128) -> InstanceId {
        InstanceId::from_uuid(Uuid::from_u128(n))
    }

    fn place(n: u8) -> ContainerState {
        match n {
            0 => ContainerState::Pending,
            1 => ContainerState::Out,
            2 => ContainerState::Waiting,
            n => ContainerState::On(NodeIndex::new(u32::from(n - 3))),
        }
    }

    fn walk(table: &Table, at: ContainerState) -> Vec<InstanceId> {
        let mut ids = Vec::new();
        let mut next = table.first(at);
        while let Some(slot) = next {
            assert_eq!(table.slot(slot).at, at);
            ids.push(table.slot(slot).container.id);
            next = table.next(slot);
        }
        ids
    }

    proptest! {
        /// Six plain queues are the model; every move is made in both.
        #[test]
        fn lists_are_queues_and_a_container_is_in_one(moves in prop::collection::vec((0u128..12, 0u8..8), 0..80)) {
            let mut table = Table::default();
            let mut model: [VecDeque<InstanceId>; 6] = Default::default();
            for (n, to) in moves {
                let id = id(n);
                match (table.find(id), to) {
                    (None, _) => {
                        table.insert(Container { id, demand: Resources::default() });
                        model[0].push_back(id);
                    }
                    (Some(slot), to) => {
                        model.iter_mut().for_each(|queue| queue.retain(|&held| held != id));
                        if to >= 6 {
                            prop_assert_eq!(table.remove(slot).container.id, id);
                        } else {
                            table.move_to(slot, place(to));
                            model[usize::from(to)].push_back(id);
                        }
                    }
                }
                for (at, queue) in (0u8..).zip(&model) {
                    prop_assert_eq!(table.count(place(at)), queue.len());
                    prop_assert_eq!(&walk(&table, place(at)), &Vec::from(queue.clone()));
                }
                prop_assert_eq!(table.len(), model.iter().map(VecDeque::len).sum::<usize>());
            }
        }
    }

    #[test]
    fn a_ticket_is_good_for_its_attempt_only() {
        let mut table = Table::default();
        table.insert(Container {
            id: id(1),
            demand: Resources::default(),
        });
        let slot = table.find(id(1)).expect("known");
        let ticket = Ticket { slot, attempt: 7 };
        assert_eq!(table.out_for(ticket), None, "not out");
        table.slot_mut(slot).attempt = 7;
        table.move_to(slot, ContainerState::Out);
        assert_eq!(table.out_for(ticket), Some(slot));
        assert_eq!(table.out_for(Ticket { slot, attempt: 6 }), None);
        assert_eq!(table.out_for(Ticket::NONE), None);
        table.remove(slot);
        assert_eq!(table.out_for(ticket), None, "gone");
    }
}
