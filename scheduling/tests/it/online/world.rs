//! A world that plays jobs and failures to the state machine and holds every action against the rules.
//!
//! It keeps its own books from the actions alone: what is bound, running, paused and done, what each slot runs, what each cluster
//! holds. A rule that is broken panics.

use std::collections::BTreeMap;
use std::sync::Arc;

use fdn_core::{Millis, Resources};
use fdn_scheduling::dag::{Dag, TaskIndex, Transfer};
use fdn_scheduling::online::{
    Action, Event, Handled, Input, JobRef, Online, Order, Refused, RunRef, Settings,
};
use fdn_scheduling::place::{Cluster, ClusterIndex, Hold, Network, Speed};

use crate::instance::ms;

/// What is to happen from outside.
#[derive(Clone, Debug)]
pub(crate) enum Outside {
    Job(Arc<Dag>, Vec<Millis>),
    Lost(usize),
    Drained(usize),
    Returned(usize),
    Speed(usize, f64),
    /// Cancels the job that arrived as this.
    Cancel(usize),
}

#[derive(Clone, Debug)]
enum Happens {
    Outside(Outside),
    Machine(Event),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Waiting,
    Bound(usize, Millis),
    Queued(usize),
    Running(usize, u32, Millis),
    Done(usize, Millis),
}

/// A job under way.
#[derive(Clone, Debug)]
struct Job {
    number: usize,
    dag: Arc<Dag>,
    states: Vec<(State, u32)>,
    /// What runs before the last one have done, as shares of the work.
    done: Vec<f64>,
    /// Where each container holds resources.
    holds: Vec<Option<usize>>,
}

/// A start, for comparisons.
pub(crate) type Start = (Millis, usize, TaskIndex, usize, u32);

pub(crate) struct World {
    pub(crate) machine: Online<Arc<Dag>>,
    settings: Settings,
    clusters: Vec<Cluster>,
    network: Network,
    up: Vec<(bool, bool)>,
    events: BTreeMap<(Millis, u64), Happens>,
    count: u64,
    jobs: BTreeMap<JobRef, Job>,
    refs: Vec<Option<JobRef>>,
    slots: Vec<Vec<Option<RunRef>>>,
    /// Every start.
    pub(crate) starts: Vec<Start>,
    /// By job: when it was done.
    pub(crate) done: BTreeMap<usize, Millis>,
    /// Jobs that were refused.
    pub(crate) refused: Vec<(usize, Refused)>,
    /// Each report is given twice, the second time late.
    pub(crate) stutter: bool,
    /// Work that was started, and of it what was not of the job that is first in order.
    pub(crate) preemptions: usize,
}

impl World {
    pub(crate) fn new(settings: Settings, clusters: &[Cluster], network: &Network) -> Self {
        let machine = Online::new(settings, clusters, network.clone()).expect("consistent");
        Self {
            machine,
            settings,
            clusters: clusters.to_vec(),
            network: network.clone(),
            up: vec![(true, true); clusters.len()],
            events: BTreeMap::new(),
            count: 0,
            jobs: BTreeMap::new(),
            refs: Vec::new(),
            slots: clusters.iter().map(|c| vec![None; c.slots.len()]).collect(),
            starts: Vec::new(),
            done: BTreeMap::new(),
            refused: Vec::new(),
            stutter: false,
            preemptions: 0,
        }
    }

    pub(crate) fn at(&mut self, at: Millis, outside: Outside) {
        self.schedule(at, Happens::Outside(outside));
    }

    fn schedule(&mut self, at: Millis, happens: Happens) {
        self.events.insert((at, self.count), happens);
        self.count += 1;
    }

    /// Plays until nothing is left to happen.
    pub(crate) fn play(&mut self) {
        let mut actions = Vec::new();
        while let Some(((now, _), happens)) = self.events.pop_first() {
            match happens {
                Happens::Outside(outside) => self.outside(now, outside, &mut actions),
                Happens::Machine(event) => self.report(now, event, &mut actions),
            }
            for action in actions.drain(..) {
                self.act(now, action);
            }
            self.check_room();
        }
    }

