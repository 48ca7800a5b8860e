//! A slow twin of the state machine: no heaps, no sums kept, everything looked up again at each event.
//!
//! It knows no failures, no limits and no resources, and serves clusters of one or two slots, for which its way to find the level
//! of the queue rounds nowhere. Times are whole eighths, speeds powers of two, so both must agree to the last bit.

use std::collections::BTreeMap;
use std::sync::Arc;

use fdn_core::Millis;
use fdn_scheduling::dag::{Dag, TaskIndex, Transfer};
use fdn_scheduling::online::{Choice, Order, Settings};
use fdn_scheduling::place::{Link, Network, Speed};
use proptest::prelude::*;

use super::world::{Outside, Start, World};
use crate::instance::{Raw, ms, raw};

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Blocked,
    Travels(usize),
    Queued(usize, usize),
    Runs(usize, usize, f64),
    Done(usize, f64),
}

/// A job, and of it nothing (it arrives) or a task that arrives (true) or ends.
type Happens = (usize, Option<(usize, bool)>);

struct Twin {
    settings: Settings,
    speeds: Vec<f64>,
    slots: Vec<Vec<f64>>,
    idle_since: Vec<Vec<f64>>,
    jobs: Vec<(Arc<Dag>, Vec<Millis>, Vec<State>)>,
    scores: Vec<Vec<f64>>,
    entries: usize,
    turn: usize,
    events: BTreeMap<(Millis, usize), Happens>,
    count: usize,
    starts: Vec<Start>,
}

impl Twin {
    fn later(&mut self, at: f64, what: Happens) {
        self.events.insert((ms(at), self.count), what);
        self.count += 1;
    }

    fn time(&self, job: usize, task: usize, p: usize) -> f64 {
        self.jobs[job].0.task(TaskIndex::new(task)).work.get() / self.speeds[p]
    }

    fn play(&mut self) {
        while let Some(((now, _), (job, what))) = self.events.pop_first() {
            let now = now.get();
            match what {
                None => self.bind(now, job, self.jobs[job].0.entry().get()),
                Some((task, true)) => {
                    let State::Travels(p) = self.jobs[job].2[task] else {
                        panic!("travels")
                    };
                    if self.jobs[job].0.virtual_entry() == Some(TaskIndex::new(task)) {
                        self.end(now, job, task, p);
                    } else {
                        self.queue(job, task, p);
                    }
                }
                Some((task, false)) => {
                    let State::Runs(p, slot, _) = self.jobs[job].2[task] else {
                        panic!("runs")
                    };
                    self.idle_since[p][slot] = now;
                    self.slots[p][slot] = f64::NAN;
                    self.end(now, job, task, p);
                }
            }
            for p in 0..self.speeds.len() {
                self.start(now, p);
            }
        }
    }

    fn queue(&mut self, job: usize, task: usize, p: usize) {
        self.entries += 1;
        self.jobs[job].2[task] = State::Queued(p, self.entries);
    }

    fn end(&mut self, now: f64, job: usize, task: usize, p: usize) {
        self.jobs[job].2[task] = State::Done(p, now);
        let dag = Arc::clone(&self.jobs[job].0);
        let done = |states: &[State], t: TaskIndex| matches!(states[t.get()], State::Done(..));
        let mut children: Vec<usize> = dag
            .children(TaskIndex::new(task))
            .map(|(child, _)| child)
            .filter(|child| dag.parents(*child).all(|(a, _)| done(&self.jobs[job].2, a)))
            .map(TaskIndex::get)
            .collect();
        children.sort_unstable();
        if matches!(self.settings.order, Order::JobArrival | Order::LeastWork) {
            children.sort_by(|a, b| self.scores[job][*b].total_cmp(&self.scores[job][*a]));
        }
        for child in children {
            self.bind(now, job, child);
        }
    }

