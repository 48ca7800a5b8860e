//! The world: nodes that work on one message at a time, one global scheduler, one submitter, and a network between them.

use std::collections::VecDeque;

use fdn_core::Millis;
use fdn_scheduling::instance::{
    Action, Global, GlobalSettings, Limits, Load, Node, NodeIndex, Policy, Running, Settings,
    Slots, Submitter, SubmitterSettings, TaskId, ToGlobal, ToNode, ToSubmitter,
};
use rand::RngExt;

use super::clock::Lane;
use super::outcome::Outcome;
use super::setup::{Scheduler, Setup};
use super::tasks::Tasks;
use crate::Error;
use crate::events::Events;
use crate::seed::Rng;

/// How long the run goes on after the last arrival, at least, so that everything under way comes to its end.
const DRAIN: Millis = Millis::new(1000.0);

/// A duplicate comes later by up to so many delays.
const DUPLICATE_DELAYS: f64 = 20.0;

/// A message under way.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mail {
    Node(NodeIndex, ToNode<Slots>),
    Global(ToGlobal<Slots>),
    Submitter(ToSubmitter),
}

/// What does not come after a constant span.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    End(NodeIndex, Running),
    /// The second copy of a message.
    Duplicate(Mail),
    /// A node's timer may be due.
    Timer(NodeIndex),
    /// The submitter's timer may be due.
    SubmitterTimer,
    /// A snapshot of all nodes is taken, and arrives.
    Take,
    Arrive,
    /// A node is lost, and the others hear of it.
    Lose(NodeIndex),
    Hear(NodeIndex),
    /// The global scheduler is lost, and another one takes over.
    LoseHead,
    TakeOver,
}

/// What comes next.
#[derive(Clone, Copy, Debug)]
enum Next {
    Task,
    Mail,
    Work,
    Decision,
    Event,
}

#[derive(Debug)]
pub(super) struct Host {
    pub(super) node: Node<Slots>,
    /// Messages it has not worked on yet; with the first one it is busy.
    pub(super) inbox: VecDeque<ToNode<Slots>>,
    pub(super) snapshot: u64,
    pub(super) timer: Millis,
    pub(super) lost: bool,
}

#[derive(Debug)]
pub(super) struct Streams {
    pub(super) arrivals: Rng,
    pub(super) lifetimes: Rng,
    pub(super) choices: Rng,
    pub(super) network: Rng,
}

#[derive(Debug)]
pub(super) struct World<'a> {
    pub(super) setup: &'a Setup,
    pub(super) now: Millis,
    pub(super) hosts: Vec<Host>,
    pub(super) global: Global<Slots>,
    pub(super) head_lost: bool,
    pub(super) submitter: Submitter<Slots>,
    pub(super) rng: Streams,
    pub(super) mail: Lane<Mail>,
    pub(super) work: Lane<NodeIndex>,
    pub(super) events: Events<Event>,
    pub(super) next_task: Millis,
    pub(super) submitted: u64,
    pub(super) decision: Millis,
    pub(super) submitter_timer: Millis,
    pub(super) snapshots: VecDeque<Vec<Load<Slots>>>,
    pub(super) snapshot: Vec<Load<Slots>>,
    pub(super) snapshot_number: u64,
    pub(super) actions: Vec<Action<Slots>>,
    pub(super) tasks: Tasks,
    pub(super) busy: u64,
    pub(super) until: Millis,
}

const fn policy(scheduler: Scheduler) -> Policy {
    match scheduler {
        Scheduler::LocalProbeGlobal | Scheduler::Central | Scheduler::Optimistic => {
            Policy::LocalProbeGlobal
        }
        Scheduler::Hints => Policy::Hints,
        Scheduler::BottomUp => Policy::BottomUp,
        Scheduler::ReProbing => Policy::ReProbing,
        Scheduler::LateBinding => Policy::LateBinding,
    }
}

