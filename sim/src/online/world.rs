//! Time goes by, and the state machine decides.

use std::sync::Arc;

use fdn_core::Millis;
use fdn_scheduling::dag::{Dag, TaskIndex};
use fdn_scheduling::online::{
    Action, Delivery, Event, Handled, Input, JobRef, Online, RunRef, Settings,
};
use fdn_scheduling::place::ClusterIndex;

use super::{Change, End, Ran, Scenario, Schedule};
use crate::Error;
use crate::events::Events;

/// What happens.
#[derive(Clone, Copy, Debug)]
enum Happens {
    Sent(usize),
    Delivered(RunRef),
    Ended(usize),
    Changed(ClusterIndex, Change),
}

/// Where a task of a job is, as the world knows it.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    cluster: Option<ClusterIndex>,
    finish: Millis,
    /// The share of its work that is done.
    done: f64,
}

/// A run that may be under way.
#[derive(Clone, Copy, Debug)]
struct Running {
    run: RunRef,
    ran: Ran,
    over: bool,
}

struct World<'a> {
    scenario: &'a Scenario,
    delivery: Delivery,
    machine: Online<Arc<Dag>>,
    events: Events<Happens>,
    /// By place: the number of the job there.
    jobs: Vec<usize>,
    /// By job, by task.
    known: Vec<Vec<Known>>,
    runs: Vec<Running>,
    /// By cluster, by slot: the run there.
    slots: Vec<Vec<Option<usize>>>,
    schedule: Schedule,
}

