//! The scheduler `optimistic`: every task goes to the pre-schedulers; the committer sends it to a node, which has the last word.
//!
//! A task is one message away from the head of the cluster, which hands it to a pre-scheduler as soon as one is idle and no more
//! lists are in flight than may be. The node that the committer names is one more message away. It starts the instance, or
//! refuses it for want of room, and says when it has ended; only then is the room given to another.
//!
//! The head and each node talk over a stream: a message that is lost on the way comes later, after a time-out of four
//! delays, once or several times; one that is doubled is worked on twice.

use std::collections::{BTreeSet, VecDeque};

use fdn_core::{InstanceId, MebiBytes, MilliCpu, Millis, Resources};
use fdn_scheduling::commit::{
    Choice, Committer, Container, LeastRequested, NodeIndex, NodeSelection, Placed, Settings,
    Submitted, Verdict,
};
use rand::RngExt;
use uuid::Uuid;

use super::outcome::{Outcome, Recorder, Stage};
use super::setup::Setup;
use crate::Error;
use crate::events::Events;
use crate::optimistic::scheduler_pool::{Costs, SchedulerPool, Step};
use crate::seed::Rng;

/// After which time a message that was lost is sent again.
const RESEND_DELAYS: f64 = 4.0;
/// How long it takes until the head hears that a node is lost.
const DETECTION_DELAYS: f64 = 40.0;
/// How long the run goes on after the last arrival, at least.
const DRAIN: Millis = Millis::new(1000.0);

/// How many random nodes a pre-scheduler looks at.
const SAMPLE: usize = 50;
/// How many of them it names.
const LENGTH: usize = 5;

/// A message under way.
#[derive(Clone, Copy, Debug)]
enum Mail {
    /// To the head: a task, by the number of its arrival.
    Submit(u64),
    /// To a node: start this.
    Start(Placed),
    /// To the head: there is no room for this.
    Refused(Placed),
    /// To the head: this has ended.
    Ended(InstanceId),
    /// To the head: so many instances remain of those that were there from the start.
    Former(NodeIndex, u32),
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrival,
    Mail(Mail),
    /// A node has worked on the first message of its inbox.
    Work(NodeIndex),
    SchedulerPool(Step),
    /// An instance ends.
    End(NodeIndex, Option<InstanceId>),
    Lose(NodeIndex),
    Hear(NodeIndex),
}

#[derive(Debug, Default)]
struct Host {
    inbox: VecDeque<Placed>,
    /// Instances of tasks.
    running: u32,
    /// Instances that were there from the start, not by this scheduler.
    former: u32,
    /// What the head knows of those; there are never more than before.
    former_told: u32,
    /// What it has refused: a second copy of the message must not start it.
    refused: BTreeSet<(InstanceId, u64)>,
    lost: bool,
}

#[derive(Clone, Copy, Debug)]
struct Fate {
    submitted: Millis,
    lifetime: Millis,
    /// How many containers there have been for it: one more for each node lost before its start.
    tries: u32,
    taken: bool,
    started: bool,
}

#[derive(Debug)]
pub(super) struct World<'a> {
    setup: &'a Setup,
    events: Events<Event>,
    pool: SchedulerPool,
    hosts: Vec<Host>,
    tasks: Vec<Fate>,
    recorder: Recorder,
    arrivals: Rng,
    lifetimes: Rng,
    network: Rng,
    busy: u64,
    settled: u64,
    until: Millis,
    placed: Vec<Placed>,
}

impl<'a> World<'a> {
    pub(super) fn new(setup: &'a Setup) -> Result<Self, Error> {
        let choice = Choice {
            selection: NodeSelection::Sample(SAMPLE),
            length: LENGTH,
            ..Choice::default()
        };
        let costs = Costs {
            scoring: setup.scoring,
            list: setup.list_cost,
            changed: setup.changed_cost,
        };
        let largest = costs.list + costs.changed * choice.length as f64;
        let settings = Settings {
            in_flight_max: Settings::in_flight(costs.scoring, largest),
            lease: Millis::INFINITY,
            nodes_max: setup.nodes as usize,
            ..Settings::default()
        };
        let mut committer = Committer::new(settings, LeastRequested).map_err(broken)?;
        let mut placed = Vec::new();
        let capacity = Resources::new(MilliCpu(u64::from(setup.slots)), MebiBytes(0));
        for _ in 0..setup.nodes {
            committer.add_node(capacity, &mut placed).map_err(broken)?;
        }
        let worker = |k: u32| (choice, setup.seed.stream(&format!("pre-scheduler {k}")));
        let workers = (0..setup.pre_schedulers).map(worker);
        Ok(Self {
            setup,
            events: Events::default(),
            pool: SchedulerPool::new(committer, costs, workers),
            hosts: (0..setup.nodes).map(|_| Host::default()).collect(),
            tasks: Vec::new(),
            recorder: Recorder::new(setup),
            arrivals: setup.seed.stream("arrivals"),
            lifetimes: setup.seed.stream("lifetimes"),
            network: setup.seed.stream("network"),
            busy: 0,
            settled: 0,
            until: Millis::INFINITY,
            placed,
        })
    }