    fn outside(&mut self, now: Millis, outside: Outside, actions: &mut Vec<Action>) {
        let index = ClusterIndex::new;
        let event = match outside {
            Outside::Job(dag, distance) => {
                let number = self.refs.len();
                match self
                    .machine
                    .arrive(now, Arc::clone(&dag), &distance, actions)
                {
                    Ok(job) => self.begin(number, job, dag),
                    Err(refused) => {
                        self.refs.push(None);
                        self.refused.push((number, refused));
                    }
                }
                return;
            }
            Outside::Lost(p) => {
                self.up[p] = (false, false);
                self.lose(p);
                Event::Lost(index(p))
            }
            Outside::Drained(p) => {
                self.up[p].1 = false;
                Event::Drained(index(p))
            }
            Outside::Returned(p) => {
                self.up[p] = (true, true);
                Event::Returned(index(p))
            }
            Outside::Speed(p, speed) => {
                self.change_speed(now, p, speed);
                Event::SpeedChanged(index(p), Speed::new(speed))
            }
            Outside::Cancel(number) => match self.refs.get(number).copied().flatten() {
                Some(job) => Event::Cancelled(job),
                None => return,
            },
        };
        let handled = self.machine.apply(now, event, actions);
        if let Event::Cancelled(job) = event {
            assert_eq!(handled == Handled::Applied, self.jobs.contains_key(&job));
        }
        if let (Event::Cancelled(job), Handled::Applied) = (event, handled) {
            for action in actions.extract_if(.., |a| matches!(a, Action::Stop { .. })) {
                let Action::Stop { run, cluster, slot } = action else {
                    continue;
                };
                assert_eq!(self.slots[cluster.get()][slot as usize].take(), Some(run));
            }
            self.jobs.remove(&job);
        }
    }

    fn begin(&mut self, number: usize, job: JobRef, dag: Arc<Dag>) {
        let m = dag.len();
        let job_state = Job {
            number,
            dag,
            states: vec![(State::Waiting, 0); m],
            done: vec![0.0; m],
            holds: vec![None; m],
        };
        assert!(self.jobs.insert(job, job_state).is_none(), "{job} is taken");
        self.refs.push(Some(job));
    }

    fn report(&mut self, now: Millis, event: Event, actions: &mut Vec<Action>) {
        let expected = self.is_current(event);
        if expected {
            self.note(now, event);
        }
        let handled = self.machine.apply(now, event, actions);
        assert_eq!(handled == Handled::Applied, expected, "{event:?} at {now}");
        if self.stutter && expected && matches!(event, Event::Finished(_) | Event::Delivered(_)) {
            self.schedule(now + ms(3.0), Happens::Machine(event));
        }
    }

    fn is_current(&self, event: Event) -> bool {
        let state = |run: RunRef| {
            let job = self.jobs.get(&run.job)?;
            let (state, attempt) = job.states[run.task.get()];
            (attempt == run.attempt).then_some(state)
        };
        match event {
            Event::Delivered(run) => matches!(state(run), Some(State::Bound(..))),
            Event::Finished(run) => matches!(state(run), Some(State::Running(..))),
            _ => true,
        }
    }

    /// Books what is reported.
    fn note(&mut self, now: Millis, event: Event) {
        let (Event::Delivered(run) | Event::Finished(run)) = event else {
            return;
        };
        let job = self.jobs.get_mut(&run.job).expect("under way");
        let state = &mut job.states[run.task.get()].0;
        *state = match *state {
            State::Bound(p, _) if job.dag.virtual_entry() == Some(run.task) => State::Done(p, now),
            State::Bound(p, _) => State::Queued(p),
            State::Running(p, slot, _) => {
                self.slots[p][slot as usize] = None;
                if self.settings.hold == Hold::Task {
                    job.holds[run.task.get()] = None;
                }
                State::Done(p, now)
            }
            other => panic!("{other:?} is reported on"),
        };
    }

    fn lose(&mut self, p: usize) {
        self.slots[p].iter_mut().for_each(|slot| *slot = None);
        for job in self.jobs.values_mut() {
            for (task, (state, attempt)) in job.states.iter_mut().enumerate() {
                if job.holds[task] == Some(p) {
                    job.holds[task] = None;
                }
                let here = matches!(state, State::Bound(at, _) | State::Queued(at) | State::Running(at, ..) if *at == p);
                if here {
                    (*state, job.done[task]) = (State::Waiting, 0.0);
                    *attempt += 1;
                }
            }
        }
    }

    fn change_speed(&mut self, now: Millis, p: usize, speed: f64) {
        let old = self.clusters[p].speed;
        self.clusters[p].speed = Speed::new(speed);
        let running: Vec<RunRef> = self.slots[p].iter().flatten().copied().collect();
        self.events.retain(|_, happens| {
            !matches!(happens, Happens::Machine(Event::Finished(run)) if running.contains(run))
        });
        for run in running {
            let job = self.jobs.get_mut(&run.job).expect("under way");
            let at = run.task.get();
            let work = job.dag.task(run.task).work;
            if let State::Running(_, _, since) = &mut job.states[at].0 {
                if work > Millis::ZERO {
                    job.done[at] += (now - *since).get() / old.time(work).get();
                }
                *since = now;
            }
            let left = self.clusters[p].speed.time(work).get() * (1.0 - job.done[at]).max(0.0);
            self.schedule(now + ms(left), Happens::Machine(Event::Finished(run)));
        }
    }