/// Runs a scenario under a policy, to the end.
///
/// # Errors
/// When the scenario and the clusters do not fit together, or a rule is broken.
pub fn run(scenario: &Scenario, settings: Settings) -> Result<Schedule, Error> {
    World::new(scenario, settings)?.play()
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, settings: Settings) -> Result<Self, Error> {
        let machine = Online::new(settings, &scenario.clusters, scenario.network.clone())
            .map_err(|error| Error::Usage(error.to_string()))?;
        let mut events = Events::default();
        for (at, cluster, change) in &scenario.changes {
            events.at(*at, Happens::Changed(*cluster, *change));
        }
        for (number, job) in scenario.jobs.iter().enumerate() {
            events.at(job.at, Happens::Sent(number));
        }
        let slots = scenario.clusters.iter();
        Ok(Self {
            delivery: settings.delivery,
            machine,
            events,
            jobs: Vec::new(),
            known: vec![Vec::new(); scenario.jobs.len()],
            runs: Vec::new(),
            slots: slots.map(|c| vec![None; c.slots.len()]).collect(),
            schedule: Schedule {
                latency: vec![None; scenario.jobs.len()],
                ..Schedule::default()
            },
            scenario,
        })
    }

    fn play(mut self) -> Result<Schedule, Error> {
        let mut actions = Vec::new();
        while let Some((now, happens)) = self.events.pop() {
            match happens {
                Happens::Sent(number) => self.send(now, number, &mut actions)?,
                Happens::Delivered(run) => {
                    let handled = self.machine.apply(now, Event::Delivered(run), &mut actions);
                    let number = self.jobs[run.job.place()];
                    let entry = self.scenario.jobs[number].dag.virtual_entry();
                    if handled == Handled::Applied && entry == Some(run.task) {
                        self.known[number][run.task.get()].finish = now;
                    }
                }
                Happens::Ended(at) => self.end(now, at, &mut actions),
                Happens::Changed(cluster, change) => {
                    self.change(now, cluster, change, &mut actions);
                }
            }
            self.carry_out(now, &mut actions)?;
        }
        if self.machine.jobs() > 0 {
            let left = self.machine.jobs();
            return Err(Error::Broken(format!("{left} jobs never ended")));
        }
        Ok(self.schedule)
    }

    fn send(&mut self, now: Millis, number: usize, actions: &mut Vec<Action>) -> Result<(), Error> {
        let job = &self.scenario.jobs[number];
        self.known[number] = vec![Known::default(); job.dag.len()];
        let taken = self
            .machine
            .arrive(now, Arc::clone(&job.dag), &job.distance, actions);
        if let Ok(job) = taken {
            self.jobs.resize(self.jobs.len().max(job.place() + 1), 0);
            self.jobs[job.place()] = number;
            self.schedule.latency[number] = Some(Millis::ZERO);
        }
        Ok(())
    }

    fn end(&mut self, now: Millis, at: usize, actions: &mut Vec<Action>) {
        let Running { run, ran, over } = self.runs[at];
        if over {
            return;
        }
        self.close(now, at, End::Finished);
        let known = &mut self.known[ran.job][ran.task.get()];
        (known.finish, known.done) = (now, 1.0);
        if self.scenario.jobs[ran.job].dag.is_exit(ran.task) {
            let answered = now + self.scenario.leg(ran.job, ran.task, ran.cluster);
            let latency = answered - self.scenario.jobs[ran.job].at;
            let last = &mut self.schedule.latency[ran.job];
            *last = last.map(|last| last.max(latency));
        }
        let _ = self.machine.apply(now, Event::Finished(run), actions);
    }

    fn change(
        &mut self,
        now: Millis,
        cluster: ClusterIndex,
        change: Change,
        actions: &mut Vec<Action>,
    ) {
        let event = match change {
            Change::Lost => {
                for slot in 0..self.slots[cluster.get()].len() {
                    if let Some(at) = self.slots[cluster.get()][slot] {
                        self.close(now, at, End::Lost);
                    }
                }
                Event::Lost(cluster)
            }
            Change::Drained => Event::Drained(cluster),
            Change::Returned => Event::Returned(cluster),
        };
        let _ = self.machine.apply(now, event, actions);
    }

    /// A run is over, in whichever way.
    fn close(&mut self, now: Millis, at: usize, how: End) {
        let running = &mut self.runs[at];
        running.over = true;
        running.ran.end = now;
        running.ran.how = how;
        let ran = running.ran;
        self.slots[ran.cluster.get()][ran.slot as usize] = None;
        self.schedule.runs.push(ran);
        let known = &mut self.known[ran.job][ran.task.get()];
        match how {
            End::Paused => {
                let whole = self.scenario.duration(ran.job, ran.task, ran.cluster);
                known.done += (ran.end - ran.start).get() / whole.get();
            }
            End::Lost => known.done = 0.0,
            End::Finished => {}
        }
    }

    fn carry_out(&mut self, now: Millis, actions: &mut Vec<Action>) -> Result<(), Error> {
        for action in actions.drain(..) {
            match action {
                Action::Bind {
                    run,
                    cluster,
                    input,
                } => self.bind(now, run, cluster, input),
                Action::Start {
                    run, cluster, slot, ..
                } => self.start(now, run, cluster, slot)?,
                Action::Preempt { cluster, slot, .. } | Action::Stop { cluster, slot, .. } => {
                    let at = self.slots[cluster.get()][slot as usize].ok_or_else(|| {
                        Error::Broken(format!("nothing runs in slot {slot} of cluster {cluster}"))
                    })?;
                    self.close(now, at, End::Paused);
                }
                Action::Strand { .. } | Action::Done(_) => {}
            }
        }
        Ok(())
    }

    fn bind(&mut self, now: Millis, run: RunRef, cluster: ClusterIndex, input: Input) {
        let number = self.number(run.job);
        self.schedule.bindings += 1;
        let known = &mut self.known[number][run.task.get()];
        (known.cluster, known.done) = (Some(cluster), 0.0);
        if input == Input::Here {
            return;
        }
        let scenario = self.scenario;
        let at = if run.task == scenario.jobs[number].dag.entry() {
            let first = run.attempt == 0;
            let sent = if first { scenario.jobs[number].at } else { now };
            scenario.request(number, sent, cluster)
        } else {
            self.data(now, number, run.task, cluster)
        };
        self.events.at(at, Happens::Delivered(run));
    }

    /// When a task's data is on a cluster: data that is asked for only now leaves now.
    fn data(&self, now: Millis, number: usize, task: TaskIndex, cluster: ClusterIndex) -> Millis {
        self.scenario.data(number, task, cluster, |parent| {
            let known = self.known[number][parent.get()];
            let from = known.cluster.expect("a parent that ended was bound");
            match self.delivery {
                Delivery::Pulled if from != cluster => (from, now),
                Delivery::Pulled | Delivery::Pushed => (from, known.finish),
            }
        })
    }

    fn start(
        &mut self,
        now: Millis,
        run: RunRef,
        cluster: ClusterIndex,
        slot: u32,
    ) -> Result<(), Error> {
        let job = self.number(run.job);
        let held = &mut self.slots[cluster.get()][slot as usize];
        if held.is_some() {
            return Err(Error::Broken(format!(
                "slot {slot} of cluster {cluster} is taken twice"
            )));
        }
        *held = Some(self.runs.len());
        let whole = self.scenario.duration(job, run.task, cluster);
        let left = 1.0 - self.known[job][run.task.get()].done;
        self.events
            .at(now + whole * left.max(0.0), Happens::Ended(self.runs.len()));
        self.runs.push(Running {
            run,
            ran: Ran {
                job,
                task: run.task,
                cluster,
                slot,
                start: now,
                end: now,
                how: End::Finished,
            },
            over: false,
        });
        Ok(())
    }

    fn number(&self, job: JobRef) -> usize {
        self.jobs[job.place()]
    }
}