    /// Runs until every task has been started or refused, or nothing more can happen to it.
    pub(super) fn run(mut self) -> Result<Outcome, Error> {
        self.begin();
        let mut before = Millis::ZERO;
        while self.settled < self.setup.tasks
            && let Some((now, event)) = self.events.pop()
            && now <= self.until
        {
            let arrived = self.tasks.len() as u64;
            if self.recorder.counts(arrived) && arrived < self.setup.tasks {
                self.recorder.busy(self.busy as f64, now - before);
            }
            before = now;
            self.handle(event)?;
        }
        Ok(self.recorder.outcome(self.setup))
    }

    /// A share U of the slots is busy from the start; what is left of an exponential time is exponential.
    fn begin(&mut self) {
        let lifetime = self.setup.lifetime();
        for at in 0..self.setup.nodes {
            let node = NodeIndex::new(at);
            let host = &mut self.hosts[node.get()];
            for _ in 0..self.setup.slots {
                let is_busy = self.lifetimes.random::<f64>() < self.setup.utilization;
                if is_busy && !self.setup.from_empty {
                    host.former += 1;
                    self.busy += 1;
                    let left = exponential(&mut self.lifetimes, lifetime);
                    self.events.at(left, Event::End(node, None));
                }
            }
            host.former_told = host.former;
            let former = slots(host.former);
            self.pool.committer.observe(node, former, &mut self.placed);
        }
        let gap = self.gap();
        self.events.after(gap, Event::Arrival);
        // Spread over the time in which tasks arrive.
        let span = 1e3 / self.setup.rate_per_s * self.setup.tasks as f64;
        for (count, node) in (1..=self.setup.lost_nodes).zip((0..self.setup.nodes).rev()) {
            let share = f64::from(count) / f64::from(self.setup.lost_nodes + 1);
            let lose = Event::Lose(NodeIndex::new(node));
            self.events.at(Millis::new(span * share), lose);
        }
    }

    fn gap(&mut self) -> Millis {
        exponential(&mut self.arrivals, Millis::new(1e3 / self.setup.rate_per_s))
    }

