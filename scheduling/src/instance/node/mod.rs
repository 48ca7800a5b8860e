//! The local scheduler of one node.
//!
//! **Problem.** A task needs an instance somewhere in the cluster, at once; the node where it arrives finds one without a central
//! scheduler, which could not keep up.
//!
//! **Source.** The patent "Highly scalable distributed scheduling system for serverless computing" (Tianjin University, 2022):
//! (1) local: a heap of tasks by remaining time; what is popped and fits is started. (2) probe: two distinct other nodes,
//! chosen uniformly, are asked; one with room reserves it and answers yes; the first yes gets the task. (3) global: after two
//! noes the task goes to the global scheduler ([`super::Global`]), whose choice this node may bounce.
//!
//! **Readings.** "Greater than" means "at least". Remaining time is the expected execution time of the instance's request. No
//! pre-emption: the order concerns waiting tasks only. The reservation is made when the probe arrives, for otherwise the resources could
//! be gone when the task does; it has a lease. A task that arrives after its lease has ended is still started if it fits, else it goes to
//! the global scheduler.
//!
//! **Losses.** See [`super`]: a holder decides once and remembers; a duplicate of the same leg repeats the decision. A node that does not
//! answer a probe in time counts as having no room.
//!
//! **Complexity.** O(1) per message and O(log q) for q tasks that arrived together; no allocation once the tables have grown.
//!
//! **Invariants.** `used + reserved <= capacity` at all times; no lease outlives its end; every table has a bound ([`super::Limits`]).

mod ownership;
mod probing;

use std::collections::VecDeque;

use fdn_core::Millis;
use rand::Rng;

use super::demand::Demand;
use super::hints::{Hints, Load};
use super::ledger::Ledger;
use super::memory::{Memory, Place};
use super::message::{
    Action, Fence, NodeIndex, NodeReport, Probe, Refusal, Running, Task, Term, ToGlobal, ToNode,
    ToSubmitter,
};
use super::order::ShortestFirst;
use super::peers::Peers;
use super::settings::{Policy, Settings, SettingsError};
use probing::Probing;

/// The last decision of this node about a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It waits for its turn.
    Queued,
    /// Other nodes are being probed; the slot of its entry.
    Probing(u32),
    /// It was sent to a node that had reserved resources for it.
    Assigned(NodeIndex),
    /// It was sent to a node by a hint, with this number of hops.
    Hinted(NodeIndex, u8),
    /// It was sent to the global scheduler of this term.
    Forwarded(Term),
    /// It was returned to the global scheduler that had placed it here, of this term.
    Bounced(Term),
    Started,
    Refused(Refusal),
    Fenced,
}

/// The last leg of a task that reached this node, and the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    attempt: u32,
    leg: u32,
    state: State,
}

/// A task that waits for its turn, and how often hints have forwarded it.
#[derive(Clone, Copy, Debug)]
struct Queued<D> {
    task: Task<D>,
    hops: u8,
    place: Place,
}

/// A task that this node holds, and where it is remembered.
#[derive(Clone, Copy, Debug)]
struct HeldTask<D> {
    task: Task<D>,
    place: Place,
}

/// The state of the reports to the global scheduler.
#[derive(Clone, Copy, Debug, Default)]
struct ReportState {
    version: u64,
    /// The earliest time of the next report, if something has changed.
    next: Millis,
    /// The time at which it is reported again in any case.
    refresh: Millis,
}

/// The local scheduler: see the module.
#[derive(Clone, Debug)]
pub struct Node<D> {
    index: NodeIndex,
    settings: Settings,
    ledger: Ledger<D>,
    memory: Memory<Record>,
    queue: ShortestFirst<Queued<D>>,
    probing: Probing<D>,
    waiters: VecDeque<Probe<D>>,
    peers: Peers,
    hints: Hints<D>,
    report_state: ReportState,
    term: Term,
    seen: u64,
}

