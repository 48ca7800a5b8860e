//! The global scheduler with pre-schedulers: it hands out tasks, and commits the candidate lists that come back.
//!
//! **Source.** The patent "Scheduling method, scheduling device and scheduling system"; [`crate::commit`] has the rules. Here the pending
//! queue is the heap by remaining time, a commit is a placement that its node may still bounce, and the full scan after too many failed
//! lists queries the tournament tree ([`super::super::view`]), which finds the same node without visiting all.
//!
//! **Readings.**
//! - A task that fails returns to its position in the heap, not to the end of a queue.
//! - A task that fits on no node is not handed out again before some node has gained capacity. One whose demand exceeds the largest
//!   amount possibly free on any node is not handed out at all, which costs one comparison.
//! - A list that arrives after its lease, twice, or for a task fenced meanwhile places nothing.
//!
//! **Complexity.** Handing out: O(log q) for q tasks waiting; committing a list of h nodes: O(h log h + log q + log n).
//!
//! **Bounds.** Tasks handed out to pre-schedulers ([`ListSettings::in_flight`]); at the bound nothing more is handed out.

use fdn_core::{Millis, Resources};

use super::super::demand::Demand;
use super::super::message::{Action, NodeIndex, Refusal};
use super::super::order::Arrival;
use super::super::slab::Slab;
use super::{Global, Waiting};
use crate::commit::{List, ListRequest, Merge, NodeRecord, Score, Scoring, Store, Ticket};

/// Settings for the work with pre-schedulers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ListSettings {
    /// The most tasks handed out at a time, at most 2^24; more would only queue up at the committer and go stale there.
    pub in_flight: usize,
    /// After how many failed lists for one task the committer scans all nodes itself.
    pub retries: u32,
    /// How long a task may be handed out. After that its pre-scheduler counts as lost, and the task is queued again.
    pub lease: Millis,
    /// How many changes of node records are kept for pre-schedulers that update their copies incrementally.
    pub history: usize,
}

impl Default for ListSettings {
    fn default() -> Self {
        Self {
            in_flight: 256,
            retries: 1,
            lease: Millis::new(1000.0),
            history: 4096,
        }
    }
}

/// The scoring rule of the global scheduler: the node with the most room before placing ([`Demand::room`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct ByRoom;

impl Scoring for ByRoom {
    fn score(&self, _: &Resources, node: &NodeRecord) -> Score {
        Score::new(f64::from(node.free().room(node.capacity())))
    }
}

/// The outcome of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The task was placed on the node at this position of its list, from 0.
    Listed(usize),
    /// No node of the lists had room, and a scan of all nodes found one.
    Scanned,
    /// No node of the list has room any more, or the bound on placements under way is reached; the task is queued for another list.
    Returned,
    /// No node at all has room; the task waits until one gains capacity.
    Waiting,
    /// The task is no longer wanted: fenced, settled otherwise, or past its deadline.
    Gone,
    /// The task is not handed out for this list, which is late or a duplicate.
    Ignored,
}

/// The outcome of a list, with figures for the experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Commit {
    /// The outcome.
    pub verdict: Verdict,
    /// Whether its first node had changed since the pre-scheduler read the record.
    pub conflict: bool,
    /// How long the task was handed out.
    pub took: Millis,
}

/// A task handed out to a pre-scheduler.
#[derive(Clone, Copy, Debug)]
struct LeasedTask<D> {
    waiting: Waiting<D>,
    arrival: Arrival,
    attempt: u64,
    taken: Millis,
}

/// The tasks handed out, and the committer's working state.
#[derive(Clone, Debug)]
pub(super) struct LeaseTable<D> {
    settings: ListSettings,
    /// In the order of handing out, so that the first one's lease ends first.
    out: Slab<LeasedTask<D>>,
    attempts: u64,
    merge: Merge,
}

impl<D: Demand> LeaseTable<D> {
    /// When the lease of the first task handed out ends.
    pub(super) fn next_expiry(&self) -> Option<Millis> {
        let (_, first) = self.out.first()?;
        Some(first.taken + self.settings.lease)
    }

    fn overdue(&mut self, now: Millis) -> Option<LeasedTask<D>> {
        let (slot, first) = self.out.first()?;
        if first.taken + self.settings.lease > now {
            return None;
        }
        self.out.remove(slot)
    }

    fn take_back(&mut self, ticket: Ticket) -> Option<LeasedTask<D>> {
        let out = self.out.get(ticket.slot)?;
        let is_it = out.attempt == ticket.attempt;
        is_it.then(|| self.out.remove(ticket.slot)).flatten()
    }
}

impl<D: Demand> Global<D> {
    /// Enables pre-schedulers: [`Self::take`] and [`Self::commit`] replace [`Self::decide`] from now on.
    #[must_use]
    pub fn with_lists(mut self, settings: ListSettings) -> Self {
        self.node_table.keep_records(settings.history);
        self.lease_table = Some(LeaseTable {
            settings,
            out: Slab::new(settings.in_flight.max(1)),
            attempts: 0,
            merge: Merge::default(),
        });
        self
    }

