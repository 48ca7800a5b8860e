//! Once its tables have grown, the scheduler of invocations does not allocate: neither for an invocation that comes, starts or
//! waits, nor for one that ends.

use fdn_core::{MebiBytes, Millis};
use fdn_scheduling::invocation::{
    Action, Activity, ContainerId, Fixed, FunctionIndex, Gdsf, Guard, Histogram, HistogramSettings,
    KeepAlive, LearnSettings, Lru, Order, Profile, QUANTUM, RequestId, Scheduler, Settings,
};

use crate::counting::allocations;

const FUNCTIONS: usize = 50;

/// The same round again and again: invocations of all functions come, more than fit, and are served in the order of their
/// starts; then time passes.
struct Round {
    scheduler: Scheduler,
    actions: Vec<Action>,
    busy: Vec<(ContainerId, Activity)>,
    handled: Vec<Action>,
    now: f64,
}

impl Round {
    fn new(settings: Settings, keep_alive: Box<dyn KeepAlive>) -> Self {
        let mut scheduler = Scheduler::new(settings, keep_alive).expect("valid");
        let mut actions = Vec::new();
        for _ in 0..4 {
            let added = scheduler.add_worker(Millis::ZERO, MebiBytes(16), &mut actions);
            added.expect("room");
        }
        for function in 0..FUNCTIONS {
            let (execution, cold) = (10.0 + function as f64, 20.0 * (function % 7) as f64);
            let memory = MebiBytes(1 + function as u64 % 5);
            let profile = Profile::new(Millis::new(execution), Millis::new(cold), memory);
            scheduler.register(profile.expect("valid")).expect("room");
        }
        Self {
            scheduler,
            actions,
            busy: Vec::new(),
            handled: Vec::new(),
            now: 0.0,
        }
    }

    fn play(&mut self) {
        for number in 0..4 * FUNCTIONS as u64 {
            self.now += 0.5;
            let function = FunctionIndex::new((number as usize * 7) % FUNCTIONS);
            let (now, request) = (Millis::new(self.now), RequestId(number));
            self.scheduler
                .arrive(now, request, function, &mut self.actions)
                .expect("taken");
            self.handle();
        }
        while let Some((container, activity)) = self.busy.pop() {
            self.now += 3.0;
            let now = Millis::new(self.now);
            if activity == Activity::Running {
                let finished = self.scheduler.finished(now, container, &mut self.actions);
                finished.expect("it runs");
            } else {
                let ready = self.scheduler.ready(now, container, &mut self.actions);
                ready.expect("it loads");
            }
            if activity == Activity::Loading {
                self.busy.push((container, Activity::Running));
            }
            self.handle();
            if self.scheduler.next_tick().is_some_and(|tick| tick <= now) {
                self.scheduler.tick(now, &mut self.actions);
                self.handle();
            }
        }
        self.now += 500.0;
        self.scheduler
            .tick(Millis::new(self.now), &mut self.actions);
        self.handle();
    }

    fn handle(&mut self) {
        std::mem::swap(&mut self.actions, &mut self.handled);
        for action in self.handled.drain(..) {
            match action {
                Action::StartCold { container, .. } => {
                    self.busy.insert(0, (container, Activity::Loading));
                }
                Action::Prewarm { container, .. } => {
                    self.busy.insert(0, (container, Activity::Warming));
                }
                Action::StartWarm { container, .. } => {
                    self.busy.insert(0, (container, Activity::Running));
                }
                Action::Interrupt { container, .. } => {
                    self.busy.retain(|(busy, _)| *busy != container);
                }
                Action::Release { .. } | Action::Lost { .. } => {}
            }
        }
    }
}

fn allocations_of_a_warm_round(settings: Settings, keep_alive: Box<dyn KeepAlive>) -> u64 {
    let mut round = Round::new(settings, keep_alive);
    for _ in 0..30 {
        round.play();
    }
    allocations(|| {
        for _ in 0..10 {
            round.play();
        }
    })
}

#[test]
fn a_warm_scheduler_does_not_allocate_whatever_the_order_and_policy() {
    let guard = Guard::new(Millis::new(200.0), 0.1).expect("valid");
    let full = Settings {
        queue_or_cold: true,
        starvation: Some(guard),
        learn: Some(LearnSettings::default()),
        ..Settings::default()
    };
    let quantum = QUANTUM;
    for order in [Order::FuncSched, Order::Fcfs, Order::Sjf, Order::Srf] {
        let settings = Settings { order, ..full };
        assert_eq!(allocations_of_a_warm_round(settings, Box::new(Lru)), 0);
    }
    for order in [Order::RoundRobin { quantum }, Order::Srtf { quantum }] {
        let settings = Settings {
            order,
            ..Settings::default()
        };
        assert_eq!(allocations_of_a_warm_round(settings, Box::new(Lru)), 0);
    }
    let histogram = HistogramSettings {
        bin: Millis::new(50.0),
        default: Millis::new(300.0),
        ..HistogramSettings::default()
    };
    let policies: [Box<dyn KeepAlive>; 3] = [
        Box::new(Fixed::new(Millis::new(300.0))),
        Box::new(Gdsf::default()),
        Box::new(Histogram::new(histogram).expect("valid")),
    ];
    for policy in policies {
        assert_eq!(allocations_of_a_warm_round(full, policy), 0);
    }
}
