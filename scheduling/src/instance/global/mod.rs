//! The global scheduler of a cluster, for the few tasks that found no node by probing.
//!
//! **Problem.** A task that two nodes refused still needs a good node soon, and only the global scheduler knows all nodes.
//!
//! **Source.** The patent "Highly scalable distributed scheduling system for serverless computing" (Tianjin University, 2022):
//! a heap by remaining time; the shortest goes to the node with the most free resources in this scheduler's view; a node that
//! no longer has the room bounces it, which corrects the view; without room anywhere a task waits for a release notice.
//!
//! **Readings.** The view lags: a node's report may be older than the last placement sent there. Placements are therefore numbered per
//! node, a report says which it has seen, and the others are subtracted from what it reports as free. A task that fits nowhere does not
//! block smaller ones behind it: up to `look_ahead` such tasks are skipped.
//!
//! **Losses.** As for nodes (see [`super`]): every leg is decided once and remembered; a duplicate message repeats the decision.
//!
//! **Complexity.** O(log q + log n) per decision with q tasks waiting on n nodes (unit slots), O(log n) per report; no allocation once
//! the tables have grown.
//!
//! **Bounds.** Waiting and remembered tasks ([`GlobalSettings`]); one more is refused, with the reason.

mod lists;
mod node_table;

use fdn_core::Millis;

use super::demand::Demand;
use super::memory::{Memory, Place};
use super::message::{
    Action, Fence, NodeIndex, NodeReport, Refusal, Task, Term, ToGlobal, ToNode, ToSubmitter,
};
use super::order::{Arrival, ShortestFirst};
use super::settings::GlobalSettings;
use lists::LeaseTable;
pub use lists::{ByRoom, Commit, ListSettings, Verdict};
use node_table::NodeTable;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Placed(NodeIndex, u64),
    Refused(Refusal),
    Fenced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    attempt: u32,
    leg: u32,
    state: State,
}

/// A waiting task, and where it is remembered.
#[derive(Clone, Copy, Debug)]
struct Waiting<D> {
    task: Task<D>,
    place: Place,
    /// How many lists for it have failed.
    failed: u32,
    /// The gain counter at the last scan that found no node for it; `None` before the first.
    gains_at_failed_scan: Option<u64>,
}

/// The global scheduler: see the module.
#[derive(Clone, Debug)]
pub struct Global<D> {
    settings: GlobalSettings,
    term: Term,
    queue: ShortestFirst<Waiting<D>>,
    /// Tasks skipped by the current search, which go back into the queue.
    skipped: Vec<(Arrival, Waiting<D>)>,
    memory: Memory<Record>,
    node_table: NodeTable<D>,
    /// `None` without pre-schedulers.
    lease_table: Option<LeaseTable<D>>,
    /// Whether a task has been queued since the last search that placed nothing.
    queued_since_search: bool,
    /// The gain counter of the node table at the last search.
    gains_at_search: u64,
}

impl<D: Demand> Global<D> {
    /// The first global scheduler of a cluster, for nodes of these capacities, which count as free until reports say otherwise.
    #[must_use]
    pub fn new(capacities: &[D], settings: GlobalSettings) -> Self {
        Self::with_node_table(
            NodeTable::new(capacities, true, settings.placements),
            Term::default(),
            settings,
        )
    }

    /// A successor that knows nothing of its predecessor's placements: no capacity counts as free until nodes report. `term` is
    /// larger than any before; the nodes are told of it ([`super::Node::headed`]), as is the submitter if it sends tasks here
    /// ([`super::Submitter::headed`]).
    #[must_use]
    pub fn take_over(capacities: &[D], term: Term, settings: GlobalSettings) -> Self {
        Self::with_node_table(
            NodeTable::new(capacities, false, settings.placements),
            term,
            settings,
        )
    }

    fn with_node_table(node_table: NodeTable<D>, term: Term, settings: GlobalSettings) -> Self {
        Self {
            settings,
            term,
            queue: ShortestFirst::with_capacity(settings.queue),
            skipped: Vec::with_capacity(settings.look_ahead + 1),
            memory: Memory::new(settings.memory, settings.memory_limit),
            node_table,
            lease_table: None,
            queued_since_search: false,
            gains_at_search: 0,
        }
    }

    /// Touches the memory of its tables now, so that the first burst does not wait for page faults.
    pub fn touch(&mut self) {
        self.memory.touch();
    }

    /// Its term; each successor has a larger one.
    #[must_use]
    pub const fn term(&self) -> Term {
        self.term
    }