impl<D: Demand> Node<D> {
    /// The scheduler of the node `index` among `nodes` nodes.
    ///
    /// # Errors
    /// When a setting cannot be used.
    pub fn new(
        index: NodeIndex,
        nodes: u32,
        capacity: D,
        settings: Settings,
    ) -> Result<Self, SettingsError> {
        settings.validate()?;
        Ok(Self {
            index,
            settings,
            ledger: Ledger::new(capacity, settings.limits),
            memory: Memory::new(settings.memory, settings.limits.memory),
            queue: ShortestFirst::with_capacity(settings.limits.queue),
            probing: Probing::new(settings.limits.probing),
            waiters: VecDeque::with_capacity(match settings.policy {
                Policy::LateBinding => settings.limits.waiters,
                _ => 0,
            }),
            peers: Peers::new(index, nodes),
            hints: Hints::new(index),
            report_state: ReportState::default(),
            term: Term::default(),
            seen: 0,
        })
    }

    /// Touches the memory of its tables now, so that the first burst does not wait for page faults.
    pub fn touch(&mut self) {
        self.memory.touch();
    }

    /// The node's index in the cluster.
    #[must_use]
    pub const fn index(&self) -> NodeIndex {
        self.index
    }

    /// The node's capacity.
    #[must_use]
    pub const fn capacity(&self) -> D {
        self.ledger.capacity()
    }

    /// The resources of its running instances.
    #[must_use]
    pub const fn used(&self) -> D {
        self.ledger.used()
    }

    /// The resources reserved for tasks on their way.
    #[must_use]
    pub const fn reserved(&self) -> D {
        self.ledger.reserved()
    }

    /// What is neither used nor reserved.
    #[must_use]
    pub const fn free(&self) -> D {
        self.ledger.free()
    }

    /// The number of running instances.
    #[must_use]
    pub fn running(&self) -> usize {
        self.ledger.running()
    }

    /// The number of tasks it remembers.
    #[must_use]
    pub const fn remembered(&self) -> usize {
        self.memory.len()
    }

    /// The number of tasks for which other nodes are being probed.
    #[must_use]
    pub const fn open_probes(&self) -> usize {
        self.probing.len()
    }

    /// The node's report to the global scheduler.
    #[must_use]
    pub const fn report(&self) -> NodeReport<D> {
        NodeReport {
            node: self.index,
            version: self.ledger.version(),
            free: self.ledger.free(),
            term: self.term,
            seen: self.seen,
        }
    }

    /// Handles a message. Tasks wait for their turn until [`Self::poll`], so that of several that arrive together the shortest goes first.
    pub fn receive(
        &mut self,
        now: Millis,
        message: ToNode<D>,
        rng: &mut impl Rng,
        actions: &mut Vec<Action<D>>,
    ) {
        self.expire(now, rng, actions);
        match message {
            ToNode::Submit(task) => self.queue_up(now, task, 0, rng, actions),
            ToNode::Hint(task, hops) => self.queue_up(now, task, hops, rng, actions),
            ToNode::Probe(probe) => self.probed(now, probe, actions),
            ToNode::Reply {
                id,
                attempt,
                from,
                yes,
            } => self.replied(now, (id, attempt), from, yes, rng, actions),
            ToNode::Release { id, attempt } => {
                self.ledger.release(id, attempt);
            }
            ToNode::Assign(task) => self.assigned(now, task, rng, actions),
            ToNode::Place(task, term, serial) => self.placed(now, task, (term, serial), actions),
            ToNode::Fence(fence) => self.fence(fence, actions),
        }
    }

    /// Processes what waits: queued tasks, shortest first; probes that wait for room; a due report to the global scheduler.
    pub fn poll(&mut self, now: Millis, rng: &mut impl Rng, actions: &mut Vec<Action<D>>) {
        self.expire(now, rng, actions);
        self.serve_waiters(now, actions);
        self.take_up_all(now, rng, actions);
        self.report_if_due(now, actions);
    }

    /// Handles the end of an instance; a repeated call has no effect.
    pub fn ended(&mut self, running: Running) {
        self.ledger.end(running);
    }

    /// Accounts for an instance that was running before this scheduler. `None` if its demand does not fit.
    pub fn adopt(&mut self, demand: D) -> Option<Running> {
        self.ledger.start(demand)
    }