/// As production has them, but no more than the tasks of the run can need, for there are hundreds of nodes in one memory.
fn limits(setup: &Setup, usual: Limits) -> Limits {
    // A task passes through a few nodes; some nodes see more of them than others.
    let passing = setup.tasks.saturating_mul(16) / u64::from(setup.nodes) + 1024;
    let most = |limit: usize| limit.min(passing.min(setup.tasks * 4) as usize).max(1);
    Limits {
        queue: most(usual.queue),
        probing: most(usual.probing),
        reservations: most(usual.reservations),
        waiters: most(usual.waiters),
        running: usual.running.min(setup.slots as usize),
        memory: most(usual.memory),
    }
}

/// A message is never faster than the work on it, and a network without delay still has a round trip to wait for.
fn round_trip(setup: &Setup) -> Millis {
    (setup.delay + setup.message_cost) * 2.0 + Millis::new(0.01)
}

pub(super) fn global_settings(setup: &Setup) -> GlobalSettings {
    GlobalSettings {
        queue: setup.tasks as usize,
        memory_limit: setup.tasks as usize,
        ..GlobalSettings::for_round_trip(round_trip(setup))
    }
}

pub(super) fn capacities(setup: &Setup) -> Vec<Slots> {
    vec![Slots(setup.slots); setup.nodes as usize]
}

fn exponential(rng: &mut Rng, mean: Millis) -> Millis {
    mean * -(1.0 - rng.random::<f64>()).ln()
}

impl<'a> World<'a> {
    pub(super) fn new(setup: &'a Setup) -> Result<Self, Error> {
        let round_trip = round_trip(setup);
        let settings = Settings {
            notice_every: setup.notice_every,
            refresh: Millis::new(500.0).max(setup.notice_every),
            hint_sample: setup.hint_sample,
            hint_spread: setup.hint_spread,
            ..Settings::for_round_trip(round_trip)
        }
        .with_policy(policy(setup.scheduler));
        let settings = Settings {
            limits: limits(setup, settings.limits),
            ..settings
        };
        let capacity = Slots(setup.slots);
        let host = |at| {
            let node = Node::new(NodeIndex(at), setup.nodes, capacity, settings);
            let node = node.map_err(|error| Error::Usage(error.to_string()))?;
            Ok(Host {
                node,
                inbox: VecDeque::new(),
                snapshot: 0,
                timer: Millis::INFINITY,
                lost: false,
            })
        };
        let hosts: Result<Vec<Host>, Error> = (0..setup.nodes).map(host).collect();
        let defaults = SubmitterSettings::for_round_trip(round_trip);
        let submitter = SubmitterSettings {
            central: setup.scheduler == Scheduler::Central,
            // Nothing is lost on a reliable network, so nothing needs to be sent again.
            resend: if setup.is_reliable() {
                Millis::INFINITY
            } else {
                defaults.resend
            },
            open: setup.tasks as usize,
            ..defaults
        };
        Ok(Self {
            setup,
            now: Millis::ZERO,
            hosts: hosts?,
            global: Global::new(&capacities(setup), global_settings(setup)),
            head_lost: false,
            submitter: Submitter::new(setup.nodes, TaskId(0), submitter),
            rng: Streams {
                arrivals: setup.seed.stream("arrivals"),
                lifetimes: setup.seed.stream("lifetimes"),
                choices: setup.seed.stream("choices"),
                network: setup.seed.stream("network"),
            },
            mail: Lane::new(setup.delay),
            work: Lane::new(setup.message_cost),
            events: Events::default(),
            next_task: Millis::ZERO,
            submitted: 0,
            decision: Millis::INFINITY,
            submitter_timer: Millis::INFINITY,
            snapshots: VecDeque::new(),
            snapshot: Vec::new(),
            snapshot_number: 0,
            actions: Vec::new(),
            tasks: Tasks::new(setup),
            busy: 0,
            until: Millis::INFINITY,
        })
    }

