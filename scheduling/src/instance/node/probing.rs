//! Asking other nodes for room, and answering.

use std::collections::VecDeque;

use fdn_core::Millis;
use rand::Rng;

use super::{Node, State};
use crate::instance::demand::Demand;
use crate::instance::message::{Action, NodeIndex, Probe, Refusal, Task, TaskId, ToNode};
use crate::instance::settings::Policy;

/// A task for which two nodes are being asked.
#[derive(Clone, Copy, Debug)]
struct Asking<D> {
    task: Task<D>,
    /// Those that have not answered.
    open: [Option<NodeIndex>; 2],
    round: u32,
    /// Tells this use of the entry, and this round, from others.
    number: u64,
}

/// All of them, and when each must be answered.
#[derive(Clone, Debug)]
pub(super) struct Probing<D> {
    entries: Vec<Option<Asking<D>>>,
    vacant: Vec<u32>,
    due: VecDeque<(Millis, u32, u64)>,
    numbers: u64,
    limit: usize,
}

impl<D: Copy> Probing<D> {
    pub(super) const fn new(limit: usize) -> Self {
        Self {
            entries: Vec::new(),
            vacant: Vec::new(),
            due: VecDeque::new(),
            numbers: 0,
            limit,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.entries.len() - self.vacant.len()
    }

    const fn is_full(&self) -> bool {
        self.len() >= self.limit
    }

    fn insert(&mut self, asking: Asking<D>) -> u32 {
        match self.vacant.pop() {
            Some(slot) => {
                self.entries[slot as usize] = Some(asking);
                slot
            }
            None => {
                self.entries.push(Some(asking));
                u32::try_from(self.entries.len() - 1).expect("the limit is far below")
            }
        }
    }

    pub(super) fn remove(&mut self, slot: u32) {
        if self.entries[slot as usize].take().is_some() {
            self.vacant.push(slot);
        }
    }

    const fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// An entry whose answers are overdue.
    pub(super) fn overdue(&mut self, now: Millis) -> Option<u32> {
        while let Some(&(due, slot, number)) = self.due.front() {
            if due > now && self.is_current(slot, number) {
                return None;
            }
            self.due.pop_front();
            if due <= now && self.is_current(slot, number) {
                return Some(slot);
            }
        }
        None
    }

    fn is_current(&self, slot: u32, number: u64) -> bool {
        self.entries[slot as usize].is_some_and(|asking| asking.number == number)
    }

    pub(super) fn next_due(&self) -> Option<Millis> {
        self.due.front().map(|&(due, ..)| due)
    }
}

impl<D: Demand> Node<D> {
    const fn waits_for_room(&self) -> bool {
        matches!(self.settings.policy, Policy::LateBinding)
    }

    /// Asks two other nodes. Without others, or with too many tasks asking already, the task goes on at once.
    pub(super) fn ask(
        &mut self,
        now: Millis,
        task: &Task<D>,
        rng: &mut impl Rng,
        actions: &mut Vec<Action<D>>,
    ) {
        if self.probing.is_full() {
            return self.nobody_has_room(task, actions);
        }
        let number = self.probing.next_number();
        let asking = Asking {
            task: *task,
            open: self.peers.two(rng),
            round: 1,
            number,
        };
        if asking.open[0].is_none() {
            return self.nobody_has_room(task, actions);
        }
        let slot = self.probing.insert(asking);
        self.decide(task, State::Probing(slot));
        self.send_probes(now, slot, &asking, actions);
    }

    fn send_probes(
        &mut self,
        now: Millis,
        slot: u32,
        asking: &Asking<D>,
        actions: &mut Vec<Action<D>>,
    ) {
        let wait = self.waits_for_room();
        for node in asking.open.into_iter().flatten() {
            let probe = Probe {
                id: asking.task.id,
                attempt: asking.task.attempt,
                leg: asking.task.leg,
                demand: asking.task.demand,
                deadline: asking.task.deadline,
                home: self.index,
                wait,
            };
            actions.push(Action::Node(node, ToNode::Probe(probe)));
        }
        if !wait {
            let due = now + self.settings.reply_timeout;
            self.probing.due.push_back((due, slot, asking.number));
        }
    }

    /// The origin sends a task again for which nodes are being asked. Questions that wait have no other remedy when they are
    /// lost; the others have their timeout.
    pub(super) fn ask_again(&mut self, now: Millis, slot: u32, actions: &mut Vec<Action<D>>) {
        if let (true, Some(asking)) = (self.waits_for_room(), self.probing.entries[slot as usize]) {
            self.send_probes(now, slot, &asking, actions);
        }
    }

