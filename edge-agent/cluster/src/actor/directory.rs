//! The directory of nodes by number: schedulers number nodes from 0, each process in its own way.
//!
//! The number of a node that is gone is reused only after all tasks that the node may have had are forgotten.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use fdn_core::{Millis, NodeId, Resources};
use fdn_scheduling::instance::NodeIndex;

use crate::identity::{Key, Member, Tag};

/// What is known of the node with a number.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) key: Key,
    pub(super) node: NodeId,
    pub(super) address: SocketAddr,
    pub(super) capacity: Resources,
    /// When the node was found to be gone; `None` while it is present.
    pub(super) gone: Option<Millis>,
    /// The number of the first attempt of this process that may start there.
    pub(super) admitted_from: u64,
    /// The number of the first attempt of that process that may start here; `None` until it has told.
    pub(super) admits_from: Option<u64>,
}

/// All slots, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    slots: Vec<Slot>,
    by_tag: BTreeMap<Tag, NodeIndex>,
}

/// How a new node got its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IndexAllocation {
    /// The number is a new one.
    New(NodeIndex),
    /// The number was used by another node before.
    Reused(NodeIndex),
}

impl Directory {
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.slots.len()).expect("there are fewer nodes")
    }

    /// The number of the present incarnation of a process.
    pub(super) fn index(&self, tag: Tag) -> Option<NodeIndex> {
        self.by_tag.get(&tag).copied()
    }

    pub(super) fn slot(&self, index: NodeIndex) -> &Slot {
        &self.slots[index.get()]
    }

    pub(super) fn slot_mut(&mut self, index: NodeIndex) -> &mut Slot {
        &mut self.slots[index.get()]
    }

    /// The nodes that are present, with their numbers.
    pub(super) fn present(&self) -> impl Iterator<Item = (NodeIndex, &Slot)> {
        let all = (0..).map(NodeIndex).zip(&self.slots);
        all.filter(|(_, slot)| slot.gone.is_none())
    }

    /// All slots, by number.
    pub(super) fn all(&self) -> &[Slot] {
        &self.slots
    }

    /// Assigns a number to a new member; numbers of nodes that went before `forgotten` may be reused.
    pub(super) fn assign(
        &mut self,
        member: &Member,
        forgotten: Millis,
        admitted_from: u64,
    ) -> IndexAllocation {
        let slot = Slot {
            key: member.key,
            node: member.node.clone(),
            address: member.address,
            capacity: member.capacity,
            gone: None,
            admitted_from,
            admits_from: None,
        };
        let is_free = |slot: &Slot| slot.gone.is_some_and(|gone| gone < forgotten);
        let allocation = match self.slots.iter().position(is_free) {
            Some(at) => {
                self.slots[at] = slot;
                IndexAllocation::Reused(NodeIndex(
                    u32::try_from(at).expect("there are fewer nodes"),
                ))
            }
            None => {
                self.slots.push(slot);
                IndexAllocation::New(NodeIndex(self.count() - 1))
            }
        };
        let (IndexAllocation::New(index) | IndexAllocation::Reused(index)) = allocation;
        self.by_tag.insert(member.key.tag, index);
        allocation
    }

    /// Marks a node as gone; returns its number, if it had one.
    pub(super) fn remove(&mut self, now: Millis, key: Key) -> Option<NodeIndex> {
        let at = self
            .slots
            .iter()
            .position(|slot| slot.key == key && slot.gone.is_none())?;
        let index = NodeIndex(u32::try_from(at).expect("there are fewer nodes"));
        self.slots[at].gone = Some(now);
        if self.by_tag.get(&key.tag) == Some(&index) {
            self.by_tag.remove(&key.tag);
        }
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(tag: u32, incarnation: u32) -> Member {
        Member {
            key: Key {
                tag: Tag::new(tag),
                incarnation,
            },
            node: format!("n{tag}").parse().unwrap(),
            address: SocketAddr::from(([127, 0, 0, 1], 1)),
            capacity: Resources::default(),
            candidate: true,
        }
    }

    #[test]
    fn a_number_is_given_again_only_when_its_tasks_are_forgotten() {
        let mut directory = Directory::default();
        let ms = Millis::new;
        assert_eq!(
            directory.assign(&member(1, 1), ms(0.0), 0),
            IndexAllocation::New(NodeIndex(0))
        );
        assert_eq!(
            directory.assign(&member(2, 1), ms(0.0), 5),
            IndexAllocation::New(NodeIndex(1))
        );
        assert_eq!(
            directory.remove(ms(10.0), member(1, 1).key),
            Some(NodeIndex(0))
        );
        assert_eq!(directory.remove(ms(10.0), member(1, 1).key), None);
        assert_eq!(directory.index(Tag::new(1)), None);
        assert_eq!(
            directory.assign(&member(1, 2), ms(10.0), 7),
            IndexAllocation::New(NodeIndex(2))
        );
        assert_eq!(directory.index(Tag::new(1)), Some(NodeIndex(2)));
        assert_eq!(
            directory.assign(&member(3, 1), ms(10.1), 9),
            IndexAllocation::Reused(NodeIndex(0))
        );
        assert_eq!(directory.present().count(), 3);
        assert_eq!(directory.slot(NodeIndex(0)).admitted_from, 9);
    }
}