    /// The node records for pre-schedulers to copy; `None` without pre-schedulers.
    #[must_use]
    pub const fn records(&self) -> Option<&Store> {
        self.node_table.records()
    }

    /// The number of tasks handed out to pre-schedulers.
    #[must_use]
    pub fn out(&self) -> usize {
        self.lease_table
            .as_ref()
            .map_or(0, |lease_table| lease_table.out.len())
    }

    /// Hands out the shortest waiting task that may fit on some node; `None` if there is none, or the bound on tasks handed out is reached.
    pub fn take(&mut self, now: Millis, actions: &mut Vec<Action<D>>) -> Option<ListRequest> {
        self.expire(now);
        self.take_back_overdue(now);
        if self.lease_table.as_ref()?.out.is_full() {
            return None;
        }
        let (arrival, waiting, ()) = self.next(now, actions, |node_table, waiting| {
            let is_futile = waiting.gains_at_failed_scan == Some(node_table.gains());
            (!is_futile && node_table.may_fit(&waiting.task.demand)).then_some(())
        })?;
        let lease_table = self.lease_table.as_mut()?;
        lease_table.attempts += 1;
        let attempt = lease_table.attempts;
        let slot = lease_table.out.push(LeasedTask {
            waiting,
            arrival,
            attempt,
            taken: now,
        })?;
        Some(ListRequest {
            ticket: Ticket { slot, attempt },
            demand: waiting.task.demand.resources(),
        })
    }

    /// Commits a list: the task goes to the first of its nodes, in the order of their present scores, that has room.
    pub fn commit(&mut self, now: Millis, list: &List, actions: &mut Vec<Action<D>>) -> Commit {
        self.expire(now);
        let out = self
            .lease_table
            .as_mut()
            .and_then(|lease_table| lease_table.take_back(list.ticket));
        let Some(out) = out else {
            return Commit {
                verdict: Verdict::Ignored,
                conflict: false,
                took: Millis::ZERO,
            };
        };
        let top = list.entries.first();
        let has_changed = |records: &Store| {
            top.is_some_and(|top| {
                let record = records.get(top.node);
                record.is_none_or(|record| record.version() != top.version)
            })
        };
        Commit {
            conflict: self.node_table.records().is_some_and(has_changed),
            verdict: self.try_in_order(now, &out, list, actions),
            took: now - out.taken,
        }
    }

    fn try_in_order(
        &mut self,
        now: Millis,
        out: &LeasedTask<D>,
        list: &List,
        actions: &mut Vec<Action<D>>,
    ) -> Verdict {
        let waiting = &out.waiting;
        if !self.is_wanted(waiting) {
            return Verdict::Gone;
        }
        if now > waiting.task.deadline {
            self.refuse(waiting, Refusal::Expired, actions);
            return Verdict::Gone;
        }
        let listed = self.first_fit(&waiting.task.demand, list);
        if let Some(node) = listed.filter(|_| !self.node_table.is_full()) {
            self.place(now, waiting, node, actions);
            let rank = list.entries.iter().position(|entry| entry.node == node);
            return Verdict::Listed(rank.unwrap_or(usize::MAX));
        }
        let failed = waiting.failed + 1;
        let retries = self
            .lease_table
            .as_ref()
            .map_or(0, |lease_table| lease_table.settings.retries);
        if failed <= retries || self.node_table.is_full() {
            self.wait(out, failed, None);
            return Verdict::Returned;
        }
        match self.node_table.best(&waiting.task.demand) {
            Some(node) => {
                self.place(now, waiting, node, actions);
                Verdict::Scanned
            }
            None => {
                self.wait(out, 0, Some(self.node_table.gains()));
                Verdict::Waiting
            }
        }
    }

    /// Steps (i) to (iv) of [`crate::commit`]: the list re-evaluated on present records.
    fn first_fit(&mut self, demand: &D, list: &List) -> Option<NodeIndex> {
        let merge = &mut self.lease_table.as_mut()?.merge;
        let records = self.node_table.records()?.records();
        let order = merge.run(&list.entries, records, &demand.resources(), &ByRoom);
        let fits = |node: &NodeIndex| demand.fits(&self.node_table.assumed_free(*node));
        order.iter().map(|entry| entry.node).find(fits)
    }

    /// Puts a task that was handed out back into its position in the queue.
    fn wait(&mut self, out: &LeasedTask<D>, failed: u32, gains_at_failed_scan: Option<u64>) {
        let waiting = Waiting {
            failed,
            gains_at_failed_scan,
            ..out.waiting
        };
        self.queue
            .push_back(waiting.task.remaining, out.arrival, waiting);
        self.queued_since_search |= gains_at_failed_scan.is_none();
    }

    fn take_back_overdue(&mut self, now: Millis) {
        while let Some(out) = self
            .lease_table
            .as_mut()
            .and_then(|lease_table| lease_table.overdue(now))
        {
            self.wait(&out, out.waiting.failed, None);
        }
    }
}
