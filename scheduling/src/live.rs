//! Aggregates node reports into the cluster that placement sees.
//!
//! Placement sees clusters, not nodes. The caller decides which nodes are alive (a report is valid for [`fdn_core::message::STATUS_LIFETIME`]).
//!
//! - Draining nodes do not count. If all nodes drain, the cluster is [`Availability::Draining`]; without nodes it is
//!   [`Availability::Down`].
//! - Speed: the mean, weighted by slots.
//! - Slots: those of all nodes. Idle ones are free now; the queued work of a node, at its speed, is spread evenly over its
//!   busy slots. A plan holds for minutes, but a status is of one moment, in which all slots may be busy for half a second even where many are
//!   idle most of the time; a planner that follows this sends clients to and fro. So what counts is not how long a call waits that comes now, but
//!   how long calls wait on average that come within a `horizon`: next to nothing for a queue that is gone soon, most of it for one that lasts.
//! - Free resources: the sum; and, since a container cannot be split, the largest free amount of one node, class by class. The same for
//!   capacities.

use fdn_core::message::NodeStatus;
use fdn_core::{ClusterId, Millis, Resources};

use crate::place::{Availability, Cluster, Slots, Speed};

/// The most slots per node that are represented; if a node has more, idle ones are dropped first.
pub const SLOTS_MAX: u32 = 4096;

/// The cluster formed by these living nodes, as it is on average until `horizon`.
#[must_use]
pub fn cluster<'a>(
    id: ClusterId,
    nodes: impl IntoIterator<Item = &'a NodeStatus>,
    horizon: Millis,
) -> Cluster {
    let mut any = false;
    let mut available = Vec::new();
    let (mut slots, mut speed) = (0.0, 0.0);
    let (mut free, mut largest) = (Resources::default(), Resources::default());
    let (mut capacity, mut roomiest) = (Resources::default(), Resources::default());
    for node in nodes {
        any = true;
        if node.draining {
            continue;
        }
        let weight = f64::from(node.slots);
        slots += weight;
        speed += Speed::new(node.speed).get() * weight;
        free = free.saturating_add(&node.free);
        largest = largest.max_by_class(&node.free);
        capacity = capacity.saturating_add(&node.capacity);
        roomiest = roomiest.max_by_class(&node.capacity);
        available.extend(slots_of(node, horizon));
    }
    let availability = match (any, available.is_empty()) {
        (false, _) => Availability::Down,
        (true, true) => Availability::Draining,
        (true, false) => Availability::Up,
    };
    Cluster {
        id,
        speed: Speed::new(speed / slots),
        slots: available.into_iter().collect::<Slots>(),
        free,
        largest,
        availability,
        capacity,
        roomiest,
    }
}

/// How long calls wait for each slot of a node, on average over those that come before `horizon`.
fn slots_of(node: &NodeStatus, horizon: Millis) -> impl Iterator<Item = Millis> + use<> {
    let wait = Speed::new(node.speed).time(node.queued_work.max(Millis::ZERO));
    // Work queued while no slot is busy waits for a first instance, which will take one.
    let busy = node
        .busy
        .max(u32::from(wait > Millis::ZERO))
        .min(node.slots)
        .min(SLOTS_MAX);
    let idle = (node.slots - busy).min(SLOTS_MAX - busy);
    let until = mean_wait(Millis::new(wait.get() / f64::from(busy.max(1))), horizon);
    let times = [(Millis::ZERO, idle), (until, busy)];
    times
        .into_iter()
        .flat_map(|(time, count)| std::iter::repeat_n(time, count as usize))
}

/// The mean wait of calls that come evenly until `horizon`, for what is free after `busy`.
fn mean_wait(busy: Millis, horizon: Millis) -> Millis {
    if busy >= horizon {
        return Millis::new(busy.get() - horizon.get() / 2.0);
    }
    Millis::new(busy.get() * busy.get() / (2.0 * horizon.get()))
}

#[cfg(test)]
mod tests {
    use fdn_core::{GeoPoint, MebiBytes, MessageId, MilliCpu};

    use super::*;

