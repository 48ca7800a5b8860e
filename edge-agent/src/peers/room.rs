//! How much the instances for this node's calls may take in all: this node's own room, and that of the other members.
//!
//! For the others, their total capacity counts, since only they know how much of it is free. The cluster refuses what does not fit, and this node
//! then requests less for a while, so that its idle instances make room for those that are needed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fdn_cluster::ClusterStatus;
use fdn_cluster::membership::Status;
use fdn_core::{MebiBytes, NodeId, Resources};
use fdn_scheduling::invocation::Weight;
use tokio::time::{Duration, Instant};

use super::remote::Share;
use crate::invocations::ledger::Ledger;
use crate::invocations::placer::{of_memory, weight};

/// The room, in the scheduler's unit ([`Weight`]).
#[derive(Debug, Default)]
pub(super) struct Room {
    /// What this node's instances take, here and elsewhere.
    held: Arc<AtomicU64>,
    others: AtomicU64,
    /// The most that one instance can take on another node.
    max_weight: AtomicU64,
    /// The largest GPU memory of another node, in MiB.
    gpu: AtomicU64,
    /// The limit after a refusal, and until when it holds.
    full: Mutex<Option<(Instant, u64)>>,
    /// Whether this node has no room of its own.
    elsewhere_only: bool,
    /// Whether there were other members before and there are none now.
    missed: AtomicBool,
}

impl Room {
    /// The room of a node that runs instances itself, or of one that does not.
    pub(super) fn new(runs_here: bool) -> Self {
        Self {
            elsewhere_only: !runs_here,
            ..Self::default()
        }
    }

    /// Counts an instance until the share is dropped.
    pub(super) fn share(&self, weight: Weight) -> Share {
        Share::new(&self.held, weight.get())
    }

    /// Takes the members' capacities. Returns whether their sum changed.
    pub(super) fn members(&self, me: &NodeId, own: Resources, status: &ClusterStatus) -> bool {
        let takes_part = |one: &&fdn_cluster::status::MemberStatus| {
            let is_there = matches!(one.status, Status::Alive | Status::Suspect);
            // A node that runs no containers reports no capacity; it must not count as the least weight of an instance.
            let has_room = one.capacity != Resources::default();
            one.node != *me && !one.draining && is_there && has_room
        };
        // A member that is cut off still counts the others: the cluster's refusals hold the pool back.
        let is_member = status.joined;
        let others = status.members.iter().filter(takes_part);
        let others = others.filter(|_| is_member);
        let each = others.map(|one| {
            let gpu = one.capacity.gpu_memory_mib.get();
            (weight(one.capacity, own).get(), gpu)
        });
        let (sum, largest, gpu) =
            each.fold((0_u64, 0, 0), |(sum, largest, largest_gpu), (one, gpu)| {
                (
                    sum.saturating_add(one),
                    largest.max(one),
                    largest_gpu.max(gpu),
                )
            });
        // Also where the sum stays: another largest node, or another GPU, is room for other instances.
        let weight_changed = self.max_weight.swap(largest, Ordering::Relaxed) != largest;
        let gpu_changed = self.gpu.swap(gpu, Ordering::Relaxed) != gpu;
        let sum_changed = self.others.swap(sum, Ordering::Relaxed) != sum;
        weight_changed || gpu_changed || sum_changed
    }

    /// Whether no other node has room.
    pub(super) fn is_alone(&self) -> bool {
        self.others.load(Ordering::Relaxed) == 0
    }

    /// Sets whether there were other members before and there are none now.
    pub(super) fn missed(&self, missed: bool) {
        self.missed.store(missed, Ordering::Relaxed);
    }

    /// Whether other nodes have room for instances at all, used or not. Members that are away for now may have some: deployments on this node
    /// must not fail because its cluster starts later than it does.
    pub(super) fn has_others(&self) -> bool {
        !self.is_alone() || self.missed.load(Ordering::Relaxed)
    }

    /// Whether another node has this much GPU memory, used or not; only that node knows its devices. Members that are away for now may have it,
    /// as in [`Self::has_others`].
    pub(super) fn others_could_have(&self, gpu: MebiBytes) -> bool {
        let missed = self.missed.load(Ordering::Relaxed);
        missed || self.gpu.load(Ordering::Relaxed) >= gpu.get()
    }

    /// Limits the room to what is held now, for `pause`, because the cluster had none.
    pub(super) fn refused(&self, now: Instant, pause: Duration) {
        let held = self.held.load(Ordering::Relaxed);
        let mut full = self.full.lock().unwrap_or_else(PoisonError::into_inner);
        *full = Some((now + pause, held));
    }

    /// What instances may take now.
    pub(super) fn now(&self, now: Instant, ledger: &Ledger) -> Weight {
        let own = if self.elsewhere_only {
            0
        } else {
            of_memory(ledger.room_for_instances()).get()
        };
        let held = self.held.load(Ordering::Relaxed);
        // Running instances are not ended because their nodes are out of reach: if those are lost, so are the instances.
        let mut room = own
            .saturating_add(self.others.load(Ordering::Relaxed))
            .max(held);
        let wanted = of_memory(ledger.wanted()).get();
        if wanted > 0 && !self.elsewhere_only {
            // A call in a sandbox waits for memory on this node: idle instances must go until it has it.
            room = room.min(held.saturating_sub(wanted).max(own));
        }
        let mut full = self.full.lock().unwrap_or_else(PoisonError::into_inner);
        match *full {
            Some((until, limit)) if now < until => room = room.min(limit.max(1)),
            Some(_) => *full = None,
            None => {}
        }
        Weight(room)
    }

