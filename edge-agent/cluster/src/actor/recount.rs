//! Repairs lost news of instances between two nodes, such as an `Ended` that no stream delivered.
//!
//! With every ping a node sends the sum ([`crate::tally`]) over the instances that it runs for the receiver. Streams are ordered, so if nothing was
//! lost, the receiver has the same sum when the ping arrives. If not, it asks, and the node lists what runs; of what the receiver believes to run
//! there, the rest has ended. Listed instances that the receiver does not know remain a difference, which is remembered so that it is not asked
//! about again.
//!
//! The cost is bounded: one question per ping; a list is at most as long as [`crate::settings::LimitSettings::running`], in pieces of [`PIECE`].

use std::collections::BTreeMap;

use fdn_scheduling::instance::NodeIndex;

use super::Actor;
use crate::host::Host;
use crate::identity::{Key, Tag};
use crate::wire::proto::{Body, Recount, Running};

/// The most instances in one message.
const PIECE: usize = 512;

/// What is known of the difference to another node's sum.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Difference {
    /// The part of the difference that is explained: by how much its sum exceeds this node's own.
    known: u64,
    /// The index of the next piece of the list being received.
    next: u32,
}

/// The differences, by process.
pub(super) type Differences = BTreeMap<Tag, Difference>;

impl<H: Host> Actor<H> {
    /// Handles the sum over what a member runs for this node.
    pub(super) fn check_tally(&mut self, from: Key, sum: u64) {
        if self.number(from).is_none() {
            return;
        }
        let difference = sum.wrapping_sub(self.own.running_on(from.tag));
        let known = self.differences.get(&from.tag).map_or(0, |one| one.known);
        if difference != known {
            self.metrics.recounts.inc();
            self.streams.send(from.tag, Body::Recount(Recount {}));
        }
    }

    /// Sends a member the list of what runs here for it.
    pub(super) fn send_running(&mut self, from: NodeIndex) {
        let tag = self.directory.slot(from).key.tag;
        let ids = self.running.ids(tag, |_, _| true);
        let sum = self.running.sum(tag);
        // An empty list is one piece, too.
        let pieces = ids.len().div_ceil(PIECE).max(1);
        let mut first = 0;
        for at in 0..pieces {
            let ids = &ids[at * PIECE..ids.len().min((at + 1) * PIECE)];
            let is_last = at + 1 == pieces;
            let last = ids.last().copied().filter(|_| !is_last).unwrap_or(u64::MAX);
            let running = Running {
                at: u32::try_from(at).unwrap_or(u32::MAX),
                first,
                last,
                ids: ids.to_vec(),
                sum: is_last.then_some(sum),
            };
            first = last.saturating_add(1);
            self.streams.send(tag, Body::Running(running));
        }
    }

    /// Handles a piece of such a list: what is believed to run there and is not listed has ended.
    pub(super) fn apply_running(&mut self, from: NodeIndex, running: &Running) {
        let tag = self.directory.slot(from).key.tag;
        let span = running.first..=running.last;
        let ended = self
            .own
            .believed_on(tag, |id| span.contains(&id) && !running.ids.contains(&id));
        for id in ended {
            self.metrics.missed.inc();
            self.instance_ended(id, false);
        }
        let difference = self.differences.entry(tag).or_default();
        if running.at == 0 {
            difference.next = 0;
        }
        let is_in_order = difference.next == running.at;
        difference.next = running.at.saturating_add(1);
        if let Some(sum) = running.sum {
            if is_in_order {
                difference.known = sum.wrapping_sub(self.own.running_on(tag));
            }
            difference.next = u32::MAX;
        } else if !is_in_order {
            difference.next = u32::MAX;
        }
        self.differences
            .retain(|_, one| one.known != 0 || one.next != u32::MAX);
    }
}