    fn node(name: &str, speed: f64, slots: u32, busy: u32, queued: f64, free: u64) -> NodeStatus {
        NodeStatus {
            node: name.parse().expect("node"),
            cluster: "c".parse().expect("cluster"),
            region: "r".parse().expect("region"),
            location: GeoPoint::new(0.0, 0.0).expect("position"),
            gateway: "127.0.0.1:1".parse().expect("address"),
            admin: "127.0.0.1:2".parse().expect("address"),
            boot: MessageId::from_uuid(uuid::Uuid::from_u128(1)),
            sequence: 1,
            version: "0".into(),
            speed,
            capacity: Resources::new(MilliCpu(2000), MebiBytes(free * 2)),
            free: Resources::new(MilliCpu(1000), MebiBytes(free)),
            slots,
            busy,
            queued_work: Millis::new(queued),
            draining: false,
            waiting: 0,
            stages: None,
            apps: Vec::new(),
            devices: Vec::new(),
            stage_calls: None,
            controller_port: None,
            runtimes: None,
            weight: fdn_core::GatewayWeight::default(),
        }
    }

    /// Only the moment of the status counts.
    const NOW: Millis = Millis::ZERO;

    fn make(nodes: &[NodeStatus]) -> Cluster {
        cluster("c".parse().expect("cluster"), nodes, NOW)
    }

    #[test]
    fn nodes_add_up() {
        let c = make(&[
            node("a", 1.0, 2, 1, 30.0, 100),
            node("b", 2.0, 6, 4, 80.0, 300),
        ]);
        assert_eq!(c.availability, Availability::Up);
        assert_eq!(c.speed.get(), (2.0 + 12.0) / 8.0);
        assert_eq!(c.free.memory_mib, MebiBytes(400));
        assert_eq!(c.largest.memory_mib, MebiBytes(300));
        assert_eq!(c.capacity.memory_mib, MebiBytes(800));
        assert_eq!(c.roomiest.memory_mib, MebiBytes(600));
        // One busy slot with 30 ms of work; four share 80 ms of work at speed 2.
        let mut available: Vec<f64> = c.slots.available().iter().map(|t| t.get()).collect();
        available.sort_by(f64::total_cmp);
        assert_eq!(available, [0.0, 0.0, 0.0, 10.0, 10.0, 10.0, 10.0, 30.0]);
    }

    #[test]
    fn a_full_node_is_free_when_its_queue_has_drained() {
        let c = make(&[node("a", 2.0, 4, 4, 800.0, 1)]);
        assert_eq!(c.slots.earliest(), Millis::new(100.0));
        // Waiting for a first instance: nothing runs, yet one slot is taken.
        let c = make(&[node("a", 1.0, 1, 0, 50.0, 1)]);
        assert_eq!(c.slots.earliest(), Millis::new(50.0));
    }

    #[test]
    fn a_queue_counts_by_how_long_it_lasts() {
        let wait = |queued: f64| {
            let nodes = [node("a", 1.0, 1, 1, queued, 1)];
            let id = "c".parse().expect("cluster");
            cluster(id, &nodes, Millis::new(10_000.0)).slots.earliest()
        };
        assert_eq!(wait(0.0), Millis::ZERO);
        assert_eq!(
            wait(400.0),
            Millis::new(8.0),
            "0.2 s on average, for 0.4 s of 10"
        );
        assert_eq!(wait(10_000.0), Millis::new(5_000.0));
        assert_eq!(wait(60_000.0), Millis::new(55_000.0));
    }

    #[test]
    fn draining_nodes_do_not_count() {
        let mut drained = node("a", 9.0, 4, 0, 0.0, 100);
        drained.draining = true;
        assert_eq!(make(&[]).availability, Availability::Down);
        assert_eq!(
            make(std::slice::from_ref(&drained)).availability,
            Availability::Draining
        );
        let c = make(&[drained, node("b", 1.0, 1, 0, 0.0, 7)]);
        assert_eq!((c.speed.get(), c.slots.len()), (1.0, 1));
        assert_eq!(c.free.memory_mib, MebiBytes(7));
    }

    #[test]
    fn a_node_cannot_make_placement_allocate_without_end() {
        let c = make(&[node("a", 1.0, u32::MAX, 1, 10.0, 1)]);
        assert_eq!(c.slots.len(), SLOTS_MAX as usize);
        assert_eq!(c.slots.earliest(), Millis::ZERO);
        assert_eq!(
            c.slots.available().iter().max(),
            Some(&Millis::new(10.0)),
            "the busy slot stays in view"
        );
    }
}
