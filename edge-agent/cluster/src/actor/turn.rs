//! The main loop: takes input, does what is due, and sends the output.

use std::time::Duration;

use fdn_core::Millis;
use tokio::time::{Instant, sleep_until};

use super::{Actor, Command, End, Sources};
use crate::clock::millis;
use crate::host::Host;
use crate::link::LinkEvent;
use crate::settings::Mode;

/// The most frames handled in one turn, before the resulting messages are sent.
const FRAMES: usize = 64;
/// The most ends of instances taken in one turn.
const ENDS: usize = 4096;
/// How often obsolete table entries are removed.
const SWEEP: Duration = Duration::from_secs(1);

impl<H: Host> Actor<H> {
    /// Runs until the node leaves or its handle is gone.
    pub(crate) async fn run(mut self, mut sources: Sources) {
        let stop = self.streams.shared().stop.clone();
        let mut frames: Vec<LinkEvent> = Vec::with_capacity(FRAMES);
        let mut ends: Vec<End> = Vec::with_capacity(ENDS);
        self.turn();
        while !self.leaving {
            let wake = Instant::from_std(self.clock.instant(self.next_wake()));
            let mut command = None;
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                _ = sources.frames.recv_many(&mut frames, FRAMES) => {}
                Some(batch) = sources.batches.recv() => self.commit_lists(&batch),
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
            while let Ok(batch) = sources.batches.try_recv() {
                self.commit_lists(&batch);
            }
            if command.is_none() {
                command = sources.commands.try_recv().ok();
            }
            self.now = self.clock.now();
            self.lease = *sources.lease.borrow_and_update();
            for event in frames.drain(..) {
                self.on_link_event(event);
            }
            for end in ends.drain(..) {
                self.ended(end);
            }
            if let Some(command) = command {
                self.command(command);
            }
            self.turn();
        }
        self.announce_leave();
        self.metrics.quorum.set(0);
        // Queued messages are sent before the streams end.
        self.streams.flush();
        tokio::time::sleep(Duration::from_millis(50)).await;
        self.streams.drop_all();
        stop.cancel();
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Scale(tasks, outcomes) => self.scale(tasks, &outcomes),
            Command::Hold(demand, answer) => {
                // The requester may be gone: then nobody would release the room.
                if let Err(Some(task)) = answer.send(self.hold(demand)) {
                    self.ended(End {
                        task,
                        failed: false,
                    });
                }
            }
            Command::Drain(draining) => {
                self.members.set_draining(draining, &mut self.changes);
            }
            Command::Forget(node) => self.forget(&node),
            Command::Cut(nodes) => self.streams.shared().cuts.set(nodes),
            Command::Status(answer) => {
                // The requester may be gone.
                let _ = answer.send(self.status());
            }
            Command::Leave(answer) => {
                self.leaving = true;
                let _ = answer.send(());
            }
        }
    }

    /// Does everything that is due, until nothing more follows from it; then sends the messages.
    fn turn(&mut self) {
        if self.now >= self.next_tick {
            self.tick();
            self.next_tick = self.now + millis(self.settings.timing.ping_every.as_duration()) * 0.5;
        }
        loop {
            self.apply_changes();
            self.run_submitter();
            if self.acts() {
                self.node
                    .poll(self.now, &mut self.rng, &mut self.node_actions);
                self.run_global();
            }
            self.do_actions();
            if self.local.is_empty() && self.changes.is_empty() && self.election_actions.is_empty()
            {
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

    fn run_submitter(&mut self) {
        while let Some(settled) =
            self.submitter
                .tick(self.now, &mut self.rng, &mut self.submitter_actions)
        {
            self.settled.push(settled);
        }
        self.settle_all();
    }

    /// When something is due next, even if no input arrives.
    fn next_wake(&self) -> Millis {
        let acts = self.acts();
        let global = self.global.as_ref().filter(|_| acts);
        // With pre-schedulers the global scheduler only waits for their lists.
        let decision = global
            .filter(|global| global.has_work() && self.pre_schedulers.is_none())
            .map(|_| self.next_decision);
        let snapshot = global.filter(|_| self.settings.mode == Mode::Hints);
        let timers = [
            self.node.next_timer().filter(|_| acts),
            global.and_then(fdn_scheduling::instance::Global::next_timer),
            decision,
            snapshot.map(|_| self.next_snapshot),
            self.submitter.next_timer(),
        ];
        let timers = timers.into_iter().flatten();
        timers.fold(self.next_tick.max(self.now), |first, at| {
            if at < first { at } else { first }
        })
    }

    /// Removes the contexts of tasks that nobody wants any more.
    fn sweep(&mut self) {
        let limit = self.now - millis(self.settings.timing.memory.as_duration());
        self.contexts.retain(|_, kept| kept.deadline > limit);
        self.global_contexts.retain(|_, kept| kept.deadline > limit);
    }
}
