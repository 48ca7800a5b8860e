//! The identity of a cluster node: its name, the process that runs under that name, and how often that process has joined.
//!
//! A name ([`NodeId`]) is permanent; a process has a [`Tag`] of its own, drawn at random when it starts; and a process that the others gave
//! up joins again under the next [`Key::incarnation`], with its memory of tasks gone. Schedulers deal only with incarnations.

use std::fmt;
use std::net::SocketAddr;

use fdn_core::{NodeId, Resources};
use fdn_scheduling::instance::TaskId;
use serde::{Deserialize, Serialize};

/// The number of bits of a task id that count the tasks of its submitter; the bits above are the submitter's tag.
const COUNTER_BITS: u32 = 40;

/// A process of a cluster: 24 random bits. No two members have the same; a second one with the same tag is refused and draws again.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Tag(u32);

impl Tag {
    /// The low 24 bits of a number.
    #[must_use]
    pub const fn new(bits: u32) -> Self {
        Self(bits & 0x00FF_FFFF)
    }

    /// The tag as a number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The process that submitted a task.
    #[must_use]
    pub const fn of_task(id: TaskId) -> Self {
        Self((id.0 >> COUNTER_BITS) as u32)
    }

    /// The first task id of this process. 2^40 ids follow: at 100 000 tasks per second, enough for four months.
    #[must_use]
    pub const fn first_task(self) -> TaskId {
        TaskId((self.0 as u64) << COUNTER_BITS)
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06x}", self.0)
    }
}

/// One incarnation of a process.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Key {
    /// The process.
    pub tag: Tag,
    /// How often it has joined, counted from 1.
    pub incarnation: u32,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tag, self.incarnation)
    }
}

/// What all members know of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The incarnation of its process.
    pub key: Key,
    /// The node's name.
    pub node: NodeId,
    /// The address at which the others reach it.
    pub address: SocketAddr,
    /// Its capacity for instances.
    pub capacity: Resources,
    /// Whether it may be the head.
    pub candidate: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_names_its_origin() {
        let tag = Tag::new(0xFFAB_CDEF);
        assert_eq!(tag.get(), 0x00AB_CDEF);
        let first = tag.first_task();
        assert_eq!(Tag::of_task(first), tag);
        assert_eq!(Tag::of_task(TaskId(first.0 + (1 << 40) - 1)), tag);
        assert_ne!(Tag::of_task(TaskId(first.0 + (1 << 40))), tag);
    }
}
