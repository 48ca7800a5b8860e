//! Tasks that a node holds: local check, passing on, and what is done when they come twice.

use fdn_core::Millis;
use rand::Rng;

use super::{Node, Queued, Record, State};
use crate::instance::demand::Demand;
use crate::instance::message::{
    Action, NodeIndex, Refusal, Stage, Task, ToGlobal, ToNode, ToOrigin,
};
use crate::instance::settings::Policy;

impl<D: Demand> Node<D> {
    /// A task comes with a new leg: it is remembered as queued, and this node must decide. Otherwise what was decided is
    /// repeated, or nothing is done.
    fn accept(&mut self, now: Millis, task: &Task<D>, actions: &mut Vec<Action<D>>) -> bool {
        if now > task.deadline {
            return false;
        }
        match self.memory.get(task.id) {
            Some(known) if known.attempt > task.attempt => return false,
            Some(known) if known.attempt == task.attempt && known.leg >= task.leg => {
                self.repeat(now, task, known, actions);
                return false;
            }
            Some(_) | None => {}
        }
        let record = Record {
            attempt: task.attempt,
            leg: task.leg,
            state: State::Queued,
        };
        if self.memory.put(task.id, task.deadline, record).is_err() {
            self.tell_refusal(task, Refusal::MemoryFull, actions);
            return false;
        }
        true
    }

    pub(super) fn queue_up(
        &mut self,
        now: Millis,
        task: Task<D>,
        hops: u8,
        actions: &mut Vec<Action<D>>,
    ) {
        if self.accept(now, &task, actions) {
            self.queue.push(task.remaining, Queued { task, hops });
        }
    }

    /// What was decided about a task is done once more: its first message may be lost.
    fn repeat(&mut self, now: Millis, task: &Task<D>, known: Record, actions: &mut Vec<Action<D>>) {
        let on = task.passed_on(known.leg);
        match known.state {
            State::Queued | State::Fenced => {}
            State::Probing(slot) => self.ask_again(now, slot, actions),
            State::Assigned(to) => self.pass_on(to, task, ToNode::Assign(on), actions),
            State::Hinted(to, hops) => self.pass_on(to, task, ToNode::Hint(on, hops), actions),
            State::Forwarded => actions.push(Action::Global(ToGlobal::Forward(on))),
            State::Bounced => {
                actions.push(Action::Global(ToGlobal::Bounce(on, self.standing())));
            }
            State::Started => self.tell_start(task, actions),
            State::Refused(refusal) => self.tell_refusal(task, refusal, actions),
        }
    }

    fn pass_on(
        &self,
        to: NodeIndex,
        task: &Task<D>,
        message: ToNode<D>,
        actions: &mut Vec<Action<D>>,
    ) {
        actions.push(if self.peers.is_lost(to) {
            Action::Origin(ToOrigin::Broken {
                id: task.id,
                attempt: task.attempt,
            })
        } else {
            Action::Node(to, message)
        });
    }

    fn tell_start(&self, task: &Task<D>, actions: &mut Vec<Action<D>>) {
        actions.push(Action::Origin(ToOrigin::Started {
            id: task.id,
            attempt: task.attempt,
            by: self.index,
        }));
    }

    fn tell_refusal(&self, task: &Task<D>, refusal: Refusal, actions: &mut Vec<Action<D>>) {
        actions.push(Action::Origin(ToOrigin::Refused {
            id: task.id,
            attempt: task.attempt,
            refusal,
        }));
    }

    /// Notes what was decided about a task that this node holds.
    pub(super) fn decide(&mut self, task: &Task<D>, state: State) {
        let record = Record {
            attempt: task.attempt,
            leg: task.leg,
            state,
        };
        self.memory.change(task.id, record);
    }

