//! The global scheduler's view of the nodes: what each reported as free, less the placements under way to it.
//!
//! Kept twice when pre-schedulers are at work: as a tree for the best node at once, and as versioned records, of which they hold copies.
//! Both change together, only here.

use fdn_core::Millis;

use super::super::demand::Demand;
use super::super::message::{NodeIndex, NodeReport};
use super::super::slab::Slab;
use super::super::view::View;
use crate::commit::{Presence, Store};

/// No slot of the list of placements.
const NONE: u32 = u32::MAX;

/// What is known of a node beside its entry in the view.
#[derive(Clone, Debug)]
struct NodeEntry<D> {
    capacity: D,
    reported: D,
    version: Option<u64>,
    lost: bool,
    /// The number of placements sent to it so far.
    serial: u64,
    /// The first and last slot of those it had not seen when it last reported.
    first: u32,
    last: u32,
}

impl<D> NodeEntry<D> {
    const fn new(capacity: D, reported: D) -> Self {
        Self {
            capacity,
            reported,
            version: None,
            lost: false,
            serial: 0,
            first: NONE,
            last: NONE,
        }
    }
}

/// A placement on its way; it is given up at `until` if the node has not seen it by then, since its message must be lost.
#[derive(Clone, Copy, Debug)]
struct UnderWay<D> {
    until: Millis,
    node: NodeIndex,
    serial: u64,
    demand: D,
    /// The slot of the next placement to the same node.
    next: u32,
}

/// The table of nodes.
#[derive(Clone, Debug)]
pub(super) struct NodeTable<D> {
    nodes: Vec<NodeEntry<D>>,
    view: View<D>,
    sizes: View<D>,
    under_way: Slab<UnderWay<D>>,
    /// Versioned records for pre-schedulers; `None` without them.
    records: Option<Store>,
    /// Counts the events that a task without room may have waited for.
    gains: u64,
}

impl<D: Demand> NodeTable<D> {
    /// For nodes of these capacities: all of it free (`are_free`), or nothing until they report.
    pub(super) fn new(capacities: &[D], are_free: bool, placements: usize) -> Self {
        let mut sizes = View::new(capacities.len());
        for (capacity, node) in capacities.iter().zip(0..) {
            sizes.set(NodeIndex(node), *capacity, capacity.room(capacity));
        }
        let known = |&capacity: &D| {
            let reported = if are_free { capacity } else { D::default() };
            NodeEntry::new(capacity, reported)
        };
        Self {
            nodes: capacities.iter().map(known).collect(),
            view: if are_free {
                sizes.clone()
            } else {
                View::new(capacities.len())
            },
            sizes,
            under_way: Slab::new(placements),
            records: None,
            gains: 0,
        }
    }

    /// Starts to keep records, with the last `history` changes of them.
    pub(super) fn keep_records(&mut self, history: usize) {
        self.records = Some(Store::new(history));
        for node in (0..self.nodes.len()).filter_map(|at| u32::try_from(at).ok()) {
            self.publish(NodeIndex(node));
        }
    }

    pub(super) const fn records(&self) -> Option<&Store> {
        self.records.as_ref()
    }

    pub(super) const fn gains(&self) -> u64 {
        self.gains
    }

    /// Whether the bound on placements under way is reached.
    pub(super) const fn is_full(&self) -> bool {
        self.under_way.is_full()
    }

    pub(super) fn is_lost(&self, node: NodeIndex) -> bool {
        self.nodes[node.get()].lost
    }

    /// What is assumed to be free: reported, less the placements under way.
    pub(super) fn assumed_free(&self, node: NodeIndex) -> D {
        self.view.free(node)
    }

    /// The node with the most room among those where the demand fits.
    pub(super) fn best(&self, demand: &D) -> Option<NodeIndex> {
        self.view.best(demand)
    }

    /// Whether some node may have room; if false, none has.
    pub(super) fn may_fit(&self, demand: &D) -> bool {
        self.view.may_fit(demand)
    }

    /// Whether the demand would fit on some node if it were empty.
    pub(super) fn is_large_enough(&self, demand: &D) -> bool {
        self.sizes.best(demand).is_some()
    }

