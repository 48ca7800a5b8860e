//! The world: pre-schedulers at work side by side, one queue to the committer, containers that come to an end.

use std::collections::VecDeque;

use fdn_core::{InstanceId, MebiBytes, MilliCpu, Millis, Resources};
use fdn_scheduling::commit::{
    Commit, Committer, Container, Entry, LeastRequested, List, Placed, PreScheduler, Score,
    Settings, Verdict, View, Whereabouts, serial,
};
use rand::RngExt;
use uuid::Uuid;

use super::outcome::{Outcome, Recorder};
use super::setup::{Load, Setup, Start};
use crate::Error;
use crate::events::Events;
use crate::seed::Rng;

/// Every so many commits the nodes are looked at.
const SAMPLE_EVERY: u64 = 20;

#[derive(Debug)]
enum Event {
    /// A serial scheduler places a container.
    Serial,
    /// A pre-scheduler begins for the first time.
    Begins(usize),
    /// A pre-scheduler has made its list.
    Listed(usize),
    /// The committer is through with the list at hand.
    Committed,
    /// The committer is through with a full scan.
    Scanned,
    /// A container ends.
    Ends(InstanceId),
}

/// A pre-scheduler and the list it is making.
#[derive(Debug)]
struct Worker {
    scheduler: PreScheduler<LeastRequested>,
    view: View,
    rng: Rng,
    list: List,
    read: Millis,
}

/// A list on the way to the committer.
#[derive(Debug)]
struct UnderWay {
    list: List,
    read: Millis,
}

const fn slots(count: u32) -> Resources {
    Resources::new(MilliCpu(count as u64), MebiBytes(0))
}

#[derive(Debug)]
pub(super) struct World<'a> {
    setup: &'a Setup,
    events: Events<Event>,
    committer: Committer<LeastRequested>,
    workers: Vec<Worker>,
    idle: VecDeque<usize>,
    queue: VecDeque<UnderWay>,
    at_hand: Option<UnderWay>,
    scanning: bool,
    spare: Vec<List>,
    demands: Rng,
    lifetimes: Rng,
    lifetime: f64,
    containers: u128,
    used: u64,
    commits: u64,
    recorder: Option<Recorder>,
    placed: Vec<Placed>,
}

impl<'a> World<'a> {
    pub(super) fn new(setup: &'a Setup) -> Result<Self, Error> {
        setup.validate()?;
        let settings = Settings {
            in_flight_max: setup.in_flight_max.unwrap_or(usize::MAX),
            lease: Millis::INFINITY,
            nodes_max: setup.nodes as usize,
            unplaced_max: usize::MAX,
            containers_max: u32::MAX as usize,
            ..Settings::default()
        };
        let mut committer = Committer::new(settings, LeastRequested).map_err(broken)?;
        let capacity = slots(setup.slots);
        let mut placed = Vec::new();
        for _ in 0..setup.nodes {
            committer.add_node(capacity, &mut placed).map_err(broken)?;
        }
        let worker = |k: u32| Worker {
            scheduler: PreScheduler::new(LeastRequested, setup.choice_of(k)),
            view: View::default(),
            rng: setup.seed.stream(&format!("pre-scheduler {k}")),
            list: List::default(),
            read: Millis::ZERO,
        };
        let mut world = Self {
            setup,
            events: Events::default(),
            committer,
            workers: (0..setup.pre_schedulers).map(worker).collect(),
            idle: VecDeque::new(),
            queue: VecDeque::new(),
            at_hand: None,
            scanning: false,
            spare: Vec::new(),
            demands: setup.seed.stream("demands"),
            lifetimes: setup.seed.stream("lifetimes"),
            lifetime: setup.lifetime().get(),
            containers: 0,
            used: 0,
            commits: 0,
            recorder: None,
            placed,
        };
        if setup.load == Load::Steady {
            world.fill()?;
        }
        Ok(world)
    }

    /// The load that is aimed at, placed serially.
    fn fill(&mut self) -> Result<(), Error> {
        for _ in 0..self.setup.running() as u64 {
            self.place_serially()?;
        }
        Ok(())
    }

    /// Places one container as a serial scheduler would, at once.
    fn place_serially(&mut self) -> Result<(), Error> {
        self.submit()?;
        let Some(assignment) = self.committer.take(self.events.now()) else {
            return Err(Error::Broken("nothing is pending".to_owned()));
        };
        let records = self.committer.store().records();
        let best = serial::best(records, &assignment.container.demand, &LeastRequested);
        let entry = best.map(|node| Entry {
            node,
            version: records[node.get()].version(),
            score: Score::new(0.0),
        });
        let list = List {
            ticket: assignment.ticket,
            entries: entry.into_iter().collect(),
        };
        let commit = self.committer.commit(&list);
        self.record(&commit, false, Millis::ZERO);
        match commit.verdict {
            Verdict::Placed(placed) => self.start(&placed),
            Verdict::Returned | Verdict::Waiting => {
                self.committer
                    .release(assignment.container.id, &mut self.placed);
            }
            Verdict::Ignored => return Err(Error::Broken("a list was ignored".to_owned())),
        }
        Ok(())
    }

    /// Runs, and measures: of a steady load what is behind a fifth of the time; of a filling all, but no more than three times
    /// as long as it should take.
    pub(super) fn run(mut self) -> Result<Outcome, Error> {
        for k in 0..self.workers.len() {
            let share = match self.setup.start {
                Start::Together => 0.0,
                Start::Spread => k as f64 / self.workers.len() as f64,
            };
            self.events.at(self.setup.scoring * share, Event::Begins(k));
        }
        self.measure()
    }

