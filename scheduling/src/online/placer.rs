//! The event-driven policies as placers, for a job on its own.
//!
//! The job runs in a simulated world where everything takes its expected time, and the plan records what happened. So the plan predicts
//! what the policy would do; with other times it would have bound containers otherwise.
//!
//! A pre-empted container has several runs ([`Plan::runs`]); its placement then gives its first start, its last end, and the slot of its
//! last run. There is no report, since the policy does not evaluate every cluster for every task.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fdn_core::{ClusterId, Millis};

use super::machine::Online;
use super::message::{Action, Event, Input, Refused, RunRef};
use super::settings::{Limits, Settings};
use crate::dag::TaskIndex;
use crate::place::{
    Availability, Cluster, ClusterIndex, Detail, Exclusion, Infeasible, Placement, Placer, Plan,
    Planned, Problem, Report, Run,
};

/// A policy of [`Online`] as a placer.
#[derive(Clone, Copy, Debug)]
pub struct EventDriven {
    name: &'static str,
    settings: Settings,
}

impl EventDriven {
    /// A placer with these settings, except for those that the problem determines ([`crate::place::Options`]), under a name.
    #[must_use]
    pub const fn new(name: &'static str, settings: Settings) -> Self {
        Self { name, settings }
    }

    /// First come, first served; clusters in turn.
    #[must_use]
    pub fn fcfs() -> Self {
        Self::new("fcfs", Settings::fcfs())
    }

    /// The largest container first, on the cluster with the least queued work.
    #[must_use]
    pub fn priority() -> Self {
        Self::new("priority", Settings::priority())
    }

    /// The nearest cluster with resources.
    #[must_use]
    pub fn distance() -> Self {
        Self::new("distance", Settings::distance())
    }

    /// Longest remaining time first, pre-emptive.
    #[must_use]
    pub fn lrtf() -> Self {
        Self::new("lrtf", Settings::lrtf())
    }

    /// Late binding by expected finish; queues by arrival of the job, then by score.
    #[must_use]
    pub fn late() -> Self {
        Self::new("late", Settings::late_fifo())
    }
}

impl Placer for EventDriven {
    fn name(&self) -> &'static str {
        self.name
    }

    fn place(&mut self, problem: &Problem<'_>, _: Detail) -> Result<Planned, Infeasible> {
        let settings = Settings {
            hold: problem.options().hold,
            exit_leg: problem.options().exit_leg,
            limits: Limits {
                jobs: 1,
                tasks: usize::MAX,
            },
            ..self.settings
        };
        World::new(problem).run(settings)
    }
}

/// A world in which one job runs and everything takes its expected time.
struct World<'a> {
    problem: &'a Problem<'a>,
    clusters: Vec<Cluster>,
    /// The times of `happens`: by time, then by index.
    events: BinaryHeap<Reverse<(Millis, usize)>>,
    happens: Vec<Event>,
    placements: Vec<Placement>,
    order: Vec<TaskIndex>,
    runs: Vec<Run>,
    /// By task: its last run.
    last_run: Vec<Option<usize>>,
}

impl<'a> World<'a> {
    fn new(problem: &'a Problem<'a>) -> Self {
        let mut clusters = problem.clusters().to_vec();
        for (cluster, barred) in clusters.iter_mut().zip(problem.cluster_exclusions()) {
            if barred.is_some() {
                cluster.availability = Availability::Down;
            }
        }
        let tasks = problem.dag().len();
        Self {
            problem,
            clusters,
            events: BinaryHeap::new(),
            happens: Vec::new(),
            placements: vec![Placement::default(); tasks],
            order: Vec::with_capacity(tasks),
            runs: Vec::new(),
            last_run: vec![None; tasks],
        }
    }

