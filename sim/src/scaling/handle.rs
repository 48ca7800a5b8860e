//! What does not come after a constant span: instances end, snapshots are taken, timers run out, nodes are lost.

use fdn_core::Millis;
use fdn_scheduling::instance::{Global, Load, NodeIndex, Running, Settled, Slots, Term};

use super::world::{Event, Host, World, capacities, global_settings};

impl World<'_> {
    pub(super) fn happen(&mut self, event: Event) {
        match event {
            Event::End(node, running) => self.ended(node, running),
            Event::Duplicate(mail) => self.deliver(mail),
            Event::Timer(node) => {
                let host = &mut self.hosts[node.get()];
                host.timer = Millis::INFINITY;
                if !host.lost {
                    let (rng, actions) = (&mut self.rng.choices, &mut self.actions);
                    host.node.poll(self.now, rng, actions);
                    self.set_timer(node);
                }
            }
            Event::SubmitterTimer => {
                self.submitter_timer = Millis::INFINITY;
                let (rng, actions) = (&mut self.rng.choices, &mut self.actions);
                while let Some(settled) = self.submitter.tick(self.now, rng, actions) {
                    self.tasks.settled(settled);
                }
                self.set_origin_timer();
            }
            Event::Take => self.take_snapshot(),
            Event::Arrive => {
                if let Some(snapshot) = self.snapshots.pop_front() {
                    self.snapshot = snapshot;
                    self.snapshot_number += 1;
                }
            }
            Event::Lose(node) => self.lose(node),
            Event::Hear(node) => self.hear(node),
            Event::LoseHead => {
                self.head_lost = true;
                self.decision = Millis::INFINITY;
                let detection = self.setup.delay * 40.0;
                self.events.at(self.now + detection, Event::TakeOver);
            }
            Event::TakeOver => self.take_over(),
        }
    }

    fn ended(&mut self, node: NodeIndex, running: Running) {
        let host = &mut self.hosts[node.get()];
        if host.lost {
            return;
        }
        self.busy -= 1;
        host.node.ended(running);
        let (rng, actions) = (&mut self.rng.choices, &mut self.actions);
        host.node.poll(self.now, rng, actions);
        self.set_timer(node);
    }

    /// Gathering takes one way to the centre, spreading one back; so the next one is taken that much earlier than the age allows.
    fn take_snapshot(&mut self) {
        let load = |host: &Host| Load {
            capacity: host.node.capacity(),
            free: if host.lost {
                Slots(0)
            } else {
                host.node.free()
            },
        };
        self.snapshots
            .push_back(self.hosts.iter().map(load).collect());
        let transit = self.setup.delay * 2.0;
        self.events.at(self.now + transit, Event::Arrive);
        let pause = (self.setup.snapshot_age - transit).max(Millis::new(0.1));
        self.events.at(self.now + pause, Event::Take);
    }

    fn lose(&mut self, node: NodeIndex) {
        let host = &mut self.hosts[node.get()];
        host.lost = true;
        self.busy -= host.node.running() as u64;
        self.tasks.lost(node);
        // The message at work stays; nothing comes of it.
        let detection = self.setup.delay * 40.0;
        self.events.at(self.now + detection, Event::Hear(node));
    }

    fn hear(&mut self, lost: NodeIndex) {
        for host in self.hosts.iter_mut().filter(|host| !host.lost) {
            let (rng, actions) = (&mut self.rng.choices, &mut self.actions);
            host.node.lost(self.now, lost, rng, actions);
        }
        self.global.lost(lost);
        let mut settled = Vec::new();
        let (rng, actions) = (&mut self.rng.choices, &mut self.actions);
        self.submitter
            .lost(self.now, lost, rng, actions, &mut settled);
        self.settled(settled);
        self.set_origin_timer();
    }

    /// Another global scheduler, which knows nothing yet; everybody hears of it.
    fn take_over(&mut self) {
        let term = Term(self.global.term().0 + 1);
        self.head_lost = false;
        self.global = Global::take_over(&capacities(self.setup), term, global_settings(self.setup));
        for at in 0..self.hosts.len() {
            let node = self.hosts[at].node.index();
            if self.hosts[at].lost {
                self.global.lost(node);
                continue;
            }
            let (rng, actions) = (&mut self.rng.choices, &mut self.actions);
            self.hosts[at].node.headed(term);
            self.hosts[at].node.poll(self.now, rng, actions);
            self.set_timer(node);
        }
        let mut settled = Vec::new();
        let (rng, actions) = (&mut self.rng.choices, &mut self.actions);
        self.submitter
            .headed(self.now, term, rng, actions, &mut settled);
        self.settled(settled);
        self.set_origin_timer();
    }

    pub(super) fn settled(&mut self, settled: impl IntoIterator<Item = Settled>) {
        for settled in settled {
            self.tasks.settled(settled);
        }
    }

    /// Timers matter where messages are lost, and for notices held back while somebody waits for room.
    pub(super) fn set_timer(&mut self, node: NodeIndex) {
        if self.setup.is_reliable() && self.global.waiting() == 0 {
            return;
        }
        let host = &mut self.hosts[node.get()];
        if let Some(at) = host.node.next_timer()
            && at < host.timer
        {
            host.timer = at;
            self.events.at(at.max(self.now), Event::Timer(node));
        }
    }

    pub(super) fn set_origin_timer(&mut self) {
        if let Some(at) = self.submitter.next_timer()
            && at < self.submitter_timer
        {
            self.submitter_timer = at;
            self.events.at(at.max(self.now), Event::SubmitterTimer);
        }
    }
}