    /// The same for a serial scheduler that places as many containers in the same time, one by one on the nodes as they are.
    pub(super) fn run_serially(mut self) -> Result<Outcome, Error> {
        self.events.after(self.step(), Event::Serial);
        self.measure()
    }

    fn measure(mut self) -> Result<Outcome, Error> {
        let share = |share: f64| self.setup.time() * share;
        let (from, until) = match self.setup.load {
            Load::Filling => (Millis::ZERO, share(3.0)),
            Load::Steady => (share(0.25), share(1.25)),
        };
        while let Some((now, event)) = self.events.pop() {
            if now >= until {
                break;
            }
            if now >= from && self.recorder.is_none() {
                self.recorder = Some(Recorder::default());
            }
            self.handle(event)?;
            if self.is_full() {
                break;
            }
        }
        let recorder = self.recorder.unwrap_or_default();
        let until = self.events.now().min(until);
        Ok(recorder.outcome(until - from, self.setup.slots))
    }

    /// Whether the nodes are as full as they shall become.
    fn is_full(&self) -> bool {
        let goal =
            self.setup.utilization * f64::from(self.setup.nodes) * f64::from(self.setup.slots);
        self.setup.load == Load::Filling && self.used as f64 >= goal
    }

    fn handle(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Serial => {
                self.place_serially()?;
                self.events.after(self.step(), Event::Serial);
            }
            Event::Begins(worker) => self.begin(worker)?,
            Event::Listed(worker) => {
                let list = self.spare.pop().unwrap_or_default();
                let made = &mut self.workers[worker];
                let list = std::mem::replace(&mut made.list, list);
                let read = made.read;
                self.queue.push_back(UnderWay { list, read });
                self.serve();
                self.begin(worker)?;
            }
            Event::Committed => self.commit()?,
            Event::Scanned => {
                self.scanning = false;
                self.serve();
            }
            Event::Ends(id) => {
                self.committer.release(id, &mut self.placed);
                self.start_served();
            }
        }
        Ok(())
    }

    /// How long a serial scheduler may take for a container.
    fn step(&self) -> Millis {
        Millis::new(1e3 / self.setup.rate_per_s())
    }

    fn submit(&mut self) -> Result<(), Error> {
        self.containers += 1;
        let container = Container {
            id: InstanceId::from_uuid(Uuid::from_u128(self.containers)),
            demand: slots(self.demands.random_range(1..=self.setup.demand_max)),
        };
        self.committer.submit(container).map_err(broken)?;
        Ok(())
    }

    /// A pre-scheduler takes the next container, if it may.
    fn begin(&mut self, worker: usize) -> Result<(), Error> {
        if self.committer.count(Whereabouts::Pending) == 0 {
            self.submit()?;
        }
        let now = self.events.now();
        let Some(assignment) = self.committer.take(now) else {
            self.idle.push_back(worker);
            return Ok(());
        };
        let at_work = &mut self.workers[worker];
        at_work.view.read(self.committer.store());
        at_work.read = now;
        at_work.scheduler.list(
            &assignment,
            at_work.view.records(),
            &mut at_work.rng,
            &mut at_work.list,
        );
        self.events.after(self.setup.scoring, Event::Listed(worker));
        Ok(())
    }

    /// The committer takes the next list, if it has none at hand.
    fn serve(&mut self) {
        if self.at_hand.is_some() || self.scanning {
            return;
        }
        let Some(next) = self.queue.pop_front() else {
            return;
        };
        let changed = next
            .list
            .entries
            .iter()
            .filter(|entry| self.has_changed(entry));
        let cost = self.setup.list_cost + self.setup.changed_cost * changed.count() as f64;
        self.events.after(cost, Event::Committed);
        self.at_hand = Some(next);
    }

    fn has_changed(&self, entry: &Entry) -> bool {
        let record = self.committer.store().get(entry.node);
        record.is_none_or(|record| record.version() != entry.version)
    }

    fn commit(&mut self) -> Result<(), Error> {
        let Some(UnderWay { list, read }) = self.at_hand.take() else {
            return Err(Error::Broken("the committer has no list".to_owned()));
        };
        let top_changed = list
            .entries
            .first()
            .is_some_and(|top| self.has_changed(top));
        let commit = self.committer.commit(&list);
        self.spare.push(list);
        let age = self.events.now() - read;
        self.record(&commit, top_changed, age);
        if let Verdict::Placed(placed) = commit.verdict {
            self.start(&placed);
        }
        if commit.scanned {
            // Scoring all nodes takes the committer as long as a pre-scheduler.
            self.scanning = true;
            self.events.after(self.setup.scoring, Event::Scanned);
        }
        self.serve();
        if let Some(worker) = self.idle.pop_front() {
            self.begin(worker)?;
        }
        Ok(())
    }

    fn record(&mut self, commit: &Commit, top_changed: bool, age: Millis) {
        self.commits += 1;
        if let Some(recorder) = &mut self.recorder {
            recorder.list(commit, top_changed, age);
            if self.commits.is_multiple_of(SAMPLE_EVERY) {
                recorder.sample(self.committer.store().records());
            }
        }
    }

    fn start(&mut self, placed: &Placed) {
        self.used += placed.container.demand.cpu_milli.get();
        if self.setup.load == Load::Filling {
            return;
        }
        let draw: f64 = self.lifetimes.random();
        let lifetime = Millis::new(-self.lifetime * (1.0 - draw).ln());
        self.events
            .after(lifetime, Event::Ends(placed.container.id));
    }

    /// Containers that waited for room have got it.
    fn start_served(&mut self) {
        for placed in std::mem::take(&mut self.placed) {
            if let Some(recorder) = &mut self.recorder {
                recorder.placed_later();
            }
            self.start(&placed);
        }
    }
}

fn broken(error: impl std::error::Error) -> Error {
    Error::Broken(error.to_string())
}