    fn run(mut self, settings: Settings) -> Result<Planned, Infeasible> {
        let problem = self.problem;
        let network = problem.network().clone();
        let mut machine = Online::new(settings, &self.clusters, network)
            .expect("a problem's network joins its clusters");
        self.free_slots_at_their_times();
        let mut actions = Vec::new();
        while let Some(Reverse((at, event))) = self.events.peek().copied()
            && at <= problem.arrival()
        {
            self.events.pop();
            let _ = machine.apply(at, self.happens[event], &mut actions);
        }
        let arrived = machine.arrive(
            problem.arrival(),
            *problem,
            problem.distance(),
            &mut actions,
        );
        if let Err(refused) = arrived {
            return Err(self.refusal(refused));
        }
        self.carry_out(problem.arrival(), &mut actions);
        while let Some(Reverse((now, event))) = self.events.pop() {
            let _ = machine.apply(now, self.happens[event], &mut actions);
            self.carry_out(now, &mut actions);
        }
        self.result()
    }

    fn free_slots_at_their_times(&mut self) {
        for p in 0..self.clusters.len() {
            let available = self.clusters[p].slots.available();
            for (slot, at) in (0..).zip(available).filter(|(_, at)| at.is_finite()) {
                let cluster = ClusterIndex::new(p);
                self.happens_at(at, Event::SlotFreed { cluster, slot });
            }
        }
    }

    fn happens_at(&mut self, at: Millis, event: Event) {
        let number = self.happens.len();
        self.events.push(Reverse((at, number)));
        self.happens.push(event);
    }

    fn carry_out(&mut self, now: Millis, actions: &mut Vec<Action>) {
        for action in actions.drain(..) {
            match action {
                Action::Bind {
                    run,
                    cluster,
                    input,
                } => {
                    self.placements[run.task.get()].cluster = cluster;
                    if let Input::Expected(at) = input {
                        self.happens_at(at, Event::Delivered(run));
                        if self.problem.dag().virtual_entry() == Some(run.task) {
                            self.note_start(run, 0, at);
                            self.note_end(run, at);
                        }
                    }
                }
                Action::Start {
                    run, slot, until, ..
                } => {
                    self.note_start(run, slot, now);
                    self.note_end(run, until);
                    self.happens_at(until, Event::Finished(run));
                }
                Action::Preempt { run, .. } => self.note_end(run, now),
                Action::Stop { .. } | Action::Strand { .. } | Action::Done(_) => {}
            }
        }
    }

    fn note_start(&mut self, run: RunRef, slot: u32, now: Millis) {
        let task = run.task;
        let placement = &mut self.placements[task.get()];
        placement.slot = slot;
        if self.last_run[task.get()].is_none() {
            placement.start = now;
            self.order.push(task);
        }
        self.last_run[task.get()] = Some(self.runs.len());
        self.runs.push(Run {
            task,
            slot,
            start: now,
            finish: now,
        });
    }

    /// Records the end of a run, as far as it is known.
    fn note_end(&mut self, run: RunRef, end: Millis) {
        self.placements[run.task.get()].finish = end;
        if let Some(last) = self.last_run[run.task.get()] {
            self.runs[last].finish = end;
        }
    }

    fn result(mut self) -> Result<Planned, Infeasible> {
        let stranded = self.last_run.iter().position(Option::is_none);
        if let Some(task) = stranded.map(TaskIndex::new) {
            return Err(Infeasible {
                task,
                name: self.problem.dag().task(task).name.clone(),
                clusters: self.excluded(|_| Exclusion::NeverFinishes),
            });
        }
        if self.runs.len() == self.placements.len() {
            self.runs.clear();
        }
        let plan = Plan::new(self.problem, self.placements, self.order).with_runs(self.runs);
        Ok(Planned {
            plan,
            report: Report::default(),
        })
    }

    /// The refusal, with the exclusion of the whole job from a cluster where there is one.
    fn refusal(&self, refused: Refused) -> Infeasible {
        let Refused::Infeasible(mut infeasible) = refused else {
            unreachable!("one job is within the limits, and its problem is consistent")
        };
        let why = infeasible.clusters;
        infeasible.clusters = self.excluded(|p| why[p].1);
        infeasible
    }

    fn excluded(&self, otherwise: impl Fn(usize) -> Exclusion) -> Vec<(ClusterId, Exclusion)> {
        let barred = self.problem.cluster_exclusions();
        let clusters = self.clusters.iter().zip(barred).enumerate();
        clusters
            .map(|(p, (cluster, barred))| {
                (cluster.id.clone(), barred.unwrap_or_else(|| otherwise(p)))
            })
            .collect()
    }
}
