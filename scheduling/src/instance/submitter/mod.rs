//! The submitter of tasks: it sends each to a random node, and again until it knows the outcome.
//!
//! **Problem.** Every message may be lost, duplicated or late, and nodes fail, yet at most one instance may start per task, and no
//! accepted task may vanish.
//!
//! **Method.** One attempt is a chain of holders, each of which decides once, so it starts at most one instance, and sending the task
//! again to its first node repeats whatever was lost on the way. Only when a node of the chain is lost is another attempt needed. Before
//! it begins, every other node and the global scheduler must have promised not to start the old one any more (a fence), and none of them
//! must have started it. The same fence settles a task whose deadline has passed.
//!
//! **Readings.** The source does not treat losses. The autoscaler requests as many tasks as instances are missing, so a refused or
//! expired task needs no retry: it is requested again if still wanted.
//!
//! **Overload.** An overloaded cluster must not be flooded with requests: at most `window` unanswered tasks are in flight, the others are
//! held here, shortest first, and a task not sent by its deadline is refused without any message. A task in flight for longer than
//! `patience` is waiting for capacity somewhere, and no longer counts towards the window.
//!
//! **Complexity.** O(log t) per task with t open ones; a fence costs a message to every node.
//!
//! **Bounds.** Open tasks ([`SubmitterSettings::open`]), held ones included; beyond it none is accepted.

mod settings;
mod window;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fdn_core::Millis;
use rand::{Rng, RngExt};

use super::demand::Demand;
use super::index::{Index, Vacancy};
use super::message::{
    Action, Fence, NodeIndex, Refusal, Task, TaskId, Term, ToGlobal, ToNode, ToSubmitter,
};
pub use settings::{SubmitterSettings, TooManyOpen};
use window::{HELD, Window};

/// The final outcome of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Its instance was started on this node.
    Started(TaskId, NodeIndex),
    /// It was refused, and will not be started.
    Refused(TaskId, Refusal),
    /// No answer came before all schedulers forgot the task: it may have been started at some time. Only a count of the instances can tell.
    Unresolved(TaskId),
}

#[derive(Clone, Debug)]
enum Phase {
    /// Not sent yet.
    Held,
    /// Sent to this first node; `None` is the global scheduler.
    Sent(Option<NodeIndex>),
    /// The attempt is being fenced; true for each scheduler that has not promised yet, the global scheduler at index 0.
    Fencing(Vec<bool>),
}

#[derive(Clone, Debug)]
struct Open<D> {
    task: Task<D>,
    phase: Phase,
    pause: Millis,
    /// When the task needs attention; timers of it for other times are stale.
    due: Millis,
    /// Its slot in the window.
    in_flight: u32,
}

/// The submitter: see the module.
#[derive(Clone, Debug)]
pub struct Submitter<D> {
    settings: SubmitterSettings,
    next: TaskId,
    term: Term,
    lost: Vec<bool>,
    open: Vec<Option<Open<D>>>,
    vacant: Vec<u32>,
    index: Index,
    window: Window,
    timers: BinaryHeap<Reverse<(Millis, TaskId)>>,
}

impl<D: Demand> Submitter<D> {
    /// A submitter for `nodes` nodes; its task ids count up from `first`, so that several submitters can use disjoint ids.
    #[must_use]
    pub fn new(nodes: u32, first: TaskId, settings: SubmitterSettings) -> Self {
        let limit = settings.open.min(1 << 24);
        Self {
            settings,
            next: first,
            term: Term::default(),
            lost: vec![false; nodes as usize],
            open: Vec::with_capacity(limit),
            vacant: Vec::with_capacity(limit),
            index: Index::new(limit),
            window: Window::new(settings.window, limit),
            timers: BinaryHeap::with_capacity(limit * 2),
        }
    }

    /// Touches the memory of its tables now, so that the first burst does not wait for page faults.
    pub fn touch(&mut self) {
        self.index.touch();
    }

    /// The number of open tasks.
    #[must_use]
    pub const fn open(&self) -> usize {
        self.open.len() - self.vacant.len()
    }