    /// Runs until every task has come to its end, or nothing more can happen to it.
    pub(super) fn run(mut self) -> Result<Outcome, Error> {
        self.begin();
        while let Some(next) = self.next() {
            self.step(next)?;
            if self.tasks.are_settled() || self.setup.give_up && self.tasks.are_too_late() {
                break;
            }
        }
        self.check()?;
        Ok(self.tasks.into_recorder().outcome(self.setup))
    }

    fn begin(&mut self) {
        if !self.setup.from_empty {
            self.fill();
        }
        for at in 0..self.hosts.len() {
            let report = self.hosts[at].node.report();
            self.global
                .receive(self.now, ToGlobal::Notice(report), &mut self.actions);
        }
        self.next_task = self.next_arrival();
        if self.setup.scheduler == Scheduler::Hints {
            self.events.at(Millis::ZERO, Event::Take);
        }
        // Spread over the time in which tasks arrive.
        let span = self.gap() * self.setup.tasks as f64;
        for (count, node) in (1..=self.setup.lost_nodes).zip((0..self.setup.nodes).rev()) {
            let share = f64::from(count) / f64::from(self.setup.lost_nodes + 1);
            self.events.at(span * share, Event::Lose(NodeIndex(node)));
        }
        for count in 1..=self.setup.lost_heads {
            let share = f64::from(count) / f64::from(self.setup.lost_heads + 1);
            self.events.at(span * share, Event::LoseHead);
        }
    }

    fn next_arrival(&mut self) -> Millis {
        let gap = self.gap();
        self.now + exponential(&mut self.rng.arrivals, gap)
    }

    fn gap(&self) -> Millis {
        Millis::new(1e3 / self.setup.rate_per_s)
    }

    /// A share U of the slots is busy from the start; what is left of an exponential time is exponential.
    fn fill(&mut self) {
        let lifetime = self.setup.lifetime();
        for at in 0..self.setup.nodes {
            for _ in 0..self.setup.slots {
                if self.rng.lifetimes.random::<f64>() < self.setup.utilization {
                    let left = exponential(&mut self.rng.lifetimes, lifetime);
                    let node = &mut self.hosts[at as usize].node;
                    if let Some(running) = node.adopt(Slots(1)) {
                        self.busy += 1;
                        self.events.at(left, Event::End(NodeIndex(at), running));
                    }
                }
            }
        }
    }

    /// What comes next, and the clock moves there; equal times in the order of this list.
    fn next(&mut self) -> Option<Next> {
        let times = [
            (
                self.events.next_at().unwrap_or(Millis::INFINITY),
                Next::Event,
            ),
            (self.mail.next_at(), Next::Mail),
            (self.work.next_at(), Next::Work),
            (self.decision, Next::Decision),
            (self.next_task, Next::Task),
        ];
        let mut first = times[0];
        for time in &times[1..] {
            if time.0 < first.0 {
                first = *time;
            }
        }
        let (at, next) = first;
        if !at.is_finite() || at > self.until {
            return None;
        }
        self.tasks.pass(self.busy, self.now, at);
        self.now = at;
        Some(next)
    }

    fn step(&mut self, next: Next) -> Result<(), Error> {
        match next {
            Next::Task => self.submit()?,
            Next::Mail => {
                if let Some(mail) = self.mail.pop() {
                    self.deliver(mail);
                }
            }
            Next::Work => {
                if let Some(node) = self.work.pop() {
                    self.work_done(node);
                }
            }
            Next::Decision => {
                self.global.decide(self.now, &mut self.actions);
                self.decision = Millis::INFINITY;
                self.wake_global();
            }
            Next::Event => {
                if let Some((_, event)) = self.events.pop() {
                    self.happen(event);
                }
            }
        }
        self.act()
    }