    /// The most that one instance can take.
    pub(super) fn max_weight(&self, own: Resources) -> Weight {
        let elsewhere = Weight(self.max_weight.load(Ordering::Relaxed));
        of_memory(own.memory_mib).max(elsewhere)
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::MilliCpu;

    use super::*;

    fn status(others: &[(&str, u64, Status, bool)]) -> ClusterStatus {
        let members = others.iter().map(|(node, memory, status, draining)| {
            fdn_cluster::status::MemberStatus {
                node: node.parse().expect("node"),
                key: fdn_cluster::identity::Key::default(),
                address: "127.0.0.1:1".parse().expect("address"),
                status: *status,
                draining: *draining,
                connected: true,
                // A node that runs no containers reports no capacity.
                capacity: if *memory == 0 {
                    Resources::default()
                } else {
                    Resources::new(MilliCpu(1000), MebiBytes(*memory))
                },
            }
        });
        ClusterStatus {
            node: "n-1".parse().expect("node"),
            joined: true,
            quorum: true,
            head: None,
            epoch: 0,
            members: members.collect(),
            capacity: Resources::default(),
            used: Resources::default(),
            reserved: Resources::default(),
            running: 0,
            open: 0,
            placed: 0,
            waiting: 0,
            held: 0,
            stages: std::collections::BTreeMap::new(),
            global: None,
        }
    }

    #[test]
    fn the_others_count_while_they_take_part() {
        let own = Resources::new(MilliCpu(1000), MebiBytes(100));
        let ledger = Ledger::new(own, 4);
        let (room, me) = (Room::default(), "n-1".parse().expect("node"));
        let now = Instant::now();
        assert_eq!(room.now(now, &ledger), of_memory(MebiBytes(100)));
        let members = [
            ("n-1", 100, Status::Alive, false),
            ("n-2", 300, Status::Alive, false),
            ("n-3", 900, Status::Condemned, false),
            ("n-4", 900, Status::Alive, true),
        ];
        assert!(room.members(&me, own, &status(&members)));
        assert!(!room.members(&me, own, &status(&members)));
        assert_eq!(room.now(now, &ledger), of_memory(MebiBytes(400)));
        assert_eq!(room.max_weight(own), of_memory(MebiBytes(300)));
        // As much altogether, in smaller nodes: what fitted may not fit now.
        let smaller = [
            ("n-2", 200, Status::Alive, false),
            ("n-3", 100, Status::Alive, false),
        ];
        assert!(room.members(&me, own, &status(&smaller)));
        assert_eq!(room.now(now, &ledger), of_memory(MebiBytes(400)));
        assert_eq!(room.max_weight(own), of_memory(MebiBytes(200)));
        assert!(room.members(&me, own, &status(&members)));
        let mut alone = status(&members);
        alone.joined = false;
        assert!(room.members(&me, own, &alone));
        assert_eq!(room.now(now, &ledger), of_memory(MebiBytes(100)));
    }

    #[test]
    fn a_node_that_runs_none_has_what_the_others_have() {
        let own = Resources::new(MilliCpu(1000), MebiBytes(100));
        let ledger = Ledger::new(own, 4);
        let (room, me) = (Room::new(false), "n-1".parse().expect("node"));
        let now = Instant::now();
        assert_eq!(room.now(now, &ledger), Weight(0));
        room.members(&me, own, &status(&[("n-2", 300, Status::Alive, false)]));
        assert!(room.has_others());
        ledger.want(MebiBytes(1));
        assert_eq!(room.now(now, &ledger), of_memory(MebiBytes(300)));
        room.members(&me, own, &status(&[("n-2", 0, Status::Alive, false)]));
        assert!(!room.has_others(), "it runs none either");
        room.missed(true);
        assert!(room.has_others(), "one that did may come back");
    }

    #[test]
    fn devices_may_be_those_of_another_one() {
        let own = Resources::new(MilliCpu(1000), MebiBytes(100));
        let (room, me) = (Room::new(true), "n-1".parse().expect("node"));
        let mut members = status(&[
            ("n-2", 300, Status::Alive, false),
            ("n-3", 300, Status::Alive, false),
        ]);
        room.members(&me, own, &members);
        assert!(!room.others_could_have(MebiBytes(1)));
        members.members[0].capacity.gpu_memory_mib = MebiBytes(24);
        members.members[1].capacity.gpu_memory_mib = MebiBytes(16);
        room.members(&me, own, &members);
        assert!(room.others_could_have(MebiBytes(24)));
        assert!(!room.others_could_have(MebiBytes(25)), "no two together");
        room.missed(true);
        assert!(room.others_could_have(MebiBytes(25)), "it may come back");
    }

    #[test]
    fn after_a_refusal_no_more_is_asked_for_than_there_is() {
        let own = Resources::new(MilliCpu(1000), MebiBytes(100));
        let ledger = Ledger::new(own, 4);
        let room = Room::default();
        let share = room.share(of_memory(MebiBytes(60)));
        let (now, pause) = (Instant::now(), Duration::from_secs(2));
        room.refused(now, pause);
        assert_eq!(room.now(now, &ledger), of_memory(MebiBytes(60)));
        assert_eq!(room.now(now + pause, &ledger), of_memory(MebiBytes(100)));
        drop(share);
        room.refused(now, pause);
        assert_eq!(room.now(now, &ledger), Weight(1), "nothing fits");
    }
}