    /// Requests one more instance and returns the task's id.
    ///
    /// # Errors
    /// When the bound on open tasks is reached.
    pub fn submit(
        &mut self,
        now: Millis,
        demand: D,
        remaining: Millis,
        rng: &mut impl Rng,
        actions: &mut Vec<Action<D>>,
    ) -> Result<TaskId, TooManyOpen> {
        if self.open() >= self.settings.open.min(1 << 24) {
            return Err(TooManyOpen { open: self.open() });
        }
        let id = self.next;
        self.next.0 += 1;
        let open = Open {
            task: Task {
                id,
                attempt: 1,
                leg: 0,
                demand,
                remaining,
                deadline: now + self.settings.wanted,
            },
            phase: Phase::Held,
            pause: self.settings.resend,
            due: Millis::INFINITY,
            in_flight: HELD,
        };
        let slot = match self.vacant.pop() {
            Some(slot) => {
                self.open[slot as usize] = Some(open);
                slot
            }
            None => {
                self.open.push(Some(open));
                u32::try_from(self.open.len() - 1).expect("the limit is far below")
            }
        };
        if let Err(vacancy) = self.slot(id) {
            self.index.fill(vacancy, slot);
        }
        if self.may_send(now) {
            self.send(now, slot, rng, actions);
        } else {
            self.hold(id, slot, remaining);
        }
        Ok(id)
    }

    /// Handles a message; returns the outcome of a task that it settles.
    pub fn receive(
        &mut self,
        now: Millis,
        message: ToSubmitter,
        rng: &mut impl Rng,
        actions: &mut Vec<Action<D>>,
    ) -> Option<Settled> {
        match message {
            ToSubmitter::Started { id, by, .. } => {
                self.settle(id).map(|()| Settled::Started(id, by))
            }
            ToSubmitter::Refused {
                id,
                attempt,
                refusal,
            } => {
                let open = self.find(id)?;
                (open.task.attempt == attempt).then_some(())?;
                self.settle(id).map(|()| Settled::Refused(id, refusal))
            }
            ToSubmitter::Broken { id, attempt } => {
                let open = self.find(id)?;
                if open.task.attempt == attempt && matches!(open.phase, Phase::Sent(_)) {
                    self.fence(now, id, rng, actions)
                } else {
                    None
                }
            }
            ToSubmitter::Fenced {
                id,
                attempt,
                by,
                started,
            } => self.fenced(now, (id, attempt), by, started, rng, actions),
        }
    }

    /// When [`Self::tick`] has something to do; `None` if nothing is pending.
    #[must_use]
    pub fn next_timer(&self) -> Option<Millis> {
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        let patience = self.window.next_timer(self.settings.patience);
        timer.into_iter().chain(patience).min()
    }

    /// Sends held tasks as far as the window allows, and repeats those without news for too long; returns a task that this settles,
    /// `None` when nothing more is due. Call it until it returns `None`.
    pub fn tick(
        &mut self,
        now: Millis,
        rng: &mut impl Rng,
        actions: &mut Vec<Action<D>>,
    ) -> Option<Settled> {
        self.send_held(now, rng, actions);
        while let Some(Reverse((at, id))) = self.timers.peek().copied()
            && at <= now
        {
            self.timers.pop();
            let Some(open) = self.find(id).filter(|open| open.due == at) else {
                continue;
            };
            let (deadline, is_sent) = (open.task.deadline, matches!(open.phase, Phase::Sent(_)));
            let settled = if matches!(open.phase, Phase::Held) {
                // Its timer is its deadline, and no scheduler has heard of it.
                self.settle(id)
                    .map(|()| Settled::Refused(id, Refusal::Expired))
            } else if now > deadline + self.settings.memory {
                self.settle(id).map(|()| Settled::Unresolved(id))
            } else if is_sent && now > deadline {
                self.fence(now, id, rng, actions)
            } else {
                self.repeat(now, id, actions);
                None
            };
            if settled.is_some() {
                return settled;
            }
        }
        None
    }