    /// Starts the task here if there is room.
    fn start(&mut self, task: &Task<D>, stage: Stage, actions: &mut Vec<Action<D>>) -> bool {
        let Some(running) = self.ledger.start(task.demand) else {
            return false;
        };
        self.decide(task, State::Started);
        actions.push(Action::Start {
            node: self.index,
            task: *task,
            stage,
            running,
        });
        self.tell_start(task, actions);
        true
    }

    /// The turn of a queued task: local check, then elsewhere.
    pub(super) fn take_up(
        &mut self,
        now: Millis,
        queued: Queued<D>,
        rng: &mut impl Rng,
        actions: &mut Vec<Action<D>>,
    ) {
        let Queued { task, hops } = queued;
        let waits = Record {
            attempt: task.attempt,
            leg: task.leg,
            state: State::Queued,
        };
        // It may have been fenced meanwhile.
        if self.memory.get(task.id) != Some(waits) {
            return;
        }
        let stage = if hops == 0 { Stage::Local } else { Stage::Hint };
        if self.settings.policy != Policy::LateBinding && self.start(&task, stage, actions) {
            return;
        }
        match self.settings.policy {
            Policy::BottomUp => self.forward(&task, actions),
            Policy::Hints => self.hint(&task, hops, rng, actions),
            Policy::LocalProbeGlobal | Policy::ReProbing | Policy::LateBinding => {
                self.ask(now, &task, rng, actions);
            }
        }
    }

    fn hint(&mut self, task: &Task<D>, hops: u8, rng: &mut impl Rng, actions: &mut Vec<Action<D>>) {
        let best = if hops < self.settings.hint_hops {
            let (sample, spread) = (self.settings.hint_sample, self.settings.hint_spread);
            self.hints
                .choose(&task.demand, sample, spread, &self.peers, rng)
        } else {
            None
        };
        match best {
            Some(to) => {
                self.decide(task, State::Hinted(to, hops + 1));
                let message = ToNode::Hint(task.passed_on(task.leg), hops + 1);
                actions.push(Action::Node(to, message));
            }
            None => self.forward(task, actions),
        }
    }

    /// Hands the task to the global scheduler.
    pub(super) fn forward(&mut self, task: &Task<D>, actions: &mut Vec<Action<D>>) {
        self.decide(task, State::Forwarded);
        let message = ToGlobal::Forward(task.passed_on(task.leg));
        actions.push(Action::Global(message));
    }

    pub(super) fn refuse(
        &mut self,
        task: &Task<D>,
        refusal: Refusal,
        actions: &mut Vec<Action<D>>,
    ) {
        self.decide(task, State::Refused(refusal));
        self.tell_refusal(task, refusal, actions);
    }

    /// The task for which room was reserved. If it comes so late that the room went to another, it must go on.
    pub(super) fn assigned(
        &mut self,
        now: Millis,
        task: Task<D>,
        rng: &mut impl Rng,
        actions: &mut Vec<Action<D>>,
    ) {
        if !self.accept(now, &task, actions) {
            return;
        }
        self.ledger.release(task.id, task.attempt);
        if self.start(&task, Stage::Probe, actions) {
            return;
        }
        match self.settings.policy {
            Policy::LocalProbeGlobal | Policy::Hints | Policy::BottomUp => {
                self.forward(&task, actions);
            }
            Policy::ReProbing | Policy::LateBinding => self.ask(now, &task, rng, actions),
        }
    }

    /// The global scheduler's choice, which this node may bounce: it is the last authority on its room.
    pub(super) fn placed(
        &mut self,
        now: Millis,
        task: Task<D>,
        serial: u64,
        actions: &mut Vec<Action<D>>,
    ) {
        self.seen = self.seen.max(serial);
        if !self.accept(now, &task, actions) {
            return;
        }
        if !self.start(&task, Stage::Global, actions) {
            self.decide(&task, State::Bounced);
            let message = ToGlobal::Bounce(task.passed_on(task.leg), self.standing());
            actions.push(Action::Global(message));
        }
    }
}
