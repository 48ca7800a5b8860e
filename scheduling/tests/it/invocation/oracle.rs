//! The scheduler against the plain rules, over anything that can happen, decision by decision.

use std::collections::BTreeMap;

use fdn_core::{MebiBytes, Millis};
use fdn_scheduling::invocation::{
    Action, Activity, ContainerId, Fixed, FunctionIndex, Gdsf, Guard, KeepAlive, Lru, Order,
    Profile, Refusal, RequestId, Scheduler, Settings, Ticket, WorkerIndex,
};
use proptest::prelude::*;

use super::naive::{Decision, Does, Keeps, Naive};
use super::world::{ms, profile};

#[derive(Clone, Debug)]
enum Step {
    Wait(u32),
    Arrive(usize),
    /// Ends what a busy container does: loading, or its invocation.
    End(usize),
    Cancel(usize),
    Fail(usize),
    Memory(usize, u64),
    LoseWorker(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u32..30).prop_map(Step::Wait),
        8 => (0usize..5).prop_map(Step::Arrive),
        9 => any::<usize>().prop_map(Step::End),
        1 => any::<usize>().prop_map(Step::Cancel),
        1 => any::<usize>().prop_map(Step::Fail),
        1 => (0usize..3, 0u64..12).prop_map(|(worker, memory)| Step::Memory(worker, memory)),
        1 => (0usize..3).prop_map(Step::LoseWorker),
    ]
}

fn function() -> impl Strategy<Value = Profile> {
    (0u32..20, 0u32..40, 1u64..6).prop_map(|(e, d, r)| profile(f64::from(e), f64::from(d), r))
}

/// Both, side by side.
struct Pair {
    scheduler: Scheduler,
    naive: Naive,
    numbers: BTreeMap<ContainerId, usize>,
    ids: Vec<ContainerId>,
    tickets: Vec<Ticket>,
    actions: Vec<Action>,
}

impl Pair {
    fn new(settings: Settings, keeps: Keeps, profiles: &[Profile], workers: &[u64]) -> Self {
        let keep_alive: Box<dyn KeepAlive> = match keeps {
            Keeps::Lru => Box::new(Lru),
            Keeps::Gdsf => Box::new(Gdsf::default()),
            Keeps::Fixed(time) => Box::new(Fixed::new(ms(time))),
        };
        let mut scheduler = Scheduler::new(settings, keep_alive).expect("valid");
        let mut actions = Vec::new();
        for &memory in workers {
            let added = scheduler.add_worker(Millis::ZERO, MebiBytes(memory), &mut actions);
            added.expect("room");
        }
        for &profile in profiles {
            scheduler.register(profile).expect("room");
        }
        let after = settings.starvation.map(|guard| guard.after().get());
        let mut naive = Naive::new(
            settings.order,
            settings.queue_or_cold,
            after,
            keeps,
            profiles,
            workers,
        );
        naive.use_before_evicting = settings.use_before_evicting;
        Self {
            scheduler,
            naive,
            numbers: BTreeMap::new(),
            ids: Vec::new(),
            tickets: Vec::new(),
            actions,
        }
    }