    /// Handles the permanent loss of a node: attempts that began there are fenced, and fences no longer wait for it.
    pub fn lost(
        &mut self,
        now: Millis,
        node: NodeIndex,
        rng: &mut impl Rng,
        actions: &mut Vec<Action<D>>,
        settled: &mut Vec<Settled>,
    ) {
        self.lost[node.get()] = true;
        for slot in 0..self.open.len() {
            let Some(open) = &self.open[slot] else {
                continue;
            };
            let (id, attempt) = (open.task.id, open.task.attempt);
            settled.extend(match &open.phase {
                Phase::Sent(Some(first)) if *first == node => self.fence(now, id, rng, actions),
                Phase::Sent(_) | Phase::Held => None,
                Phase::Fencing(_) => {
                    self.fenced(now, (id, attempt), Some(node), false, rng, actions)
                }
            });
        }
    }

    /// Follows a new global scheduler: tasks sent to its predecessor are fenced. What nodes had forwarded there is fenced as soon as
    /// it is sent again, since its chain is broken.
    pub fn headed(
        &mut self,
        now: Millis,
        term: Term,
        rng: &mut impl Rng,
        actions: &mut Vec<Action<D>>,
        settled: &mut Vec<Settled>,
    ) {
        if term <= self.term {
            return;
        }
        self.term = term;
        for slot in 0..self.open.len() {
            if let Some(open) = &self.open[slot]
                && matches!(open.phase, Phase::Sent(None))
            {
                let id = open.task.id;
                settled.extend(self.fence(now, id, rng, actions));
            }
        }
    }

    /// Handles the return of a node.
    pub fn returned(&mut self, node: NodeIndex) {
        self.lost[node.get()] = false;
    }

    /// Extends the cluster to `nodes` nodes. It never shrinks: a node that leaves is lost.
    ///
    /// A fence in progress does not wait for the new nodes: no attempt that began before they were known here may start on them,
    /// which their shell has to ensure.
    pub fn grow(&mut self, nodes: u32) {
        let nodes = self.lost.len().max(nodes as usize);
        self.lost.resize(nodes, false);
    }

    fn slot(&self, id: TaskId) -> Result<u32, Vacancy> {
        let is = |slot: u32| {
            let open = self.open[slot as usize].as_ref();
            open.is_some_and(|open| open.task.id == id)
        };
        self.index.find(id, is)
    }

    fn find(&self, id: TaskId) -> Option<&Open<D>> {
        self.open[self.slot(id).ok()? as usize].as_ref()
    }

    fn settle(&mut self, id: TaskId) -> Option<()> {
        let slot = self.slot(id).ok()?;
        self.index.remove(id, slot);
        if let Some(open) = self.open[slot as usize].take() {
            self.window.settled(open.in_flight);
        }
        self.vacant.push(slot);
        Some(())
    }

    /// A node that is not lost, drawn uniformly; `None` if all are lost.
    fn choose(&self, rng: &mut impl Rng) -> Option<NodeIndex> {
        let draw = |rng: &mut _| RngExt::random_range(rng, 0..self.lost.len());
        let index = |at: usize| u32::try_from(at).ok().map(NodeIndex);
        for _ in 0..8 {
            let at = draw(rng);
            if !self.lost[at] {
                return index(at);
            }
        }
        // Most are lost: take the next one that is not.
        let from = draw(rng);
        let mut round = (from..self.lost.len()).chain(0..from);
        round.find(|at| !self.lost[*at]).and_then(index)
    }

    /// Begins an attempt.
    fn send(&mut self, now: Millis, slot: u32, rng: &mut impl Rng, actions: &mut Vec<Action<D>>) {
        let first = if self.settings.central {
            None
        } else {
            self.choose(rng)
        };
        if let Some(open) = &mut self.open[slot as usize] {
            let id = open.task.id;
            if matches!(open.phase, Phase::Held) {
                open.in_flight = self.window.sent(now, id);
            }
            open.phase = Phase::Sent(first);
            open.pause = self.settings.resend;
            self.repeat(now, id, actions);
        }
    }