    fn bound(&self, p: usize) -> impl Iterator<Item = (usize, usize, State)> + '_ {
        self.jobs
            .iter()
            .enumerate()
            .flat_map(move |(job, (_, _, states))| {
                let here = move |(task, state): (usize, &State)| match state {
                    State::Travels(at) | State::Queued(at, _) if *at == p => {
                        Some((job, task, *state))
                    }
                    State::Runs(at, ..) if *at == p => Some((job, task, *state)),
                    _ => None,
                };
                states.iter().enumerate().filter_map(here)
            })
    }

    fn pending(&self, p: usize) -> f64 {
        self.bound(p)
            .filter(|(_, _, state)| !matches!(state, State::Runs(..)))
            .map(|(job, task, _)| self.time(job, task, p))
            .sum()
    }

    fn left(&self, now: f64, p: usize) -> Vec<f64> {
        let left = |until: &f64| {
            if until.is_nan() {
                0.0
            } else {
                (until - now).max(0.0)
            }
        };
        let mut left: Vec<f64> = self.slots[p].iter().map(left).collect();
        left.sort_by(f64::total_cmp);
        left
    }

    /// The least over all numbers of slots of what they would have to do each.
    fn level(&self, now: f64, p: usize) -> f64 {
        let left = self.left(now, p);
        (1..=left.len())
            .map(|m| (self.pending(p) + left[..m].iter().sum::<f64>()) / m as f64)
            .fold(f64::INFINITY, f64::min)
    }

    fn bind(&mut self, now: f64, job: usize, task: usize) {
        let (dag, distance, states) = &self.jobs[job];
        let index = TaskIndex::new(task);
        let ready = |p: usize| {
            if index == dag.entry() {
                return now + distance[p].get();
            }
            dag.parents(index)
                .fold(0.0, |ready: f64, (parent, transfer)| {
                    let State::Done(from, end) = states[parent.get()] else {
                        panic!("done")
                    };
                    let Transfer::Fixed(time) = transfer else {
                        return ready.max(end);
                    };
                    ready.max(if from == p { end } else { end + time.get() })
                })
        };
        let home = |p: usize| {
            index != dag.entry()
                && dag.parents(index).all(
                    |(parent, _)| matches!(states[parent.get()], State::Done(from, _) if from == p),
                )
        };
        let n = self.speeds.len();
        let least = |key: &dyn Fn(usize) -> f64| {
            (0..n).fold(0, |best, p| if key(p) < key(best) { p } else { best })
        };
        let p = match self.settings.choice {
            Choice::EarliestFinish => {
                least(&|p| (now + self.level(now, p)).max(ready(p)) + self.time(job, task, p))
            }
            Choice::LeastQueued => {
                least(&|p| self.pending(p) + self.left(now, p).iter().sum::<f64>())
            }
            Choice::Nearest => least(&|p| distance[p].get()),
            Choice::RoundRobin => self.turn % n,
        };
        self.turn += usize::from(self.settings.choice == Choice::RoundRobin);
        let (here, at) = (home(p), ready(p).max(now));
        self.jobs[job].2[task] = State::Travels(p);
        if here {
            self.queue(job, task, p);
        } else {
            self.later(at, (job, Some((task, true))));
        }
    }

    fn remaining(&self, job: usize) -> f64 {
        let (dag, _, states) = &self.jobs[job];
        let open = |task: &TaskIndex| !matches!(states[task.get()], State::Done(..));
        dag.indices()
            .filter(open)
            .map(|task| dag.task(task).work.get())
            .sum()
    }

    fn start(&mut self, now: f64, p: usize) {
        loop {
            let idle = (0..self.slots[p].len()).filter(|s| self.slots[p][*s].is_nan());
            let slot =
                idle.min_by(|a, b| self.idle_since[p][*a].total_cmp(&self.idle_since[p][*b]));
            let key = |job: usize, task: usize, entry: usize| {
                let work = self.jobs[job].0.task(TaskIndex::new(task)).work.get();
                let score = -self.scores[job][task];
                match self.settings.order {
                    Order::Arrival | Order::LongestRemaining => (0.0, 0, 0.0, entry),
                    Order::LargestTask => (0.0, 0, -work, entry),
                    Order::JobArrival => (0.0, job, score, task),
                    Order::LeastWork => (self.remaining(job), job, score, task),
                }
            };
            let first = self
                .bound(p)
                .filter_map(|(job, task, state)| match state {
                    State::Queued(_, entry) => Some((key(job, task, entry), job, task)),
                    _ => None,
                })
                .min_by(|(a, ..), (b, ..)| a.partial_cmp(b).expect("numbers"));
            let (Some(slot), Some((_, job, task))) = (slot, first) else {
                return;
            };
            let until = now + self.time(job, task, p);
            self.slots[p][slot] = until;
            self.jobs[job].2[task] = State::Runs(p, slot, until);
            self.later(until, (job, Some((task, false))));
            let slot = u32::try_from(slot).expect("few slots");
            self.starts
                .push((ms(now), job, TaskIndex::new(task), p, slot));
        }
    }
}

