use fdn_scheduling::invocation::{Gdsf, Histogram, HistogramSettings, Lru};
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Arrive(usize),
    Burst(usize, usize),
    Pass(f64),
    Start(usize),
    FailStart(usize, f64),
    End(usize),
    Crash(usize),
    CrashAll,
    Leave(usize),
    Paused(usize, bool),
    Woken(usize),
    NotWoken(usize),
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => any::<usize>().prop_map(Step::Arrive),
        1 => (any::<usize>(), 1usize..30).prop_map(|(f, n)| Step::Burst(f, n)),
        4 => (0.0f64..3000.0).prop_map(Step::Pass),
        6 => any::<usize>().prop_map(Step::Start),
        1 => (any::<usize>(), 1.0f64..500.0).prop_map(|(w, p)| Step::FailStart(w, p)),
        8 => any::<usize>().prop_map(Step::End),
        1 => any::<usize>().prop_map(Step::Crash),
        1 => Just(Step::CrashAll),
        1 => any::<usize>().prop_map(Step::Leave),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(w, p)| Step::Paused(w, p)),
        3 => any::<usize>().prop_map(Step::Woken),
        1 => any::<usize>().prop_map(Step::NotWoken),
    ]
}

pub(super) fn shape() -> impl Strategy<Value = Shape> {
    (1.0f64..500.0, 0.0f64..2000.0, 1u64..40, 1u32..6).prop_map(
        |(execution, cold, memory, concurrency)| Shape {
            execution,
            cold,
            memory,
            concurrency,
        },
    )
}

impl std::fmt::Debug for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "E {} D {} R {} c {}",
            self.execution, self.cold, self.memory, self.concurrency
        )
    }
}

pub(super) fn keep(which: usize) -> Box<dyn KeepAlive> {
    match which {
        0 => Box::new(Fixed::new(ms(5000.0))),
        1 => Box::new(Lru),
        2 => Box::new(Gdsf::default()),
        _ => {
            let settings = HistogramSettings::compressed();
            Box::new(Histogram::new(settings).expect("valid"))
        }
    }
}

impl World {
    pub(super) fn apply(&mut self, step: &Step) {
        let pick = |of: usize, at: usize| (of > 0).then(|| at % of);
        match *step {
            Step::Arrive(at) => {
                self.arrive(at % self.functions.len());
            }
            Step::Burst(at, count) => {
                for _ in 0..count {
                    self.arrive(at % self.functions.len());
                }
            }
            Step::Pass(span) => self.pass(span),
            Step::Start(at) => {
                if let Some(which) = pick(self.starting.len(), at) {
                    self.start(which);
                }
            }
            Step::FailStart(at, pause) => {
                if let Some(which) = pick(self.starting.len(), at) {
                    self.fail_start(which, pause);
                }
            }
            Step::End(at) => {
                let busy = self.busy();
                if let Some(which) = pick(busy.len(), at) {
                    self.end(busy[which]);
                }
            }
            Step::Crash(at) => {
                let ready = self.ready();
                if let Some(which) = pick(ready.len(), at) {
                    self.crash(ready[which]);
                }
            }
            Step::CrashAll => {
                for container in self.ready() {
                    // A crash may have caused another of these instances to be stopped.
                    if self.live.contains_key(&container) {
                        self.crash(container);
                    }
                }
            }
            Step::Paused(at, is_paused) => {
                let pausing = self.resting(Resting::Pausing);
                if let Some(which) = pick(pausing.len(), at) {
                    self.pause(pausing[which], is_paused);
                }
            }
            Step::Woken(at) => {
                let waking = self.resting(Resting::Waking);
                if let Some(which) = pick(waking.len(), at) {
                    self.wake(waking[which]);
                }
            }
            Step::NotWoken(at) => {
                let waking = self.resting(Resting::Waking);
                if let Some(which) = pick(waking.len(), at) {
                    self.crash(waking[which]);
                }
            }
            Step::Leave(at) => {
                let waiting: Vec<CallId> = self.waiting.iter().copied().collect();
                if let Some(which) = pick(waiting.len(), at) {
                    self.leave(waiting[which]);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Checks every invariant after every event (in [`World::check`] and [`World::look`]), and that no call waits in the end.
    #[test]
    fn no_call_is_lost_and_every_bound_holds(
        shapes in prop::collection::vec(shape(), 1..5),
        memory in 40u64..300,
        policy in 0usize..4,
        order in prop::sample::select(vec![Order::FuncSched, Order::Fcfs, Order::Sjf, Order::Srf]),
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut world = World::with(settings(order), keep(policy), memory, &shapes);
        for step in &steps {
            world.apply(step);
        }
        world.drain();
        prop_assert!(world.waiting.is_empty());
    }

    /// For functions with one call at a time and equal arrivals, the order of starts is the scheduler's if only one instance fits.
    #[test]
    fn with_room_for_one_the_order_is_the_schedulers(
        shapes in prop::collection::vec((1.0f64..100.0, 1.0f64..100.0), 2..6),
    ) {
        let shapes: Vec<Shape> = shapes
            .into_iter()
            .map(|(execution, cold)| Shape { execution, cold, memory: 10, concurrency: 1 })
            .collect();
        let mut world = World::new(10, &shapes);
        // The first call occupies the node while the others queue up.
        world.arrive(0);
        let first = world.start(0);
        for function in 1..shapes.len() {
            world.arrive(function);
        }
        world.pass(10.0);
        let mut expected: Vec<usize> = (1..shapes.len()).collect();
        expected.sort_by(|a, b| {
            let cost = |at: usize| shapes[at].execution + shapes[at].cold;
            cost(*a).total_cmp(&cost(*b))
        });
        world.end(first);
        world.drain();
        let served: Vec<usize> = world.served[1..].iter().map(|call| call.0 as usize).collect();
        prop_assert_eq!(served, expected);
    }
}