    /// Handles the permanent loss of another node: its instances are gone, and nothing from it will arrive any more. If it returns,
    /// it returns as a new node without memory, after the deadlines of all tasks it had.
    pub fn lost(
        &mut self,
        now: Millis,
        node: NodeIndex,
        rng: &mut impl Rng,
        actions: &mut Vec<Action<D>>,
    ) {
        self.peers.lose(node);
        self.hints.forget(node);
        self.count_as_refusal(now, node, rng, actions);
    }

    /// Follows a new global scheduler: this node reports to it, and sends it the tasks that found no room from now on. Tasks that its
    /// predecessor had been given, and may have placed or not, are settled by the submitter (see [`super`]).
    pub fn headed(&mut self, term: Term) {
        if term > self.term {
            self.term = term;
            self.seen = 0;
            self.report_state.next = Millis::ZERO;
            self.report_state.refresh = Millis::ZERO;
        }
    }

    /// Handles the return of a node.
    pub fn returned(&mut self, node: NodeIndex) {
        self.peers.regain(node);
    }

    /// Extends the cluster to `nodes` nodes, which take part at once. It never shrinks: a node that leaves is lost.
    pub fn grow(&mut self, nodes: u32) {
        self.peers.grow(nodes);
    }

    /// Replaces the snapshot of all nodes, in the order of their indices. Only [`Policy::Hints`] uses it; other policies ignore it.
    pub fn snapshot(&mut self, loads: &[Load<D>]) {
        if self.settings.policy != Policy::Hints {
            return;
        }
        self.hints.renew(loads);
        for lost in self.peers.lost() {
            self.hints.forget(*lost);
        }
    }

    /// When [`Self::poll`] has something to do without a message; `None` if nothing is pending.
    #[must_use]
    pub fn next_timer(&self) -> Option<Millis> {
        let timers = [
            self.ledger.next_expiry(),
            self.probing.next_due(),
            self.next_notice(),
        ];
        timers.into_iter().flatten().min()
    }

    #[inline]
    fn expire(&mut self, now: Millis, rng: &mut impl Rng, actions: &mut Vec<Action<D>>) {
        while let Some(forgotten) = self.memory.forget(now) {
            if let State::Probing(slot) = forgotten.state {
                self.probing.remove(slot);
            }
        }
        self.ledger.expire(now);
        while let Some(slot) = self.probing.overdue(now) {
            self.all_refused(now, slot, rng, actions);
        }
    }

    /// When the next report to the global scheduler is due; `None` if the policy has none.
    fn next_notice(&self) -> Option<Millis> {
        match self.settings.policy {
            Policy::LocalProbeGlobal | Policy::Hints | Policy::BottomUp => {
                let is_news = self.report_state.version != self.ledger.version();
                Some(if is_news {
                    self.report_state.next
                } else {
                    self.report_state.refresh
                })
            }
            Policy::ReProbing | Policy::LateBinding => None,
        }
    }

    fn report_if_due(&mut self, now: Millis, actions: &mut Vec<Action<D>>) {
        if self.next_notice().is_some_and(|next| next <= now) {
            self.report_state = ReportState {
                version: self.ledger.version(),
                next: now + self.settings.notice_every,
                refresh: now + self.settings.refresh,
            };
            actions.push(Action::Global(ToGlobal::Notice(self.report())));
        }
    }

    fn fence(&mut self, fence: Fence, actions: &mut Vec<Action<D>>) {
        let Fence {
            id,
            attempt,
            deadline,
        } = fence;
        let known = self.memory.get(id);
        let started = known.is_some_and(|record| record.state == State::Started);
        let is_newer = known.is_some_and(|record| record.attempt > attempt);
        if !started && !is_newer {
            if let Some(State::Probing(slot)) = known.map(|record| record.state) {
                self.probing.remove(slot);
            }
            let record = Record {
                attempt,
                leg: u32::MAX,
                state: State::Fenced,
            };
            if self.memory.put(id, deadline, record).is_err() {
                // Without a record the fence would not hold; the submitter asks again.
                return;
            }
            self.ledger.release(id, attempt);
        }
        actions.push(Action::Submitter(ToSubmitter::Fenced {
            id,
            attempt,
            by: Some(self.index),
            started,
        }));
    }
}