    /// Repeats the messages that are due for a task, and sets its timer.
    fn repeat(&mut self, now: Millis, id: TaskId, actions: &mut Vec<Action<D>>) {
        let Ok(slot) = self.slot(id) else {
            return;
        };
        let Some(open) = &mut self.open[slot as usize] else {
            return;
        };
        let (task, most) = (open.task, self.settings.resend_most);
        match &open.phase {
            Phase::Held => return,
            Phase::Sent(Some(node)) => actions.push(Action::Node(*node, ToNode::Submit(task))),
            Phase::Sent(None) => {
                actions.push(Action::Global(ToGlobal::Forward(task, self.term)));
            }
            Phase::Fencing(missing) => {
                let fence = Fence {
                    id,
                    attempt: task.attempt,
                    deadline: task.deadline,
                };
                let (global, nodes) = missing
                    .split_first()
                    .expect("the global scheduler is first");
                for (node, _) in (0..).zip(nodes).filter(|(_, missing)| **missing) {
                    actions.push(Action::Node(NodeIndex(node), ToNode::Fence(fence)));
                }
                if *global {
                    actions.push(Action::Global(ToGlobal::Fence(fence)));
                }
            }
        }
        // Wake just after the deadline, which changes what is to be done, not far beyond it.
        let next = now + open.pause;
        let next = if now <= task.deadline && next > task.deadline {
            task.deadline + self.settings.resend
        } else {
            next
        };
        open.pause = if open.pause * 2.0 < most {
            open.pause * 2.0
        } else {
            most
        };
        open.due = next;
        if next.is_finite() {
            self.set_timer(next, id);
        }
    }

    /// Sets a timer; when there is no memory for another one, stale timers are removed first: at least half of them are.
    fn set_timer(&mut self, at: Millis, id: TaskId) {
        if self.timers.len() == self.timers.capacity() {
            let mut timers = std::mem::take(&mut self.timers);
            timers.retain(|Reverse((at, id))| self.find(*id).is_some_and(|open| open.due == *at));
            self.timers = timers;
        }
        self.timers.push(Reverse((at, id)));
    }

    fn fence(
        &mut self,
        now: Millis,
        id: TaskId,
        rng: &mut impl Rng,
        actions: &mut Vec<Action<D>>,
    ) -> Option<Settled> {
        let slot = self.slot(id).ok()?;
        let nodes = self.lost.iter().map(|lost| !lost);
        let missing = std::iter::once(true).chain(nodes).collect();
        let open = self.open[slot as usize].as_mut()?;
        open.phase = Phase::Fencing(missing);
        open.pause = self.settings.resend;
        self.repeat(now, id, actions);
        self.attempt_again(now, id, rng, actions)
    }

    fn fenced(
        &mut self,
        now: Millis,
        (id, attempt): (TaskId, u32),
        by: Option<NodeIndex>,
        started: bool,
        rng: &mut impl Rng,
        actions: &mut Vec<Action<D>>,
    ) -> Option<Settled> {
        if let (true, Some(node)) = (started, by) {
            return self.settle(id).map(|()| Settled::Started(id, node));
        }
        let slot = self.slot(id).ok()?;
        let open = self.open[slot as usize].as_mut()?;
        let Phase::Fencing(missing) = &mut open.phase else {
            return None;
        };
        if open.task.attempt != attempt {
            return None;
        }
        // A node that joined since was not asked.
        if let Some(missing) = missing.get_mut(by.map_or(0, |node| node.get() + 1)) {
            *missing = false;
        }
        self.attempt_again(now, id, rng, actions)
    }

    /// Once all have promised, the old attempt is over: begins another one, or settles the task.
    fn attempt_again(
        &mut self,
        now: Millis,
        id: TaskId,
        rng: &mut impl Rng,
        actions: &mut Vec<Action<D>>,
    ) -> Option<Settled> {
        let slot = self.slot(id).ok()?;
        let open = self.open[slot as usize].as_mut()?;
        match &open.phase {
            Phase::Fencing(missing) if missing.iter().all(|missing| !missing) => {}
            Phase::Fencing(_) | Phase::Sent(_) | Phase::Held => return None,
        }
        if now > open.task.deadline {
            return self
                .settle(id)
                .map(|()| Settled::Refused(id, Refusal::Expired));
        }
        open.task.attempt += 1;
        self.send(now, slot, rng, actions);
        None
    }
}
