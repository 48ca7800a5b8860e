//! The tasks that a node holds: local check, forwarding, and the handling of duplicates.

use fdn_core::Millis;
use rand::Rng;

use super::{HeldTask, Node, Queued, Record, State};
use crate::instance::demand::Demand;
use crate::instance::message::{
    Action, NodeIndex, Refusal, Stage, Task, Term, ToGlobal, ToNode, ToSubmitter,
};
use crate::instance::settings::Policy;

impl<D: Demand> Node<D> {
    /// A task with a new leg is remembered as queued, and this node must decide about it. For a known leg the earlier decision is
    /// repeated, or nothing is done.
    #[inline]
    fn accept(
        &mut self,
        now: Millis,
        task: Task<D>,
        actions: &mut Vec<Action<D>>,
    ) -> Option<HeldTask<D>> {
        if now > task.deadline {
            return None;
        }
        let record = queued(&task);
        let is_new = |known: Record| (known.attempt, known.leg) < (record.attempt, record.leg);
        let put = self.memory.put_if(task.id, task.deadline, record, is_new);
        match put {
            Ok(Ok(place)) => Some(HeldTask { task, place }),
            Ok(Err(_)) => {
                self.notify_refusal(&task, Refusal::MemoryFull, actions);
                None
            }
            Err(known) => {
                if known.attempt == task.attempt {
                    self.repeat(&task, known, actions);
                }
                None
            }
        }
    }

    pub(super) fn queue_up(
        &mut self,
        now: Millis,
        task: Task<D>,
        hops: u8,
        rng: &mut impl Rng,
        actions: &mut Vec<Action<D>>,
    ) {
        if let Some(HeldTask { task, place }) = self.accept(now, task, actions) {
            let queued = Queued { task, hops, place };
            self.queue.push(task.remaining, queued);
            if self.queue.len() >= self.settings.limits.queue {
                self.take_up_all(now, rng, actions);
            }
        }
    }

    /// Repeats the decision about a task, whose first message may be lost.
    fn repeat(&self, task: &Task<D>, known: Record, actions: &mut Vec<Action<D>>) {
        let on = task.passed_on(known.leg);
        match known.state {
            State::Queued | State::Fenced => {}
            State::Probing(slot) => self.ask_again(slot, actions),
            State::Assigned(to) => self.pass_on(to, task, ToNode::Assign(on), actions),
            State::Hinted(to, hops) => self.pass_on(to, task, ToNode::Hint(on, hops), actions),
            State::Forwarded(term) if term == self.term => {
                actions.push(Action::Global(ToGlobal::Forward(on, term)));
            }
            State::Bounced(term) if term == self.term => {
                actions.push(Action::Global(ToGlobal::Bounce(on, self.report())));
            }
            // Nobody knows any more what became of it there.
            State::Forwarded(_) | State::Bounced(_) => notify_broken_chain(task, actions),
            State::Started => self.notify_start(task, actions),
            State::Refused(refusal) => self.notify_refusal(task, refusal, actions),
        }
    }

    fn pass_on(
        &self,
        to: NodeIndex,
        task: &Task<D>,
        message: ToNode<D>,
        actions: &mut Vec<Action<D>>,
    ) {
        if self.peers.is_lost(to) {
            notify_broken_chain(task, actions);
        } else {
            actions.push(Action::Node(to, message));
        }
    }

    fn notify_start(&self, task: &Task<D>, actions: &mut Vec<Action<D>>) {
        actions.push(Action::Submitter(ToSubmitter::Started {
            id: task.id,
            attempt: task.attempt,
            by: self.index,
        }));
    }

    fn notify_refusal(&self, task: &Task<D>, refusal: Refusal, actions: &mut Vec<Action<D>>) {
        actions.push(Action::Submitter(ToSubmitter::Refused {
            id: task.id,
            attempt: task.attempt,
            refusal,
        }));
    }

    /// Remembers the decision about a task that this node holds.
    #[inline]
    pub(super) fn decide(&mut self, held: &HeldTask<D>, state: State) {
        let record = Record {
            state,
            ..queued(&held.task)
        };
        self.memory.change(held.place, held.task.id, record);
    }

    /// Starts the task here if it fits; false otherwise.
    #[inline]
    fn start(&mut self, held: &HeldTask<D>, stage: Stage, actions: &mut Vec<Action<D>>) -> bool {
        let Some(running) = self.ledger.start(held.task.demand) else {
            return false;
        };
        self.decide(held, State::Started);
        actions.push(Action::Start {
            node: self.index,
            task: held.task,
            stage,
            running,
        });
        self.notify_start(&held.task, actions);
        true
    }

