//! Probing other nodes, and answering probes.

use fdn_core::Millis;
use rand::Rng;

use super::{HeldTask, Node, State};
use crate::instance::demand::Demand;
use crate::instance::message::{Action, NodeIndex, Probe, Refusal, TaskId, ToNode};
use crate::instance::settings::Policy;
use crate::instance::slab::Slab;

/// A task for which two nodes are being probed.
#[derive(Clone, Copy, Debug)]
struct OpenProbe<D> {
    held: HeldTask<D>,
    /// The nodes that have not answered.
    open: [Option<NodeIndex>; 2],
    round: u32,
    /// When the missing answers count as no; infinite if probes wait for room.
    due: Millis,
}

/// All tasks being probed, in the order in which their answers are due.
#[derive(Clone, Debug)]
pub(super) struct Probing<D>(Slab<OpenProbe<D>>);

impl<D: Copy> Probing<D> {
    pub(super) fn new(limit: usize) -> Self {
        Self(Slab::new(limit))
    }

    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn remove(&mut self, slot: u32) {
        self.0.remove(slot);
    }

    /// The slot of a task whose answers are overdue; `None` if none is.
    #[inline]
    pub(super) fn overdue(&self, now: Millis) -> Option<u32> {
        let (slot, open_probe) = self.0.first()?;
        (open_probe.due <= now).then_some(slot)
    }

    pub(super) fn next_due(&self) -> Option<Millis> {
        let (_, open_probe) = self.0.first()?;
        open_probe.due.is_finite().then_some(open_probe.due)
    }
}

impl<D: Demand> Node<D> {
    const fn waits_for_room(&self) -> bool {
        matches!(self.settings.policy, Policy::LateBinding)
    }

    /// Probes two other nodes. Without other nodes, or at the bound on probes, the task is sent on at once.
    pub(super) fn ask(
        &mut self,
        now: Millis,
        held: &HeldTask<D>,
        rng: &mut impl Rng,
        actions: &mut Vec<Action<D>>,
    ) {
        if self.probing.0.is_full() {
            return self.handle_no_room(held, actions);
        }
        let open_probe = OpenProbe {
            held: *held,
            open: self.peers.two(rng),
            round: 1,
            due: self.answers_due(now),
        };
        if open_probe.open[0].is_none() {
            return self.handle_no_room(held, actions);
        }
        if let Some(slot) = self.probing.0.push(open_probe) {
            self.decide(held, State::Probing(slot));
            self.send_probes(&open_probe, actions);
        }
    }

    fn answers_due(&self, now: Millis) -> Millis {
        if self.waits_for_room() {
            Millis::INFINITY
        } else {
            now + self.settings.reply_timeout
        }
    }

    fn send_probes(&self, open_probe: &OpenProbe<D>, actions: &mut Vec<Action<D>>) {
        let task = &open_probe.held.task;
        for node in open_probe.open.into_iter().flatten() {
            let probe = Probe {
                id: task.id,
                attempt: task.attempt,
                leg: task.leg,
                demand: task.demand,
                deadline: task.deadline,
                home: self.index,
                wait: self.waits_for_room(),
            };
            actions.push(Action::Node(node, ToNode::Probe(probe)));
        }
    }

    /// Repeats the probes when the submitter sends the task again. Probes that wait for room have no timeout, so nothing else recovers their loss.
    pub(super) fn ask_again(&self, slot: u32, actions: &mut Vec<Action<D>>) {
        if let (true, Some(open_probe)) = (self.waits_for_room(), self.probing.0.get(slot)) {
            self.send_probes(open_probe, actions);
        }
    }

    /// No node has answered yes in time: probes two new nodes, forwards the task to the global scheduler, or refuses it, as the policy says.
    pub(super) fn all_refused(
        &mut self,
        now: Millis,
        slot: u32,
        rng: &mut impl Rng,
        actions: &mut Vec<Action<D>>,
    ) {
        let due = self.answers_due(now);
        let Some(open_probe) = self.probing.0.get_mut(slot) else {
            return;
        };
        let asks_on = matches!(
            self.settings.policy,
            Policy::ReProbing | Policy::LateBinding
        );
        if asks_on && open_probe.round < self.settings.rounds {
            open_probe.round += 1;
            open_probe.due = due;
            open_probe.open = self.peers.two(rng);
            if open_probe.open[0].is_some() {
                let open_probe = *open_probe;
                self.probing.0.renew(slot);
                return self.send_probes(&open_probe, actions);
            }
        }
        let held = open_probe.held;
        self.probing.remove(slot);
        self.handle_no_room(&held, actions);
    }

    fn handle_no_room(&mut self, held: &HeldTask<D>, actions: &mut Vec<Action<D>>) {
        match self.settings.policy {
            Policy::LocalProbeGlobal | Policy::Hints | Policy::BottomUp => {
                self.forward(held, actions);
            }
            Policy::ReProbing | Policy::LateBinding => {
                self.refuse(held, Refusal::NoRoom, actions);
            }
        }
    }

    /// Counts a lost node's answer as no.
    pub(super) fn count_as_refusal(
        &mut self,
        now: Millis,
        node: NodeIndex,
        rng: &mut impl Rng,
        actions: &mut Vec<Action<D>>,
    ) {
        for slot in 0..self.probing.0.slots() {
            if let Some(open_probe) = self.probing.0.get(slot) {
                let key = (open_probe.held.task.id, open_probe.held.task.attempt);
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
            // A duplicate of its answer; the reservation is in use.
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
        let Some(open_probe) = self.probing.0.get_mut(slot) else {
            return;
        };
        if yes {
            // The first yes wins, even one of an earlier round: the resources are reserved.
            let held = open_probe.held;
            self.probing.remove(slot);
            self.decide(&held, State::Assigned(from));
            let message = ToNode::Assign(held.task.passed_on(held.task.leg));
            actions.push(Action::Node(from, message));
            return;
        }
        let Some(open) = open_probe.open.iter_mut().find(|open| **open == Some(from)) else {
            return;
        };
        *open = None;
        if open_probe.open == [None, None] {
            self.all_refused(now, slot, rng, actions);
        }
    }

    /// Answers a probe; the resources are reserved at once, so that a yes holds.
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

    /// Whether the probe's task has passed through this node since, or is no longer wanted.
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

    /// Answers the probes that waited for room, in order of arrival.
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
