//! The global stage, on the head: it either decides by itself, or hands tasks out to pre-schedulers and commits their lists.

use fdn_core::{Millis, Resources};
use fdn_scheduling::instance::{Global, Load, NodeIndex, Term};
use tracing::warn;

use super::Actor;
use crate::clock::millis;
use crate::host::Host;
use crate::settings::Mode;
use crate::stage::{ListBatch, PreSchedulers};
use crate::wire::proto::{self, Body};

impl<H: Host> Actor<H> {
    /// Starts the global scheduler after this node has become the head.
    pub(super) fn take_over(&mut self, term: Term) {
        let slots = self.directory.all();
        let capacities: Vec<_> = slots.iter().map(|slot| slot.capacity).collect();
        let mut global = Global::take_over(&capacities, term, self.settings.global());
        for (slot, index) in slots.iter().zip(0..) {
            if slot.gone.is_some() {
                global.lost(NodeIndex(index));
            }
        }
        let stage = &self.settings.global;
        if stage.pre_schedulers > 0 {
            match PreSchedulers::start(term, stage, &self.batches, self.metrics.clone()) {
                Ok(pool) => {
                    self.pre_schedulers = Some(pool);
                    global = global.with_lists(self.settings.lists());
                }
                Err(error) => warn!(%error, "no pre-schedulers: the head decides by itself"),
            }
        }
        global.touch();
        self.global = Some(global);
    }

    /// Stops the global scheduler: this node is no longer the head, or there is a new election result.
    pub(super) fn hand_over(&mut self) {
        self.global = None;
        self.pre_schedulers = None;
        self.global_contexts.clear();
    }

    /// Places tasks, or hands them out to pre-schedulers; in hint mode also sends all nodes the free capacities, when due.
    pub(super) fn run_global(&mut self) {
        if self.pre_schedulers.is_some() {
            self.hand_out();
        } else {
            self.decide();
        }
        if self.settings.mode == Mode::Hints
            && self.now >= self.next_snapshot
            && self.global.is_some()
        {
            self.next_snapshot =
                self.now + millis(self.settings.timing.snapshot_every.as_duration());
            self.broadcast_loads();
        }
    }

    fn decide(&mut self) {
        let decision = Millis::new(self.settings.emulate.decision_ms);
        let Some(global) = &mut self.global else {
            return;
        };
        let is_due = global.next_timer().is_some_and(|at| at <= self.now);
        while is_due || global.has_work() {
            if decision > Millis::ZERO {
                if self.next_decision > self.now {
                    break;
                }
                // Decisions are made one after another; time spent idle is not made up for.
                let earliest = self.now - decision;
                self.next_decision = self.next_decision.max(earliest) + decision;
            }
            if !global.decide(self.now, &mut self.global_actions) {
                break;
            }
        }
    }

    /// Hands waiting tasks out to pre-schedulers, shortest first, up to the limit of tasks in flight.
    fn hand_out(&mut self) {
        let (Some(global), Some(pool)) = (&mut self.global, &mut self.pre_schedulers) else {
            return;
        };
        let is_due = global.next_timer().is_some_and(|at| at <= self.now);
        while (is_due || global.has_work())
            && let Some(wanted) = global.take(self.now, &mut self.global_actions)
        {
            pool.enqueue(wanted);
        }
        if let Some(records) = global.records() {
            pool.send(records);
        }
    }

    /// Commits lists from pre-schedulers: the nodes of each list are tried in the order of what is free now.
    pub(super) fn commit_lists(&mut self, batch: &ListBatch) {
        let (Some(global), Some(pool)) = (&mut self.global, &mut self.pre_schedulers) else {
            return;
        };
        if global.term() != batch.term {
            return;
        }
        pool.done(batch);
        self.now = self.clock.now();
        if self.leaving || self.now >= self.acts_until {
            // Tasks that were handed out wait again once their lease has expired.
            return;
        }
        for list in &batch.lists {
            let commit = global.commit(self.now, list, &mut self.global_actions);
            self.metrics.committed(&commit);
        }
    }

    /// Sends all nodes what the head believes to be free.
    fn broadcast_loads(&mut self) {
        let (Some(global), Some((epoch, _))) = (&self.global, self.election.head()) else {
            return;
        };
        let load = |(index, slot): (NodeIndex, &super::directory::Slot)| proto::Load {
            tag: slot.key.tag.get(),
            free: global.assumed_free(index).into(),
        };
        let loads = proto::Loads {
            epoch: epoch.0,
            loads: self.directory.present().map(load).collect(),
        };
        self.apply_loads(&loads);
        self.streams.send_all(&Body::Loads(loads));
    }

    pub(super) fn apply_loads(&mut self, loads: &proto::Loads) {
        let none = |slot: &super::directory::Slot| Load {
            capacity: slot.capacity,
            free: Resources::default(),
        };
        let mut known: Vec<Load<Resources>> = self.directory.all().iter().map(none).collect();
        for load in &loads.loads {
            if let Some(index) = self.directory.index(crate::identity::Tag::new(load.tag)) {
                known[index.get()].free = load.free.into();
            }
        }
        self.node.snapshot(&known);
    }
}