    /// The number of waiting tasks, those handed out to pre-schedulers included.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len() + self.out()
    }

    /// The number of tasks it remembers.
    #[must_use]
    pub const fn remembered(&self) -> usize {
        self.memory.len()
    }

    /// What it believes to be free on a node: the last report less the placements that it has not seen.
    #[must_use]
    pub fn assumed_free(&self, node: NodeIndex) -> D {
        self.node_table.assumed_free(node)
    }

    /// Whether [`Self::decide`] or [`Self::take`] may find something to do.
    #[must_use]
    pub fn has_work(&self) -> bool {
        (self.queued_since_search || self.gains_at_search != self.node_table.gains())
            && !self.queue.is_empty()
    }

    /// Handles a message; resulting messages are appended to `actions`.
    pub fn receive(&mut self, now: Millis, message: ToGlobal<D>, actions: &mut Vec<Action<D>>) {
        self.expire(now);
        match message {
            // A message for another term may have been decided by that scheduler.
            ToGlobal::Forward(_, term) if term != self.term => {}
            ToGlobal::Bounce(_, report) | ToGlobal::Notice(report) if report.term != self.term => {}
            ToGlobal::Forward(task, _) => self.queue_up(now, task, actions),
            ToGlobal::Bounce(task, report) => {
                self.update(&report);
                self.queue_up(now, task, actions);
            }
            ToGlobal::Notice(report) => self.update(&report),
            ToGlobal::Fence(fence) => self.fence(fence, actions),
        }
    }

    /// Places the shortest waiting task that fits on some node; false if none does.
    pub fn decide(&mut self, now: Millis, actions: &mut Vec<Action<D>>) -> bool {
        self.expire(now);
        let mut too_much: Option<D> = None;
        let found = self.next(now, actions, |node_table, waiting| {
            let demand = &waiting.task.demand;
            // A demand no smaller than one that fits nowhere need not be checked.
            let fits_nowhere = too_much.is_some_and(|least| least.fits(demand));
            let best = (!fits_nowhere).then(|| node_table.best(demand)).flatten();
            if best.is_none() {
                too_much = too_much.or(Some(*demand));
            }
            best
        });
        if let Some((_, waiting, node)) = found {
            self.place(now, &waiting, node, actions);
        }
        found.is_some()
    }

    /// When [`Self::decide`] or [`Self::take`] may succeed without a further message: a placement is given up as lost, or a lease
    /// with a pre-scheduler ends. `None` if nothing is pending.
    #[must_use]
    pub fn next_timer(&self) -> Option<Millis> {
        let placement = self
            .node_table
            .next_expiry()
            .filter(|_| !self.queue.is_empty());
        let list = self.lease_table.as_ref().and_then(LeaseTable::next_expiry);
        placement.into_iter().chain(list).min()
    }

    /// Handles the permanent loss of a node; see [`super::Node::lost`].
    pub fn lost(&mut self, node: NodeIndex) {
        self.node_table.lost(node);
    }

    /// Handles the return of a node as a new one: its earlier state is discarded.
    pub fn returned(&mut self, node: NodeIndex) {
        self.node_table.returned(node);
    }

    /// Adds a node with the next index. Nothing counts as free there until it reports.
    pub fn grow(&mut self, capacity: D) -> NodeIndex {
        self.node_table.grow(capacity)
    }

    /// Reuses a lost node's index for another node of this capacity.
    pub fn replaced(&mut self, node: NodeIndex, capacity: D) {
        self.node_table.replaced(node, capacity);
    }

    /// The shortest waiting task for which `choose` finds something; tasks without a choice are skipped, up to `look_ahead`.
    fn next<T>(
        &mut self,
        now: Millis,
        actions: &mut Vec<Action<D>>,
        mut choose: impl FnMut(&NodeTable<D>, &Waiting<D>) -> Option<T>,
    ) -> Option<(Arrival, Waiting<D>, T)> {
        let mut found = None;
        while self.skipped.len() <= self.settings.look_ahead && !self.node_table.is_full() {
            let Some((arrival, waiting)) = self.queue.pop() else {
                break;
            };
            // It may have been fenced since it was queued, or queued again with a later leg.
            if !self.is_wanted(&waiting) {
                continue;
            }
            if now > waiting.task.deadline {
                self.refuse(&waiting, Refusal::Expired, actions);
                continue;
            }
            if let Some(choice) = choose(&self.node_table, &waiting) {
                found = Some((arrival, waiting, choice));
                break;
            }
            self.skipped.push((arrival, waiting));
        }
        for (arrival, waiting) in self.skipped.drain(..) {
            self.queue
                .push_back(waiting.task.remaining, arrival, waiting);
        }
        self.queued_since_search = found.is_some();
        self.gains_at_search = self.node_table.gains();
        found
    }

    fn is_wanted(&self, waiting: &Waiting<D>) -> bool {
        self.memory.at(waiting.place, waiting.task.id) == Some(record_of(&waiting.task))
    }

    fn queue_up(&mut self, now: Millis, task: Task<D>, actions: &mut Vec<Action<D>>) {
        if now > task.deadline {
            return;
        }
        let record = record_of(&task);
        let is_new = |known: Record| (known.attempt, known.leg) < (record.attempt, record.leg);
        let put = self.memory.put_if(task.id, task.deadline, record, is_new);
        let place = match put {
            Ok(Ok(place)) => place,
            Ok(Err(_)) => return notify_refusal(&task, Refusal::MemoryFull, actions),
            Err(known) => {
                if known.attempt == task.attempt {
                    self.repeat(&task, known, actions);
                }
                return;
            }
        };
        let waiting = Waiting {
            task,
            place,
            failed: 0,
            gains_at_failed_scan: None,
        };
        if !self.node_table.is_large_enough(&task.demand) {
            self.refuse(&waiting, Refusal::TooLarge, actions);
        } else if self.waiting() >= self.settings.queue {
            self.refuse(&waiting, Refusal::QueueFull, actions);
        } else {
            self.queue.push(task.remaining, waiting);
            self.queued_since_search = true;
        }
    }

    fn repeat(&self, task: &Task<D>, known: Record, actions: &mut Vec<Action<D>>) {
        match known.state {
            State::Waiting | State::Fenced => {}
            State::Placed(node, _) if self.node_table.is_lost(node) => {
                actions.push(Action::Submitter(ToSubmitter::Broken {
                    id: task.id,
                    attempt: task.attempt,
                }));
            }
            State::Placed(node, serial) => {
                let message = ToNode::Place(task.passed_on(known.leg), self.term, serial);
                actions.push(Action::Node(node, message));
            }
            State::Refused(refusal) => notify_refusal(task, refusal, actions),
        }
    }

    fn decided(&mut self, waiting: &Waiting<D>, state: State) {
        let record = Record {
            state,
            ..record_of(&waiting.task)
        };
        self.memory.change(waiting.place, waiting.task.id, record);
    }

    fn place(
        &mut self,
        now: Millis,
        waiting: &Waiting<D>,
        node: NodeIndex,
        actions: &mut Vec<Action<D>>,
    ) {
        let task = &waiting.task;
        let until = now + self.settings.under_way;
        let serial = self.node_table.place(until, node, task.demand);
        self.decided(waiting, State::Placed(node, serial));
        let message = ToNode::Place(task.passed_on(task.leg), self.term, serial);
        actions.push(Action::Node(node, message));
    }

    fn refuse(&mut self, waiting: &Waiting<D>, refusal: Refusal, actions: &mut Vec<Action<D>>) {
        self.decided(waiting, State::Refused(refusal));
        notify_refusal(&waiting.task, refusal, actions);
    }

    fn update(&mut self, report: &NodeReport<D>) {
        self.node_table.update(report);
    }

    /// Forgets tasks whose retention has ended, and placements whose message counts as lost.
    fn expire(&mut self, now: Millis) {
        while self.memory.forget(now).is_some() {}
        self.node_table.expire(now);
    }

    fn fence(&mut self, fence: Fence, actions: &mut Vec<Action<D>>) {
        let Fence {
            id,
            attempt,
            deadline,
        } = fence;
        let is_newer = |known: Record| known.attempt > attempt;
        if !self.memory.get(id).is_some_and(is_newer) {
            let record = Record {
                attempt,
                leg: u32::MAX,
                state: State::Fenced,
            };
            if self.memory.put(id, deadline, record).is_err() {
                return;
            }
        }
        actions.push(Action::Submitter(ToSubmitter::Fenced {
            id,
            attempt,
            by: None,
            started: false,
        }));
    }
}

/// The record that a waiting task has in memory.
const fn record_of<D>(task: &Task<D>) -> Record {
    Record {
        attempt: task.attempt,
        leg: task.leg,
        state: State::Waiting,
    }
}

fn notify_refusal<D>(task: &Task<D>, refusal: Refusal, actions: &mut Vec<Action<D>>) {
    actions.push(Action::Submitter(ToSubmitter::Refused {
        id: task.id,
        attempt: task.attempt,
        refusal,
    }));
}
