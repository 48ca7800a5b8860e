//! Idle instances of other nodes give way where this node needs their room. For calls in sandboxes that wait for memory they do so at once, as
//! this node's own do; for this node's instances, once they have been idle for `peers.spare_after`. The same holds for their device slices,
//! whichever node's instance needs those.

use std::sync::{Arc, Weak};

use fdn_core::{InstanceId, MebiBytes, MilliCpu, Resources};
use fdn_instances::{Description, Instance};
use tokio::time::{Duration, Instant};
use tracing::info;

use super::Node;
use super::Peers;
use super::table::{EndReason, Entry};
use crate::invocations::slices::IdleInstances;

/// An idle instance, with what decides the order of eviction.
struct Idle<T> {
    holds: Resources,
    idle: Duration,
    what: T,
}

impl Node {
    /// Frees the memory that calls in sandboxes wait for.
    pub(super) fn make_room_for_calls(&self) {
        let wanted = Resources::new(MilliCpu(0), self.ledger.wanted());
        self.make_room(wanted, Duration::ZERO);
    }

    /// Frees the room that an instance of this node lacks here, since the cluster has none.
    pub(super) fn make_room_for_instance(&self, wanted: Resources) {
        let gpu_wanted = wanted.gpu_memory_mib;
        let (gpu_free, gpu) = if gpu_wanted > MebiBytes(0) {
            self.local.gpu()
        } else {
            Default::default()
        };
        let wanted = Resources::new(wanted.cpu_milli, wanted.memory_mib);
        let never = wanted.shortage(&self.ledger.capacity()).is_some() || gpu_wanted > gpu;
        if never {
            return;
        }
        let cpu = self.ledger.cpu_held().get() + wanted.cpu_milli.get();
        let memory = self.ledger.held().get() + wanted.memory_mib.get();
        let has = self.ledger.capacity();
        let lacking = Resources {
            gpu_memory_mib: gpu_wanted.saturating_sub(gpu_free),
            ..Resources::new(
                MilliCpu(cpu.saturating_sub(has.cpu_milli.get())),
                MebiBytes(memory.saturating_sub(has.memory_mib.get())),
            )
        };
        self.make_room(lacking, self.settings.spare_after.as_duration());
    }

    fn make_room(&self, lacking: Resources, least_idle: Duration) {
        if lacking == Resources::default() {
            return;
        }
        for Idle { what: entry, .. } in choose(self.idle_of_others(least_idle), lacking) {
            self.evict(&entry);
        }
    }

    fn idle_of_others(&self, least_idle: Duration) -> Vec<Idle<Arc<Entry>>> {
        let now = Instant::now();
        let others = self.table.all().into_iter();
        let others = others.filter(|entry| entry.requester != self.me && !entry.is_ending());
        let idle = others.filter_map(|entry| {
            let idle = entry.idle(now).filter(|idle| *idle >= least_idle)?;
            let holds = entry.instance()?.description().resources;
            Some(Idle {
                holds,
                idle,
                what: entry,
            })
        });
        idle.collect()
    }

    fn evict(&self, entry: &Entry) {
        info!(task = ?entry.task, asker = %entry.requester, "an idle instance of another node gives way to what is needed here");
        self.metrics.gave_way.inc();
        entry.end.send_replace(Some(EndReason::RoomNeeded));
    }
}

/// Idle instances of other nodes on this node's devices, the longest idle first.
struct IdleInstancesOfPeers(Weak<Node>);

impl IdleInstancesOfPeers {
    fn all(node: &Node) -> Vec<(Arc<dyn Instance>, Arc<Entry>)> {
        let mut idle = node.idle_of_others(node.settings.spare_after.as_duration());
        idle.sort_by_key(|one| std::cmp::Reverse(one.idle));
        let on_devices = |one: Idle<Arc<Entry>>| {
            let instance = one.what.instance()?;
            let has_slices = !instance.description().devices.is_empty();
            has_slices.then_some((instance, one.what))
        };
        idle.into_iter().filter_map(on_devices).collect()
    }
}

impl IdleInstances for IdleInstancesOfPeers {
    fn idle(&self, wanted: &Description) -> Vec<InstanceId> {
        let node = self.0.upgrade();
        let all = node.map(|node| Self::all(&node)).unwrap_or_default();
        let all = all.iter().map(|(instance, _)| instance);
        let others = all.filter(|instance| !instance.description().is_of_the_same(wanted));
        others.map(|instance| instance.id()).collect()
    }

    fn end(&self, instance: InstanceId) -> bool {
        let Some(node) = self.0.upgrade() else {
            return false;
        };
        let all = Self::all(&node);
        let found = all.iter().find(|(one, _)| one.id() == instance);
        if let Some((_, entry)) = found {
            node.evict(entry);
        }
        found.is_some()
    }
}

impl Peers {
    /// Idle instances of other nodes, which give way when their slices of this node's devices are needed.
    #[must_use]
    pub fn idle_instances(&self) -> Arc<dyn IdleInstances> {
        Arc::new(IdleInstancesOfPeers(Arc::downgrade(&self.0)))
    }
}

/// The instances to end: the largest first, so that few are ended; among equals the longest idle.
fn choose<T>(mut idle: Vec<Idle<T>>, lacking: Resources) -> Vec<Idle<T>> {
    idle.sort_by_key(|one| {
        // Slices are the scarcest; without a lack of slices, their size does not count.
        let gpu = one.holds.gpu_memory_mib.min(lacking.gpu_memory_mib);
        let size = (gpu, one.holds.memory_mib, one.holds.cpu_milli);
        std::cmp::Reverse((size, one.idle))
    });
    let mut freed = Resources::default();
    let mut going = Vec::new();
    for one in idle {
        if lacking.shortage(&freed).is_none() {
            break;
        }
        freed = freed.saturating_add(&one.holds);
        going.push(one);
    }
    going
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_go_and_of_like_ones_who_is_idle_for_longest() {
        let idle = |what, cpu, memory, idle| Idle {
            holds: Resources::new(MilliCpu(cpu), MebiBytes(memory)),
            idle: Duration::from_secs(idle),
            what,
        };
        let all = || {
            vec![
                idle("small", 100, 10, 9),
                idle("large", 100, 50, 1),
                idle("old", 100, 10, 90),
            ]
        };
        let names = |cpu, memory| {
            let lacking = Resources::new(MilliCpu(cpu), MebiBytes(memory));
            let going = choose(all(), lacking).into_iter();
            going.map(|one| one.what).collect::<Vec<_>>()
        };
        assert_eq!(names(0, 40), ["large"]);
        assert_eq!(names(150, 1), ["large", "old"]);
        assert_eq!(names(0, 55), ["large", "old"]);
        assert_eq!(names(1000, 1000).len(), 3);
    }
}