    /// Gives every queued task its turn, shortest first.
    #[inline]
    pub(super) fn take_up_all(
        &mut self,
        now: Millis,
        rng: &mut impl Rng,
        actions: &mut Vec<Action<D>>,
    ) {
        while let Some((_, queued)) = self.queue.pop() {
            self.take_up(now, &queued, rng, actions);
        }
    }

    /// The turn of a queued task: the local check, then the other stages.
    fn take_up(
        &mut self,
        now: Millis,
        waiting: &Queued<D>,
        rng: &mut impl Rng,
        actions: &mut Vec<Action<D>>,
    ) {
        let &Queued { task, hops, place } = waiting;
        // It may have been fenced meanwhile.
        if self.memory.at(place, task.id) != Some(queued(&task)) {
            return;
        }
        let held = HeldTask { task, place };
        let stage = if hops == 0 { Stage::Local } else { Stage::Hint };
        if self.settings.policy != Policy::LateBinding && self.start(&held, stage, actions) {
            return;
        }
        match self.settings.policy {
            Policy::BottomUp => self.forward(&held, actions),
            Policy::Hints => self.hint(&held, hops, rng, actions),
            Policy::LocalProbeGlobal | Policy::ReProbing | Policy::LateBinding => {
                self.ask(now, &held, rng, actions);
            }
        }
    }

    fn hint(
        &mut self,
        held: &HeldTask<D>,
        hops: u8,
        rng: &mut impl Rng,
        actions: &mut Vec<Action<D>>,
    ) {
        let best = if hops < self.settings.hint_hops {
            let (sample, spread) = (self.settings.hint_sample, self.settings.hint_spread);
            self.hints
                .choose(&held.task.demand, sample, spread, &self.peers, rng)
        } else {
            None
        };
        match best {
            Some(to) => {
                self.decide(held, State::Hinted(to, hops + 1));
                let message = ToNode::Hint(held.task.passed_on(held.task.leg), hops + 1);
                actions.push(Action::Node(to, message));
            }
            None => self.forward(held, actions),
        }
    }

    /// Sends the task to the global scheduler.
    pub(super) fn forward(&mut self, held: &HeldTask<D>, actions: &mut Vec<Action<D>>) {
        self.decide(held, State::Forwarded(self.term));
        let message = ToGlobal::Forward(held.task.passed_on(held.task.leg), self.term);
        actions.push(Action::Global(message));
    }

    pub(super) fn refuse(
        &mut self,
        held: &HeldTask<D>,
        refusal: Refusal,
        actions: &mut Vec<Action<D>>,
    ) {
        self.decide(held, State::Refused(refusal));
        self.notify_refusal(&held.task, refusal, actions);
    }

    /// The task for which resources were reserved arrives. If its lease has ended and it no longer fits, it is sent on.
    pub(super) fn assigned(
        &mut self,
        now: Millis,
        task: Task<D>,
        rng: &mut impl Rng,
        actions: &mut Vec<Action<D>>,
    ) {
        let Some(held) = self.accept(now, task, actions) else {
            return;
        };
        self.ledger.release(task.id, task.attempt);
        if self.start(&held, Stage::Probe, actions) {
            return;
        }
        match self.settings.policy {
            Policy::LocalProbeGlobal | Policy::Hints | Policy::BottomUp => {
                self.forward(&held, actions);
            }
            Policy::ReProbing | Policy::LateBinding => self.ask(now, &held, rng, actions),
        }
    }

    /// A placement by the global scheduler, which this node may bounce: its own ledger is authoritative. A placement of an earlier
    /// term is as valid: unless the attempt was fenced since, the chain is unbroken.
    pub(super) fn placed(
        &mut self,
        now: Millis,
        task: Task<D>,
        (term, serial): (Term, u64),
        actions: &mut Vec<Action<D>>,
    ) {
        self.headed(term);
        if term == self.term {
            self.seen = self.seen.max(serial);
        }
        let Some(held) = self.accept(now, task, actions) else {
            return;
        };
        if !self.start(&held, Stage::Global, actions) {
            self.decide(&held, State::Bounced(self.term));
            let message = ToGlobal::Bounce(task.passed_on(task.leg), self.report());
            actions.push(Action::Global(message));
        }
    }
}

/// The record of a task that waits for its turn.
const fn queued<D>(task: &Task<D>) -> Record {
    Record {
        attempt: task.attempt,
        leg: task.leg,
        state: State::Queued,
    }
}

fn notify_broken_chain<D>(task: &Task<D>, actions: &mut Vec<Action<D>>) {
    actions.push(Action::Submitter(ToSubmitter::Broken {
        id: task.id,
        attempt: task.attempt,
    }));
}