    /// No node has room, or none has said so in time: two new ones, or the global scheduler, or the end.
    pub(super) fn all_said_no(
        &mut self,
        now: Millis,
        slot: u32,
        rng: &mut impl Rng,
        actions: &mut Vec<Action<D>>,
    ) {
        let Some(mut asking) = self.probing.entries[slot as usize] else {
            return;
        };
        let asks_on = matches!(
            self.settings.policy,
            Policy::ReProbing | Policy::LateBinding
        );
        if asks_on && asking.round < self.settings.rounds {
            asking.round += 1;
            asking.number = self.probing.next_number();
            asking.open = self.peers.two(rng);
            if asking.open[0].is_some() {
                self.probing.entries[slot as usize] = Some(asking);
                return self.send_probes(now, slot, &asking, actions);
            }
        }
        self.probing.remove(slot);
        self.nobody_has_room(&asking.task, actions);
    }

    fn nobody_has_room(&mut self, task: &Task<D>, actions: &mut Vec<Action<D>>) {
        match self.settings.policy {
            Policy::LocalProbeGlobal | Policy::Hints | Policy::BottomUp => {
                self.forward(task, actions);
            }
            Policy::ReProbing | Policy::LateBinding => {
                self.refuse(task, Refusal::NoRoom, actions);
            }
        }
    }

    /// A lost node counts as without room.
    pub(super) fn count_as_no(
        &mut self,
        now: Millis,
        node: NodeIndex,
        rng: &mut impl Rng,
        actions: &mut Vec<Action<D>>,
    ) {
        for slot in 0..self.probing.entries.len() {
            if let Some(asking) = self.probing.entries[slot] {
                let key = (asking.task.id, asking.task.attempt);
                self.replied(now, key, node, false, rng, actions);
            }
        }
    }

    pub(super) fn replied(
        &mut self,
        now: Millis,
        (id, attempt): (TaskId, u32),
        from: NodeIndex,
        yes: bool,
        rng: &mut impl Rng,
        actions: &mut Vec<Action<D>>,
    ) {
        let known = self.memory.get(id).filter(|known| known.attempt == attempt);
        match known.map(|known| known.state) {
            Some(State::Probing(slot)) => self.answered(now, slot, from, yes, rng, actions),
            // Its answer came twice; what it reserved is needed.
            Some(State::Assigned(to)) if to == from => {}
            _ if yes => actions.push(Action::Node(from, ToNode::Release { id, attempt })),
            _ => {}
        }
    }

    fn answered(
        &mut self,
        now: Millis,
        slot: u32,
        from: NodeIndex,
        yes: bool,
        rng: &mut impl Rng,
        actions: &mut Vec<Action<D>>,
    ) {
        let Some(asking) = &mut self.probing.entries[slot as usize] else {
            return;
        };
        if yes {
            // The first yes wins, even one of an earlier round: the room is reserved.
            let task = asking.task;
            self.probing.remove(slot);
            self.decide(&task, State::Assigned(from));
            let message = ToNode::Assign(task.passed_on(task.leg));
            actions.push(Action::Node(from, message));
            return;
        }
        let Some(open) = asking.open.iter_mut().find(|open| **open == Some(from)) else {
            return;
        };
        *open = None;
        if asking.open == [None, None] {
            self.all_said_no(now, slot, rng, actions);
        }
    }

    /// A question: room is reserved at once, so that a yes holds.
    pub(super) fn probed(&mut self, now: Millis, probe: Probe<D>, actions: &mut Vec<Action<D>>) {
        if self.is_outdated(now, &probe) {
            return;
        }
        let yes = self.reserve(now, &probe);
        let may_wait = probe.wait
            && probe.demand.fits(&self.ledger.capacity())
            && self.waiters.len() < self.settings.limits.waiters;
        if !yes && may_wait {
            self.waiters.push_back(probe);
            return;
        }
        self.answer(&probe, yes, actions);
    }

    /// Whether the task has passed through here since, or nobody wants it any more.
    fn is_outdated(&self, now: Millis, probe: &Probe<D>) -> bool {
        let passed = |known: super::Record| {
            known.attempt > probe.attempt || known.attempt == probe.attempt && known.leg > probe.leg
        };
        now > probe.deadline || self.memory.get(probe.id).is_some_and(passed)
    }

    fn reserve(&mut self, now: Millis, probe: &Probe<D>) -> bool {
        self.ledger.is_reserved(probe.id, probe.attempt)
            || self.ledger.reserve(
                probe.id,
                probe.attempt,
                probe.demand,
                now + self.settings.lease,
            )
    }

    fn answer(&self, probe: &Probe<D>, yes: bool, actions: &mut Vec<Action<D>>) {
        let reply = ToNode::Reply {
            id: probe.id,
            attempt: probe.attempt,
            from: self.index,
            yes,
        };
        actions.push(Action::Node(probe.home, reply));
    }

    /// Answers the questions that waited for room, in the order in which they came.
    pub(super) fn serve_waiters(&mut self, now: Millis, actions: &mut Vec<Action<D>>) {
        while let Some(&probe) = self.waiters.front() {
            if !self.is_outdated(now, &probe) {
                if !self.reserve(now, &probe) {
                    return;
                }
                self.answer(&probe, true, actions);
            }
            self.waiters.pop_front();
        }
    }
}