    fn submit(&mut self) -> Result<(), Error> {
        let life = exponential(&mut self.rng.lifetimes, self.setup.lifetime());
        self.tasks.submitted(self.now);
        self.submitter
            .submit(
                self.now,
                Slots(1),
                life,
                &mut self.rng.choices,
                &mut self.actions,
            )
            .map_err(|error| Error::Broken(error.to_string()))?;
        self.submitted += 1;
        if self.submitted < self.setup.tasks {
            self.next_task = self.next_arrival();
        } else {
            self.next_task = Millis::INFINITY;
            self.until = self.now + DRAIN.max(self.setup.lifetime() * 20.0);
        }
        self.set_origin_timer();
        Ok(())
    }

    pub(super) fn deliver(&mut self, mail: Mail) {
        match mail {
            Mail::Node(node, message) => {
                let host = &mut self.hosts[node.get()];
                if host.lost {
                    return;
                }
                host.inbox.push_back(message);
                if host.inbox.len() == 1 {
                    self.work.push(self.now, node);
                }
            }
            Mail::Global(_) if self.head_lost => {}
            Mail::Global(message) => {
                self.global.receive(self.now, message, &mut self.actions);
                self.wake_global();
            }
            Mail::Submitter(message) => {
                let (rng, actions) = (&mut self.rng.choices, &mut self.actions);
                let settled = self.submitter.receive(self.now, message, rng, actions);
                self.settled(settled);
                self.set_origin_timer();
            }
        }
    }

    /// A node has done its work on the first message of its inbox.
    fn work_done(&mut self, node: NodeIndex) {
        let host = &mut self.hosts[node.get()];
        let Some(message) = host.inbox.pop_front() else {
            return;
        };
        if host.snapshot != self.snapshot_number {
            host.snapshot = self.snapshot_number;
            host.node.snapshot(&self.snapshot);
        }
        let (rng, actions) = (&mut self.rng.choices, &mut self.actions);
        host.node.receive(self.now, message, rng, actions);
        host.node.poll(self.now, rng, actions);
        if !host.inbox.is_empty() {
            self.work.push(self.now, node);
        }
        self.set_timer(node);
    }

    fn wake_global(&mut self) {
        if self.global.has_work() && !self.decision.is_finite() {
            self.decision = self.now + self.setup.decision_cost;
        }
    }

    /// Does what the schedulers said.
    fn act(&mut self) -> Result<(), Error> {
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            match action {
                Action::Start {
                    node,
                    task,
                    stage,
                    running,
                } => {
                    self.busy += 1;
                    self.tasks.started(task.id, node, stage, self.now)?;
                    self.events
                        .at(self.now + task.remaining, Event::End(node, running));
                }
                Action::Node(node, message) => self.send(Mail::Node(node, message)),
                Action::Global(message) => self.send(Mail::Global(message)),
                Action::Submitter(message) => self.send(Mail::Submitter(message)),
            }
        }
        self.actions = actions;
        Ok(())
    }

    fn send(&mut self, mail: Mail) {
        match &mail {
            Mail::Node(_, message) => self.tasks.sent_to_node(message),
            Mail::Global(message) => self.tasks.sent_to_global(message),
            Mail::Submitter(_) => {}
        }
        if self.setup.duplicate > 0.0 && self.rng.network.random::<f64>() < self.setup.duplicate {
            let late = self.setup.delay * (DUPLICATE_DELAYS * self.rng.network.random::<f64>());
            self.events
                .at(self.now + self.setup.delay + late, Event::Duplicate(mail));
        }
        if self.setup.loss > 0.0 && self.rng.network.random::<f64>() < self.setup.loss {
            return;
        }
        self.mail.push(self.now, mail);
    }

    /// No node may have more than it can hold.
    fn check(&self) -> Result<(), Error> {
        let over = self
            .hosts
            .iter()
            .find(|host| host.node.used().0 + host.node.reserved().0 > host.node.capacity().0);
        match over {
            None => Ok(()),
            Some(host) => Err(Error::Broken(format!(
                "{} holds more than it has",
                host.node.index()
            ))),
        }
    }
}
