//! The world: containers without end for the pre-schedulers, and containers that come to an end.

use fdn_core::{InstanceId, MebiBytes, MilliCpu, Millis, Resources};
use fdn_scheduling::commit::{
    Committer, Container, ContainerState, Entry, LeastRequested, List, Placed, Score, Settings,
    Verdict, serial,
};
use rand::RngExt;
use uuid::Uuid;

use super::outcome::{Outcome, Recorder};
use super::scheduler_pool::{Costs, Done, SchedulerPool, Step};
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
    /// One more pre-scheduler begins.
    Begins,
    /// Pre-schedulers or committer have done something.
    SchedulerPool(Step),
    /// A container ends.
    Ends(InstanceId),
}

const fn slots(count: u32) -> Resources {
    Resources::new(MilliCpu(count as u64), MebiBytes(0))
}

#[derive(Debug)]
pub(super) struct World<'a> {
    setup: &'a Setup,
    events: Events<Event>,
    pool: SchedulerPool,
    demands: Rng,
    lifetimes: Rng,
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
        let mut placed = Vec::new();
        for _ in 0..setup.nodes {
            committer
                .add_node(slots(setup.slots), &mut placed)
                .map_err(broken)?;
        }
        let costs = Costs {
            scoring: setup.scoring,
            list: setup.list_cost,
            changed: setup.changed_cost,
        };
        let worker = |k: u32| {
            let rng = setup.seed.stream(&format!("pre-scheduler {k}"));
            (setup.choice_of(k), rng)
        };
        let workers = (0..setup.pre_schedulers).map(worker);
        let mut world = Self {
            setup,
            events: Events::default(),
            pool: SchedulerPool::new(committer, costs, workers),
            demands: setup.seed.stream("demands"),
            lifetimes: setup.seed.stream("lifetimes"),
            containers: 0,
            used: 0,
            commits: 0,
            recorder: None,
            placed,
        };
        if setup.load == Load::Steady {
            for _ in 0..setup.running() as u64 {
                world.place_serially()?;
            }
        }
        Ok(world)
    }

    /// Places one container as a serial scheduler would, at once.
    fn place_serially(&mut self) -> Result<(), Error> {
        self.submit()?;
        let committer = &mut self.pool.committer;
        let Some(assignment) = committer.take(self.events.now()) else {
            return Err(Error::Broken("nothing is pending".to_owned()));
        };
        let Container { id, demand } = assignment.container;
        let records = committer.store().records();
        let best = serial::best(records, &demand, &LeastRequested);
        let entry = best.map(|node| Entry {
            node,
            version: records[node.get()].version(),
            score: Score::new(0.0),
        });
        let commit = committer.commit(&List {
            ticket: assignment.ticket,
            entries: entry.into_iter().collect(),
        });
        self.record(&Done {
            commit,
            top_changed: false,
            age: Millis::ZERO,
        });
        match commit.verdict {
            Verdict::Placed(placed) => self.start(&placed),
            Verdict::Returned | Verdict::Waiting => {
                self.pool.committer.release(id, &mut self.placed);
            }
            Verdict::Ignored => return Err(Error::Broken("a list was ignored".to_owned())),
        }
        Ok(())
    }

    /// Runs, and measures: of a steady load what is behind a fifth of the time; of a filling all, but no more than three times
    /// as long as it should take.
    pub(super) fn run(mut self) -> Result<Outcome, Error> {
        for k in 0..self.setup.pre_schedulers {
            let share = match self.setup.start {
                Start::Together => 0.0,
                Start::Spread => f64::from(k) / f64::from(self.setup.pre_schedulers),
            };
            self.events.at(self.setup.scoring * share, Event::Begins);
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
            Event::Begins => self.wake()?,
            Event::SchedulerPool(step) => {
                let (now, events) = (self.events.now(), &mut self.events);
                let tell = |at, step| events.at(at, Event::SchedulerPool(step));
                let done = self.pool.step(now, step, tell)?;
                if let Some(done) = done {
                    self.record(&done);
                    if let Verdict::Placed(placed) = done.commit.verdict {
                        self.start(&placed);
                    }
                }
                self.wake()?;
            }
            Event::Ends(id) => {
                self.pool.committer.release(id, &mut self.placed);
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
        self.pool.committer.submit(container).map_err(broken)?;
        Ok(())
    }

    /// A pre-scheduler that has nothing to do takes the next container, if it may: there is always one.
    fn wake(&mut self) -> Result<(), Error> {
        if self.pool.committer.count(ContainerState::Pending) == 0 {
            self.submit()?;
        }
        let (now, events) = (self.events.now(), &mut self.events);
        self.pool
            .wake(now, 1, |at, step| events.at(at, Event::SchedulerPool(step)));
        Ok(())
    }

    fn record(&mut self, done: &Done) {
        self.commits += 1;
        if let Some(recorder) = &mut self.recorder {
            recorder.list(&done.commit, done.top_changed, done.age);
            if self.commits.is_multiple_of(SAMPLE_EVERY) {
                recorder.sample(self.pool.committer.store().records());
            }
        }
    }

    fn start(&mut self, placed: &Placed) {
        self.used += placed.container.demand.cpu_milli.get();
        if self.setup.load == Load::Filling {
            return;
        }
        let draw: f64 = self.lifetimes.random();
        let lifetime = self.setup.lifetime() * -(1.0 - draw).ln();
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