fn scores(dag: &Dag, speeds: &[f64]) -> Vec<f64> {
    let mut scores = vec![0.0; dag.len()];
    for task in dag.topological().iter().rev() {
        let tail = dag
            .children(*task)
            .fold(0.0, |tail: f64, (child, transfer)| {
                let Transfer::Fixed(time) = transfer else {
                    return tail.max(scores[child.get()]);
                };
                tail.max(time.get() + scores[child.get()])
            });
        let times = speeds
            .iter()
            .map(|speed| dag.task(*task).work.get() / speed);
        scores[task.get()] = times.sum::<f64>() / speeds.len() as f64 + tail;
    }
    scores
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_twin_starts_the_same_containers_at_the_same_times(
        jobs in prop::collection::vec((0u16..200, raw(7, 1)), 1..6),
        clusters in prop::collection::vec((0i32..3, 1usize..3, 0u16..64), 1..4),
        choice in prop::sample::select(&[Choice::EarliestFinish, Choice::RoundRobin, Choice::LeastQueued, Choice::Nearest][..]),
        order in prop::sample::select(&[Order::Arrival, Order::JobArrival, Order::LeastWork, Order::LargestTask][..]),
    ) {
        let settings = Settings { choice, order, ..Settings::default() };
        let speeds: Vec<f64> = clusters.iter().map(|(power, ..)| 2f64.powi(*power)).collect();
        let cluster = |(p, (_, slots, _)): (usize, &(i32, usize, u16))| {
            let id = format!("c{p}").parse().expect("a label");
            fdn_scheduling::place::Cluster::new(id, Speed::new(speeds[p]), *slots)
        };
        let places: Vec<_> = clusters.iter().enumerate().map(cluster).collect();
        let distance: Vec<Millis> = clusters.iter().map(|(.., d)| ms(f64::from(*d) / 8.0)).collect();
        let mut dags: Vec<(f64, Arc<Dag>)> = jobs.iter().map(|(at, raw)| {
            let raw = Raw { data: false, ..raw.clone() };
            (f64::from(*at) / 8.0, Arc::new(raw.build().dag))
        }).collect();
        dags.sort_by(|a, b| a.0.total_cmp(&b.0));

        let mut world = World::new(settings, &places, &Network::uniform(places.len(), Link::INSTANT));
        let mut twin = Twin {
            settings,
            slots: clusters.iter().map(|(_, slots, _)| vec![f64::NAN; *slots]).collect(),
            idle_since: clusters.iter().map(|(_, slots, _)| vec![0.0; *slots]).collect(),
            scores: dags.iter().map(|(_, dag)| scores(dag, &speeds)).collect(),
            jobs: dags.iter().map(|(_, dag)| (Arc::clone(dag), distance.clone(), vec![State::Blocked; dag.len()])).collect(),
            speeds,
            entries: 0,
            turn: 0,
            events: BTreeMap::new(),
            count: 0,
            starts: Vec::new(),
        };
        for (job, (at, dag)) in dags.into_iter().enumerate() {
            twin.later(at, (job, None));
            world.at(ms(at), Outside::Job(dag, distance.clone()));
        }
        world.play();
        twin.play();
        prop_assert_eq!(world.starts, twin.starts);
    }
}
