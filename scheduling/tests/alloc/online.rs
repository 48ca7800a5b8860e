//! Event-driven placement allocates nothing per decision: once places, queues and buffers are warm, a stream of jobs, binding,
//! starting and finishing, passes without the allocator being asked. So do a cluster's loss and its return.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use fdn_core::{MebiBytes, MilliCpu, Millis, Resources};
use fdn_scheduling::dag::{Dag, DagBuilder, TaskIndex, Transfer};
use fdn_scheduling::online::{Action, Event, Input, Online, Order, Settings, Starvation};
use fdn_scheduling::place::{Cluster, ClusterIndex, Hold, Link, Network, Speed};

use crate::counting::allocations;

/// A ladder: two tasks side by side, each wanting both of the step before.
fn job(steps: usize) -> Arc<Dag> {
    let mut builder = DagBuilder::new();
    let demand = Resources::new(MilliCpu(10), MebiBytes(16));
    let first = builder.task("first", Millis::new(3.0), demand);
    let mut above = vec![first];
    for step in 0..steps {
        let work = |side: usize| Millis::new((step * 7 + side * 5) as f64 % 11.0 + 1.0);
        let next: Vec<TaskIndex> = (0..2)
            .map(|side| builder.task(format!("{step}.{side}"), work(side), demand))
            .collect();
        for from in &above {
            for to in &next {
                builder.edge(*from, *to, Transfer::Fixed(Millis::new(2.0)));
            }
        }
        above = next;
    }
    Arc::new(builder.build().expect("a DAG"))
}

struct Stream {
    machine: Online<Arc<Dag>>,
    jobs: Vec<Arc<Dag>>,
    distance: Vec<Millis>,
    events: BinaryHeap<Reverse<(Millis, usize)>>,
    happens: Vec<Event>,
    actions: Vec<Action>,
}

impl Stream {
    fn new(settings: Settings) -> Self {
        let room = Resources::new(MilliCpu(1 << 20), MebiBytes(1 << 20));
        let clusters: Vec<Cluster> = (0..3u8)
            .map(|p| {
                let id = format!("c{p}").parse().expect("a label");
                Cluster::new(id, Speed::new(f64::from(p) + 1.0), 2).with_free(room)
            })
            .collect();
        Self {
            machine: Online::new(settings, &clusters, Network::uniform(3, Link::INSTANT))
                .expect("consistent"),
            jobs: (0..40).map(|n| job(3 + n * 5 % 13)).collect(),
            distance: [1.0, 4.0, 9.0].map(Millis::new).to_vec(),
            events: BinaryHeap::with_capacity(1 << 14),
            happens: Vec::with_capacity(1 << 14),
            actions: Vec::with_capacity(1 << 14),
        }
    }

    fn later(&mut self, at: Millis, event: Event) {
        self.events.push(Reverse((at, self.happens.len())));
        self.happens.push(event);
    }

    fn carry_out(&mut self) {
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            match action {
                Action::Bind {
                    run,
                    input: Input::Expected(at),
                    ..
                } => self.later(at, Event::Delivered(run)),
                Action::Start { run, until, .. } => self.later(until, Event::Finished(run)),
                _ => {}
            }
        }
        self.actions = actions;
    }

    /// All jobs, one millisecond apart, with a loss and a return in between.
    fn pass(&mut self, from: Millis) {
        self.happens.clear();
        let fastest = ClusterIndex::new(2);
        self.later(from + Millis::new(25.0), Event::Lost(fastest));
        self.later(from + Millis::new(45.0), Event::Returned(fastest));
        for n in 0..self.jobs.len() {
            let now = from + Millis::new(n as f64);
            self.play_until(now);
            let job = Arc::clone(&self.jobs[n]);
            self.machine
                .arrive(now, job, &self.distance, &mut self.actions)
                .expect("there is room");
            self.carry_out();
        }
        self.play_until(Millis::INFINITY);
        assert_eq!(self.machine.jobs(), 0, "all are done");
    }

    fn play_until(&mut self, end: Millis) {
        while let Some(Reverse((now, event))) = self.events.peek().copied()
            && now <= end
        {
            self.events.pop();
            let _ = self
                .machine
                .apply(now, self.happens[event], &mut self.actions);
            self.carry_out();
        }
    }
}

#[test]
fn a_warm_machine_allocates_nothing() {
    let starvation = Starvation::new(Millis::new(20.0), 0.1);
    for order in [
        Order::Arrival,
        Order::JobArrival,
        Order::LeastWork,
        Order::LargestTask,
        Order::LongestRemaining,
    ] {
        for hold in [Hold::Task, Hold::Job] {
            let mut stream = Stream::new(Settings {
                order,
                hold,
                starvation,
                ..Settings::default()
            });
            let cold = allocations(|| stream.pass(Millis::ZERO));
            assert!(cold > 0, "the allocator counts");
            // Places are handed out again in another order at first, so that each place meets each size.
            for n in 1..60 {
                stream.pass(Millis::new(f64::from(n) * 1e6));
            }
            let mut warm = [0; 4];
            for (n, warm) in (60..).zip(&mut warm) {
                *warm = allocations(|| stream.pass(Millis::new(f64::from(n) * 1e6)));
            }
            assert_eq!(warm, [0; 4], "{order:?}, {hold:?}, at first {cold}");
        }
    }
}
