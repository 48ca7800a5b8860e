//! The loop: what comes in, what is due, what goes out.

use std::time::Duration;

use fdn_core::{Millis, Resources};
use fdn_scheduling::instance::{Load, NodeIndex};
use tokio::time::{Instant, sleep_until};

use super::{Actor, Command, End, Sources};
use crate::clock::millis;
use crate::host::Host;
use crate::link::FromLink;
use crate::settings::Mode;
use crate::wire::proto;
use crate::wire::proto::Body;

/// Frames that are handled in one turn at most; then what they led to is sent.
const FRAMES: usize = 64;
/// Ends of instances that are handled in one turn at most.
const ENDS: usize = 4096;
/// How often tables are searched for what nobody needs any more.
const SWEEP: Duration = Duration::from_secs(1);

impl<H: Host> Actor<H> {
    /// Runs until the node leaves or its handle is gone.
    pub(crate) async fn run(mut self, mut sources: Sources) {
        let stop = self.streams.shared().stop.clone();
        let mut frames: Vec<FromLink> = Vec::with_capacity(FRAMES);
        let mut ends: Vec<End> = Vec::with_capacity(ENDS);
        self.turn();
        while !self.leaving {
            let wake = Instant::from_std(self.clock.instant(self.next_wake()));
            let mut command = None;
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                _ = sources.frames.recv_many(&mut frames, FRAMES) => {}
                _ = sources.ends.recv_many(&mut ends, ENDS) => {}
                received = sources.commands.recv() => match received {
                    Some(received) => command = Some(received),
                    None => break,
                },
                () = sleep_until(wake) => {}
            }
            while ends.len() < ENDS
                && let Ok(end) = sources.ends.try_recv()
            {
                ends.push(end);
            }
            if command.is_none() {
                command = sources.commands.try_recv().ok();
            }
            self.now = self.clock.now();
            self.lease = *sources.lease.borrow_and_update();
            for event in frames.drain(..) {
                self.link_says(event);
            }
            for end in ends.drain(..) {
                self.ended(end);
            }
            if let Some(command) = command {
                self.command(command);
            }
            self.turn();
        }
        self.say_goodbye();
        self.metrics.quorum.set(0);
        // What is queued goes out before the streams end.
        self.streams.flush();
        tokio::time::sleep(Duration::from_millis(50)).await;
        self.streams.drop_all();
        stop.cancel();
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Scale(tasks, outcomes) => self.scale(tasks, &outcomes),
            Command::Drain(draining) => {
                self.members.set_draining(draining, &mut self.changes);
            }
            Command::Forget(node) => self.forget(&node),
            Command::Cut(nodes) => self.streams.shared().cuts.set(nodes),
            Command::Status(answer) => {
                // Who asked may have gone.
                let _ = answer.send(self.status());
            }
            Command::Leave(answer) => {
                self.leaving = true;
                let _ = answer.send(());
            }
        }
    }

    /// Everything that is due, until nothing more follows from it; then it is sent.
    fn turn(&mut self) {
        if self.now >= self.next_tick {
            self.tick();
            self.next_tick = self.now + millis(self.settings.timing.ping_every.as_duration()) * 0.5;
        }
        loop {
            self.apply_changes();
            self.run_origin();
            if self.acts() {
                self.node
                    .poll(self.now, &mut self.rng, &mut self.node_actions);
                self.run_global();
            }
            self.do_actions();
            if self.local.is_empty() && self.changes.is_empty() && self.deeds.is_empty() {
                break;
            }
            while let Some(body) = self.local.pop_front() {
                self.handle(self.me.key, body);
            }
        }
        if self.now >= self.next_sweep {
            self.sweep();
            self.next_sweep = self.now + millis(SWEEP);
        }
        self.streams.flush();
    }

    fn run_origin(&mut self) {
        while let Some(settled) =
            self.origin
                .tick(self.now, &mut self.rng, &mut self.origin_actions)
        {
            self.settled.push(settled);
        }
        self.settle_all();
    }

    fn run_global(&mut self) {
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
                // Decisions follow one another; idle time is not made up for.
                let earliest = self.now - decision;
                self.next_decision = self.next_decision.max(earliest) + decision;
            }
            if !global.decide(self.now, &mut self.global_actions) {
                break;
            }
        }
        if self.settings.mode == Mode::Hints && self.now >= self.next_snapshot {
            self.next_snapshot =
                self.now + millis(self.settings.timing.snapshot_every.as_duration());
            self.tell_loads();
        }
    }

    /// The head tells all nodes what it believes to be free.
    fn tell_loads(&mut self) {
        let (Some(global), Some((epoch, _))) = (&self.global, self.election.head()) else {
            return;
        };
        let load = |(index, slot): (NodeIndex, &super::directory::Slot)| proto::Load {
            tag: slot.key.tag.get(),
            free: global.believed(index).into(),
        };
        let loads = proto::Loads {
            epoch: epoch.0,
            loads: self.directory.present().map(load).collect(),
        };
        self.take_loads(&loads);
        self.streams.send_all(&Body::Loads(loads));
    }

    pub(super) fn take_loads(&mut self, loads: &proto::Loads) {
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

    /// When something is due though nothing comes in.
    fn next_wake(&self) -> Millis {
        let acts = self.acts();
        let global = self.global.as_ref().filter(|_| acts);
        let decision = global
            .filter(|global| global.has_work())
            .map(|_| self.next_decision);
        let snapshot = global.filter(|_| self.settings.mode == Mode::Hints);
        let timers = [
            self.node.next_timer().filter(|_| acts),
            global.and_then(fdn_scheduling::instance::Global::next_timer),
            decision,
            snapshot.map(|_| self.next_snapshot),
            self.origin.next_timer(),
        ];
        let timers = timers.into_iter().flatten();
        timers.fold(self.next_tick.max(self.now), |first, at| {
            if at < first { at } else { first }
        })
    }

    /// Forgets what belongs to tasks that nobody wants any more.
    fn sweep(&mut self) {
        let limit = self.now - millis(self.settings.timing.memory.as_duration());
        self.luggage.retain(|_, luggage| luggage.deadline > limit);
        self.global_luggage
            .retain(|_, luggage| luggage.deadline > limit);
    }
}