    fn act(&mut self, now: Millis, action: Action) {
        match action {
            Action::Bind {
                run,
                cluster,
                input,
            } => self.bind(now, run, cluster.get(), input),
            Action::Start {
                run, cluster, slot, ..
            } => self.start(now, run, cluster.get(), slot),
            Action::Preempt { run, cluster, slot } => {
                assert_eq!(self.settings.order, Order::LongestRemaining);
                self.preemptions += 1;
                assert_eq!(self.slots[cluster.get()][slot as usize].take(), Some(run));
                let job = self.jobs.get_mut(&run.job).expect("under way");
                let at = run.task.get();
                let (state, attempt) = &mut job.states[at];
                let State::Running(p, _, since) = *state else {
                    panic!("{run:?} does not run")
                };
                let whole = self.clusters[p].speed.time(job.dag.task(run.task).work);
                job.done[at] += (now - since).get() / whole.get();
                *state = State::Queued(p);
                *attempt += 1;
            }
            Action::Strand { job, task } => {
                let job = &self.jobs[&job];
                assert_eq!(job.states[task.get()].0, State::Waiting);
            }
            Action::Done(job) => {
                let job = self.jobs.remove(&job).expect("was under way");
                let done = |(state, _): &(State, u32)| matches!(state, State::Done(..));
                assert!(job.states.iter().all(done), "{:?}", job.states);
                assert_eq!(self.done.insert(job.number, now), None);
            }
            Action::Stop { .. } => panic!("nothing was cancelled"),
        }
    }

    fn bind(&mut self, now: Millis, run: RunRef, p: usize, input: Input) {
        assert!(self.up[p].1, "bound to a cluster that takes no work");
        let job = self.jobs.get(&run.job).expect("under way");
        let (state, attempt) = job.states[run.task.get()];
        assert_eq!((state, attempt), (State::Waiting, run.attempt));
        let mut ready = now;
        let mut here = run.task != job.dag.entry();
        for (parent, transfer) in job.dag.parents(run.task) {
            let State::Done(from, end) = job.states[parent.get()].0 else {
                panic!("bound before its parent is done")
            };
            if from != p {
                here = false;
                let omega = match transfer {
                    Transfer::Fixed(time) => time,
                    Transfer::Data(size) => self.network.time(from, p, size.as_bytes()),
                };
                ready = ready.max(end + omega);
            }
        }
        assert_eq!(here, input == Input::Here);
        let state = match input {
            Input::Here => State::Queued(p),
            Input::Expected(at) => {
                assert!(at >= ready, "data is expected before it can be there");
                self.schedule(at, Happens::Machine(Event::Delivered(run)));
                State::Bound(p, ready)
            }
        };
        let job = self.jobs.get_mut(&run.job).expect("under way");
        job.states[run.task.get()].0 = state;
        job.done[run.task.get()] = 0.0;
        if self.settings.hold == Hold::Job {
            job.holds[run.task.get()] = Some(p);
        }
    }

    fn start(&mut self, now: Millis, run: RunRef, p: usize, slot: u32) {
        assert!(self.up[p].0, "started on a cluster that is lost");
        let job = self.jobs.get_mut(&run.job).expect("under way");
        let at = run.task.get();
        assert_eq!(job.states[at], (State::Queued(p), run.attempt));
        assert_eq!(
            self.slots[p][slot as usize].replace(run),
            None,
            "slot taken"
        );
        job.states[at].0 = State::Running(p, slot, now);
        job.holds[at] = Some(p);
        self.starts.push((now, job.number, run.task, p, slot));
        let whole = self.clusters[p].speed.time(job.dag.task(run.task).work);
        let left = whole.get() * (1.0 - job.done[at]).max(0.0);
        self.schedule(now + ms(left), Happens::Machine(Event::Finished(run)));
    }

    /// No cluster holds more than it has, and none is idle beside a queue but for want of resources.
    fn check_room(&self) {
        for (p, cluster) in self.clusters.iter().enumerate() {
            let mut held = Resources::default();
            let mut waits = None;
            for job in self.jobs.values() {
                for (task, holds) in job.holds.iter().enumerate() {
                    if *holds == Some(p) {
                        let demand = &job.dag.task(TaskIndex::new(task)).demand;
                        held = held.saturating_add(demand);
                    }
                    if job.states[task].0 == State::Queued(p) {
                        waits = Some(task);
                    }
                }
            }
            assert!(held.fits(&cluster.free), "{} holds {held}", cluster.id);
            let idle = self.slots[p].iter().any(Option::is_none);
            let plenty = cluster.free == Resources::UNLIMITED;
            assert!(
                !(idle && plenty && self.up[p].0 && waits.is_some()),
                "{} idles",
                cluster.id
            );
        }
    }
}