    /// Notes a placement and returns its serial number among those sent to that node.
    pub(super) fn place(&mut self, until: Millis, node: NodeIndex, demand: D) -> u64 {
        let known = &mut self.nodes[node.get()];
        known.serial += 1;
        let serial = known.serial;
        let pushed = self.under_way.push(UnderWay {
            until,
            node,
            serial,
            demand,
            next: NONE,
        });
        if let Some(slot) = pushed {
            match self.under_way.get_mut(known.last) {
                Some(last) => last.next = slot,
                None => known.first = slot,
            }
            known.last = slot;
        }
        self.revise(node);
        serial
    }

    /// Applies a node's report, unless a newer one was applied or the node is lost.
    pub(super) fn update(&mut self, report: &NodeReport<D>) {
        let known = &mut self.nodes[report.node.get()];
        if known.lost
            || known
                .version
                .is_some_and(|version| version > report.version)
        {
            return;
        }
        known.version = Some(report.version);
        known.reported = report.free;
        self.arrived(report.node, report.seen);
        self.revise(report.node);
    }

    pub(super) fn lost(&mut self, node: NodeIndex) {
        self.nodes[node.get()].lost = true;
        self.revise(node);
        self.publish(node);
    }

    pub(super) fn returned(&mut self, node: NodeIndex) {
        let known = &mut self.nodes[node.get()];
        known.lost = false;
        known.version = None;
        known.reported = D::default();
        self.arrived(node, u64::MAX);
        self.revise(node);
        self.publish(node);
    }

    pub(super) fn replaced(&mut self, node: NodeIndex, capacity: D) {
        self.returned(node);
        self.nodes[node.get()].capacity = capacity;
        self.sizes.set(node, capacity, capacity.room(&capacity));
        self.publish(node);
    }

    pub(super) fn grow(&mut self, capacity: D) -> NodeIndex {
        let node = NodeIndex(u32::try_from(self.nodes.len()).expect("there are fewer nodes"));
        self.nodes.push(NodeEntry::new(capacity, D::default()));
        for view in [&mut self.view, &mut self.sizes] {
            view.grow(self.nodes.len());
        }
        self.sizes.set(node, capacity, capacity.room(&capacity));
        self.publish(node);
        node
    }

    /// Gives up placements whose message must be lost.
    pub(super) fn expire(&mut self, now: Millis) {
        while let Some((_, &first)) = self.under_way.first() {
            if first.until > now {
                return;
            }
            self.arrived(first.node, first.serial);
            self.revise(first.node);
        }
    }

    /// When the first of them is given up.
    pub(super) fn next_expiry(&self) -> Option<Millis> {
        self.under_way.first().map(|(_, first)| first.until)
    }

    /// Removes the placements on a node up to this serial number: they have arrived.
    fn arrived(&mut self, node: NodeIndex, serial: u64) {
        let known = &mut self.nodes[node.get()];
        while let Some(first) = self.under_way.get(known.first).copied() {
            if first.serial > serial {
                return;
            }
            self.gains += u64::from(self.under_way.is_full());
            self.under_way.remove(known.first);
            known.first = first.next;
        }
        known.last = NONE;
    }

    /// The free amount that a node reported, less what is under way to it.
    fn free(&self, node: NodeIndex) -> D {
        let known = &self.nodes[node.get()];
        if known.lost {
            return D::default();
        }
        let mut free = known.reported;
        let mut slot = known.first;
        while let Some(placement) = self.under_way.get(slot) {
            free = free.minus_or_zero(&placement.demand);
            slot = placement.next;
        }
        free
    }

    fn revise(&mut self, node: NodeIndex) {
        let (free, before) = (self.free(node), self.view.free(node));
        if free != before {
            self.gains += u64::from(!free.fits(&before));
            let room = free.room(&self.nodes[node.get()].capacity);
            self.view.set(node, free, room);
            self.publish(node);
        }
    }

    fn publish(&mut self, node: NodeIndex) {
        let Some(records) = &mut self.records else {
            return;
        };
        let known = &self.nodes[node.get()];
        let presence = if known.lost {
            Presence::Absent
        } else {
            Presence::Up
        };
        let used = known.capacity.minus_or_zero(&self.view.free(node));
        records.state(node, known.capacity.resources(), used.resources(), presence);
    }
}
