//! How long one decision of event-driven placement takes: `cargo bench -p fdn-scheduling --bench online`.
//!
//! A stream that never ebbs: as many jobs of the shape of the experiments are under way as are wanted, and the next arrives when one
//! ends. A decision is everything about one container: it is bound, its data arrives, it is queued, started and finished. The
//! alternative would be to plan anew whenever a container ends: with Heu-Orche, the job it belongs to, or all that are under way.
//! Both are measured in the same run; the table takes the least of many short passes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fdn_core::Millis;
use fdn_scheduling::dag::Dag;
use fdn_scheduling::online::{Action, Event, Input, Limits, Online, Settings};
use fdn_scheduling::place::{HeuOrche, Placer, Plan, Problem};

#[path = "../tests/it/random.rs"]
mod random;

use random::RandomJob;

/// Tasks of a job.
const TASKS: usize = 30;

/// Different jobs, which come again and again.
const KINDS: u64 = 16;

/// Containers of one pass.
const CONTAINERS: usize = 20_000;

/// Containers of one short pass.
const PASS: usize = 200;

struct Stream<'a> {
    kinds: &'a [RandomJob],
    machine: Online<&'a Dag>,
    events: BinaryHeap<Reverse<(Millis, usize)>>,
    happens: Vec<Event>,
    /// Places in `happens` that are free.
    free: Vec<usize>,
    actions: Vec<Action>,
    arrived: usize,
    done: usize,
    finished: usize,
    now: Millis,
}

impl<'a> Stream<'a> {
    fn new(kinds: &'a [RandomJob], settings: Settings, under_way: usize) -> Self {
        let settings = Settings {
            limits: Limits {
                jobs: usize::MAX,
                tasks: usize::MAX,
            },
            ..settings
        };
        let (clusters, network) = (&kinds[0].clusters, kinds[0].network.clone());
        let mut stream = Self {
            kinds,
            machine: Online::new(settings, clusters, network).expect("consistent"),
            events: BinaryHeap::new(),
            happens: Vec::new(),
            free: Vec::new(),
            actions: Vec::new(),
            arrived: 0,
            done: 0,
            finished: 0,
            now: Millis::ZERO,
        };
        for _ in 0..under_way {
            stream.arrive();
        }
        // Jobs are spread over all their stages before anything is measured.
        stream.run(under_way * TASKS + CONTAINERS);
        stream
    }

    fn arrive(&mut self) {
        let kinds = self.kinds;
        let job = &kinds[self.arrived % kinds.len()];
        self.arrived += 1;
        self.machine
            .arrive(self.now, &job.dag, &job.distance, &mut self.actions)
            .expect("there is room");
        self.carry_out();
    }

    fn carry_out(&mut self) {
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            let (at, event) = match action {
                Action::Bind {
                    run,
                    input: Input::Expected(at),
                    ..
                } => (at, Event::Delivered(run)),
                Action::Start { run, until, .. } => (until, Event::Finished(run)),
                Action::Done(_) => {
                    self.done += 1;
                    continue;
                }
                _ => continue,
            };
            let place = self.free.pop().unwrap_or(self.happens.len());
            if place == self.happens.len() {
                self.happens.push(event);
            } else {
                self.happens[place] = event;
            }
            self.events.push(Reverse((at, place)));
        }
        self.actions = actions;
    }

    /// Until so many more containers have finished.
    fn run(&mut self, containers: usize) {
        let end = self.finished + containers;
        while self.finished < end {
            let Reverse((now, event)) = self.events.pop().expect("the stream never ebbs");
            self.now = now;
            self.free.push(event);
            let event = self.happens[event];
            self.finished += usize::from(matches!(event, Event::Finished(_)));
            let _ = self.machine.apply(now, event, &mut self.actions);
            self.carry_out();
            for _ in 0..std::mem::take(&mut self.done) {
                self.arrive();
            }
        }
    }
}

/// Jobs of different shape on the same clusters.
fn kinds(clusters: usize) -> Vec<RandomJob> {
    (0..KINDS)
        .map(|seed| random::random_job(TASKS, clusters, seed))
        .collect()
}

fn decisions(c: &mut Criterion) {
    let mut group = c.benchmark_group("online");
    group.sample_size(10);
    group.throughput(Throughput::Elements(CONTAINERS as u64));
    for (name, settings) in policies() {
        let kinds = kinds(5);
        let mut stream = Stream::new(&kinds, settings, 100);
        group.bench_function(BenchmarkId::new(name, "5 clusters, 100 jobs"), |b| {
            b.iter(|| stream.run(CONTAINERS));
        });
    }
    group.finish();
}

fn policies() -> [(&'static str, Settings); 3] {
    [
        ("late-fifo", Settings::late_fifo()),
        ("late-least-work", Settings::late_least_work()),
        ("lrtf", Settings::lrtf()),
    ]
}

/// The least of many short passes, which is what the machine can do, whatever else it does at the time; per element, in us.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn least(elements: usize, mut pass: impl FnMut()) -> f64 {
    let timed = |_| {
        let start = Instant::now();
        pass();
        start.elapsed()
    };
    let best: Duration = (0..200).map(timed).min().expect("some passes");
    best.as_secs_f64() * 1e6 / elements as f64
}

/// Beside planning anew, in the same run.
#[expect(clippy::print_stdout, reason = "the table is the result")]
fn beside_planning_anew(_: &mut Criterion) {
    println!("jobs of {TASKS} tasks, least of many passes, us per container");
    println!("policy           clusters   jobs   online  own_job_anew  ratio  all_jobs_anew");
    for clusters in [5, 50] {
        let kinds = kinds(clusters);
        let mut placer = HeuOrche::default();
        let mut plan = Plan::default();
        let anew = least(kinds.len(), || {
            for job in &kinds {
                let problem = Problem::new(&job.dag, &job.clusters, &job.network, &job.distance);
                let problem = problem.expect("consistent");
                placer
                    .place_into(black_box(&problem), &mut plan)
                    .expect("unlimited");
            }
        });
        for (name, settings) in policies() {
            for jobs in [10, 100, 1_000] {
                let mut stream = Stream::new(&kinds, settings, jobs);
                let online = least(PASS, || stream.run(PASS));
                println!(
                    "{name:<15} {clusters:>9} {jobs:>6} {online:>8.2} {anew:>13.1} {:>6.1} {:>14.0}",
                    anew / online,
                    anew * jobs as f64,
                );
            }
        }
    }
}

criterion_group!(benches, decisions, beside_planning_anew);
criterion_main!(benches);