    /// The actions as decisions.
    fn decisions(&mut self) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for action in std::mem::take(&mut self.actions) {
            decisions.push(match action {
                Action::StartWarm {
                    request, container, ..
                } => Decision::Warm {
                    request: request.0,
                    container: self.numbers[&container],
                },
                Action::StartCold {
                    request,
                    container,
                    worker,
                    ..
                } => {
                    let number = self.ids.len();
                    self.numbers.insert(container, number);
                    self.ids.push(container);
                    Decision::Cold {
                        request: request.0,
                        worker: worker.get(),
                        container: number,
                    }
                }
                Action::Release { container, .. } => Decision::Release {
                    container: self.numbers[&container],
                },
                Action::Lost { request } => Decision::Lost { request: request.0 },
                Action::Prewarm { .. } | Action::Interrupt { .. } => {
                    panic!("not with these policies")
                }
            });
        }
        decisions
    }

    fn now(&self) -> Millis {
        ms(self.naive.now)
    }

    /// Lets time pass, with every tick that is due.
    fn wait(&mut self, span: f64) {
        let until = self.naive.now + span;
        while let Some(tick) = self.scheduler.next_tick()
            && tick.get() <= until
        {
            self.naive.now = self.naive.now.max(tick.get());
            self.scheduler.tick(tick, &mut self.actions);
            self.naive.tick();
        }
        self.naive.now = until;
    }

    fn apply(&mut self, step: Step) {
        let now = self.now();
        match step {
            Step::Wait(span) => self.wait(f64::from(span)),
            Step::Arrive(function) => {
                let request = self.tickets.len() as u64;
                let index = FunctionIndex::new(function);
                let taken =
                    self.scheduler
                        .arrive(now, RequestId(request), index, &mut self.actions);
                if self.naive.fits_somewhere(function) {
                    self.tickets.push(taken.expect("it fits somewhere"));
                    self.naive.arrive(request, function);
                } else {
                    assert!(matches!(taken, Err(Refusal::TooLarge { .. })), "{taken:?}");
                }
            }
            Step::End(which) => {
                let busy = |does: Does| does != Does::Idles;
                if let Some((number, does)) = self.pick(which, busy) {
                    let id = self.ids[number];
                    if matches!(does, Does::Loads(_)) {
                        self.scheduler
                            .ready(now, id, &mut self.actions)
                            .expect("it loads");
                        self.naive.ready(number);
                    } else {
                        self.scheduler
                            .finished(now, id, &mut self.actions)
                            .expect("it runs");
                        self.naive.finished(number);
                    }
                }
            }
            Step::Cancel(which) if !self.naive.pending.is_empty() => {
                let pending = self.naive.pending[which % self.naive.pending.len()];
                let ticket = self.tickets[pending.request as usize];
                let gone = self.scheduler.cancel(now, ticket, &mut self.actions);
                assert_eq!(gone, Some(RequestId(pending.request)));
                self.naive.cancel(pending.request);
            }
            Step::Cancel(_) => {}
            Step::Fail(which) => {
                if let Some((number, _)) = self.pick(which, |_| true) {
                    let id = self.ids[number];
                    self.scheduler
                        .failed(now, id, &mut self.actions)
                        .expect("it is there");
                    self.naive.failed(number);
                    let again = self.scheduler.failed(now, id, &mut Vec::new());
                    assert!(matches!(again, Err(Refusal::UnknownContainer { .. })));
                }
            }
            Step::Memory(worker, memory) => {
                let index = WorkerIndex::new(worker);
                let changed =
                    self.scheduler
                        .memory_changed(now, index, MebiBytes(memory), &mut self.actions);
                changed.expect("a worker");
                self.naive.set_memory(worker, memory);
            }
            Step::LoseWorker(worker) => {
                let index = WorkerIndex::new(worker);
                self.scheduler
                    .worker_lost(now, index, &mut self.actions)
                    .expect("a worker");
                self.naive.worker_lost(worker);
            }
        }
    }

    fn pick(&self, which: usize, does: impl Fn(Does) -> bool) -> Option<(usize, Does)> {
        let fitting: Vec<_> = self
            .naive
            .containers
            .iter()
            .filter(|c| does(c.does))
            .collect();
        let chosen = fitting.get(which.checked_rem(fitting.len())?)?;
        Some((chosen.number, chosen.does))
    }

    /// The scheduler's tables against a plain count.
    fn check_tables(&self) {
        let mut seen: Vec<(usize, usize, u64, bool)> = self
            .scheduler
            .containers()
            .map(|c| {
                let number = self.numbers[&c.id];
                (
                    number,
                    c.worker.get(),
                    c.memory.get(),
                    c.activity == Activity::Idle,
                )
            })
            .collect();
        seen.sort_unstable();
        let mut expected: Vec<_> = self
            .naive
            .containers
            .iter()
            .map(|c| (c.number, c.worker, c.memory, c.does == Does::Idles))
            .collect();
        expected.sort_unstable();
        assert_eq!(seen, expected);
        for function in 0..self.naive.profiles.len() {
            let counted = self.scheduler.warm(FunctionIndex::new(function));
            assert_eq!(counted, self.naive.warm(function), "W of {function}");
        }
        for (number, worker) in self.scheduler.workers().enumerate() {
            let there = self.naive.containers.iter().filter(|c| c.worker == number);
            assert_eq!(worker.held.get(), there.map(|c| c.memory).sum::<u64>());
        }
        assert_eq!(self.scheduler.waiting(), self.naive.pending.len());
    }
}

fn sort_lost(decisions: &mut [Decision]) {
    let lost = decisions
        .iter()
        .take_while(|decision| matches!(decision, Decision::Lost { .. }))
        .count();
    decisions[..lost].sort_by_key(|decision| match decision {
        Decision::Lost { request } => *request,
        _ => u64::MAX,
    });
}

/// The properties, for as many cases as asked.
macro_rules! properties {
    ($cases:expr) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases($cases))]

            #[test]
            fn every_decision_is_the_one_of_the_plain_rules(
                profiles in prop::collection::vec(function(), 5),
                workers in prop::collection::vec(2u64..12, 3),
                steps in prop::collection::vec(step(), 1..120),
                order in prop::sample::select(vec![Order::FuncSched, Order::Fcfs, Order::Sjf, Order::Srf]),
                queue_or_cold in any::<bool>(),
                use_before_evicting in any::<bool>(),
                starve_after in prop::option::of(0u32..60),
                keeps in prop::sample::select(vec![Keeps::Lru, Keeps::Gdsf, Keeps::Fixed(25.0)]),
            ) {
                let starvation =
                    starve_after.map(|after| Guard::new(ms(f64::from(after)), 1.0).expect("valid"));
                let settings = Settings { order, queue_or_cold, use_before_evicting, starvation, ..Settings::default() };
                let mut pair = Pair::new(settings, keeps, &profiles, &workers);
                for step in steps {
                    let what = format!("{step:?}");
                    pair.apply(step);
                    let mut decisions = pair.decisions();
                    // A lost worker's invocations are told in no particular order.
                    sort_lost(&mut decisions);
                    sort_lost(&mut pair.naive.log);
                    prop_assert_eq!(&decisions, &pair.naive.log, "after {} at {}", what, pair.naive.now);
                    pair.naive.log.clear();
                    pair.check_tables();
                }
            }
        }
    };
}

properties!(200);

mod soak {
    use super::*;

    properties!(2000);
}