    fn handle(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Arrival => self.arrive(),
            Event::Mail(mail) => self.deliver(mail),
            Event::Work(node) => self.work(node)?,
            Event::SchedulerPool(step) => self.pool_step(step)?,
            Event::End(node, instance) => self.end(node, instance),
            Event::Lose(node) => self.lose(node),
            Event::Hear(node) => self.hear(node),
        }
        for placed in std::mem::take(&mut self.placed) {
            self.send_to_node(placed);
        }
        Ok(())
    }

    fn arrive(&mut self) {
        let task = self.tasks.len() as u64;
        self.tasks.push(Fate {
            submitted: self.events.now(),
            lifetime: exponential(&mut self.lifetimes, self.setup.lifetime()),
            tries: 0,
            taken: false,
            started: false,
        });
        self.send(Mail::Submit(task));
        if task + 1 < self.setup.tasks {
            let gap = self.gap();
            self.events.after(gap, Event::Arrival);
        } else {
            self.until = self.events.now() + DRAIN.max(self.setup.lifetime() * 20.0);
        }
    }

    fn send(&mut self, mail: Mail) {
        let delay = self.setup.delay;
        if self.setup.duplicate > 0.0 && self.network.random::<f64>() < self.setup.duplicate {
            let late = delay * (20.0 * self.network.random::<f64>());
            self.events.after(delay + late, Event::Mail(mail));
        }
        let mut time = delay;
        while self.setup.loss > 0.0 && self.network.random::<f64>() < self.setup.loss {
            time += delay * RESEND_DELAYS;
        }
        self.events.after(time, Event::Mail(mail));
    }

    fn send_to_node(&mut self, placed: Placed) {
        let (task, _) = task_of(placed.container.id);
        self.recorder.message(task as u64);
        self.send(Mail::Start(placed));
    }

    fn deliver(&mut self, mail: Mail) {
        match mail {
            Mail::Submit(task) => {
                let fate = &mut self.tasks[task as usize];
                if !std::mem::replace(&mut fate.taken, true) {
                    self.recorder.reached_global(task);
                    self.submit(task as usize);
                }
            }
            Mail::Start(placed) => {
                let host = &mut self.hosts[placed.node.get()];
                if host.lost {
                    return;
                }
                host.inbox.push_back(placed);
                if host.inbox.len() == 1 {
                    let cost = self.setup.message_cost;
                    self.events.after(cost, Event::Work(placed.node));
                }
            }
            Mail::Refused(placed) => {
                let former = slots(self.hosts[placed.node.get()].former_told);
                let (id, node) = (placed.container.id, placed.node);
                self.pool
                    .committer
                    .refuse(id, node, former, &mut self.placed);
                self.wake();
            }
            Mail::Ended(id) => {
                self.pool.committer.release(id, &mut self.placed);
            }
            Mail::Former(node, former) => {
                let host = &mut self.hosts[node.get()];
                // A message that was overtaken knows of more than there are.
                host.former_told = host.former_told.min(former);
                let former = slots(host.former_told);
                self.pool.committer.observe(node, former, &mut self.placed);
            }
        }
    }

    /// A task comes to the pre-schedulers, for the first time or because the node of its last try was lost.
    fn submit(&mut self, task: usize) {
        let new = container(task as u64, self.tasks[task].tries);
        match self.pool.committer.submit(new) {
            Ok(Submitted::Queued | Submitted::Known(_)) => self.wake(),
            Err(_) => {
                self.recorder.refused();
                self.settled += 1;
            }
        }
    }

    fn wake(&mut self) {
        let (now, events) = (self.events.now(), &mut self.events);
        self.pool.wake(now, usize::MAX, |at, step| {
            events.at(at, Event::SchedulerPool(step));
        });
    }

    fn pool_step(&mut self, step: Step) -> Result<(), Error> {
        let (now, events) = (self.events.now(), &mut self.events);
        let tell = |at, step| events.at(at, Event::SchedulerPool(step));
        let done = self.pool.step(now, step, tell)?;
        if let Some(done) = done
            && let Verdict::Placed(placed) = done.commit.verdict
        {
            self.send_to_node(placed);
        }
        self.wake();
        Ok(())
    }

    /// A node has worked on a message: it starts the instance, or refuses it.
    fn work(&mut self, node: NodeIndex) -> Result<(), Error> {
        let now = self.events.now();
        let host = &mut self.hosts[node.get()];
        let Some(placed) = host.inbox.pop_front() else {
            return Ok(());
        };
        if !host.inbox.is_empty() {
            let cost = self.setup.message_cost;
            self.events.after(cost, Event::Work(node));
        }
        let id = placed.container.id;
        let (task, tries) = task_of(id);
        let fate = &mut self.tasks[task];
        let key = (id, placed.version.get());
        if host.lost || host.refused.contains(&key) || (fate.started && fate.tries == tries) {
            return Ok(());
        }
        if host.running + host.former >= self.setup.slots {
            host.refused.insert(key);
            self.recorder.message(task as u64);
            self.send(Mail::Refused(placed));
            return Ok(());
        }
        if fate.started {
            return Err(Error::Broken(format!("task {task} was started twice")));
        }
        fate.started = true;
        host.running += 1;
        self.busy += 1;
        self.settled += 1;
        let (latency, lifetime) = (now - fate.submitted, fate.lifetime);
        self.recorder.started(task as u64, Stage::Commit, latency);
        self.events.after(lifetime, Event::End(node, Some(id)));
        Ok(())
    }

    fn end(&mut self, node: NodeIndex, instance: Option<InstanceId>) {
        let host = &mut self.hosts[node.get()];
        if host.lost {
            return;
        }
        self.busy -= 1;
        let mail = match instance {
            Some(id) => {
                host.running -= 1;
                Mail::Ended(id)
            }
            None => {
                host.former -= 1;
                Mail::Former(node, host.former)
            }
        };
        self.send(mail);
    }

    fn lose(&mut self, node: NodeIndex) {
        let host = &mut self.hosts[node.get()];
        host.lost = true;
        self.busy -= u64::from(host.running + host.former);
        let detection = self.setup.delay * DETECTION_DELAYS;
        self.events.after(detection, Event::Hear(node));
    }

    /// Tasks that were sent to a lost node and not started there are tried again.
    fn hear(&mut self, node: NodeIndex) {
        let mut lost = Vec::new();
        self.pool.committer.lose_node(node, &mut lost);
        for container in lost {
            let (task, _) = task_of(container.id);
            let fate = &mut self.tasks[task];
            if !fate.started {
                fate.tries += 1;
                self.submit(task);
            }
        }
    }
}

fn exponential(rng: &mut Rng, mean: Millis) -> Millis {
    mean * -(1.0 - rng.random::<f64>()).ln()
}

const fn slots(count: u32) -> Resources {
    Resources::new(MilliCpu(count as u64), MebiBytes(0))
}

/// The container of a task's `tries`-th try.
fn container(task: u64, tries: u32) -> Container {
    let number = (u128::from(tries) << 64) | u128::from(task);
    Container {
        id: InstanceId::from_uuid(Uuid::from_u128(number)),
        demand: slots(1),
    }
}

/// The task and the try of a container.
fn task_of(id: InstanceId) -> (usize, u32) {
    let number = id.uuid().as_u128();
    (number as u64 as usize, (number >> 64) as u32)
}

fn broken(error: impl std::error::Error) -> Error {
    Error::Broken(error.to_string())
}
