//! Limits, loading ahead, trimming and adoption: the number of containers as an autoscaler steers it.

use fdn_core::MebiBytes;
use fdn_core::Millis;
use fdn_scheduling::invocation::{
    Action, ContainerId, Fixed, FunctionIndex, Guard, Lru, ReleaseReason, RequestId, Scheduler,
    Settings,
};

use super::world::{ms, profile};

struct Rig {
    scheduler: Scheduler,
    actions: Vec<Action>,
}

impl Rig {
    fn new(memory: u64, settings: Settings) -> Self {
        let mut scheduler = Scheduler::new(settings, Box::new(Lru)).expect("valid settings");
        let mut actions = Vec::new();
        scheduler
            .add_worker(Millis::ZERO, MebiBytes(memory), &mut actions)
            .expect("room");
        Self { scheduler, actions }
    }

    fn arrive(&mut self, now: f64, request: u64, function: FunctionIndex) {
        self.scheduler
            .arrive(ms(now), RequestId(request), function, &mut self.actions)
            .expect("room to wait");
    }

    fn cold(&mut self) -> Vec<(u64, ContainerId)> {
        let started = self.actions.drain(..).map(|action| match action {
            Action::StartCold {
                request, container, ..
            } => (request.0, container),
            other => panic!("{other:?}"),
        });
        started.collect()
    }
}

#[test]
fn a_function_at_its_limit_waits_for_its_own_and_blocks_nobody() {
    for starvation in [None, Some(Guard::new(ms(1.0), 1.0).expect("valid"))] {
        let mut rig = Rig::new(
            100,
            Settings {
                starvation,
                ..Settings::default()
            },
        );
        let small = rig.scheduler.register(profile(1.0, 1.0, 1)).expect("room");
        let large = rig.scheduler.register(profile(9.0, 9.0, 9)).expect("room");
        rig.scheduler
            .set_limit(ms(0.0), small, 1, &mut rig.actions)
            .expect("known");
        for request in 0..3 {
            rig.arrive(0.0, request, small);
        }
        rig.arrive(10.0, 3, large);
        let started = rig.cold();
        assert_eq!(
            started
                .iter()
                .map(|(request, _)| *request)
                .collect::<Vec<_>>(),
            [0, 3],
            "the smaller one is capped, the larger one starts past it"
        );
        // Its own container frees: the next one takes it.
        rig.scheduler
            .ready(ms(11.0), started[0].1, &mut rig.actions)
            .expect("loading");
        rig.scheduler
            .finished(ms(12.0), started[0].1, &mut rig.actions)
            .expect("running");
        assert!(matches!(
            rig.actions[..],
            [Action::StartWarm {
                request: RequestId(1),
                ..
            }]
        ));
        rig.actions.clear();
        // More are wanted: the last one starts.
        rig.scheduler
            .set_limit(ms(12.0), small, 2, &mut rig.actions)
            .expect("known");
        assert_eq!(rig.cold()[0].0, 2);
    }
}

#[test]
fn a_container_that_is_lost_makes_room_below_the_limit() {
    let mut rig = Rig::new(100, Settings::default());
    let function = rig.scheduler.register(profile(1.0, 1.0, 1)).expect("room");
    rig.scheduler
        .set_limit(ms(0.0), function, 1, &mut rig.actions)
        .expect("known");
    rig.arrive(0.0, 0, function);
    rig.arrive(0.0, 1, function);
    let started = rig.cold();
    assert_eq!(started.len(), 1);
    rig.scheduler
        .failed(ms(1.0), started[0].1, &mut rig.actions)
        .expect("loading");
    assert!(matches!(
        rig.actions[..],
        [
            Action::Lost {
                request: RequestId(0)
            },
            Action::StartCold {
                request: RequestId(1),
                ..
            }
        ]
    ));
}

#[test]
fn containers_are_loaded_ahead_while_memory_is_free_and_trimmed_by_age() {
    let mut rig = Rig::new(3, Settings::default());
    let function = rig.scheduler.register(profile(1.0, 1.0, 1)).expect("room");
    let loaded = rig
        .scheduler
        .prewarm(ms(0.0), function, 5, ms(50.0), &mut rig.actions)
        .expect("known");
    assert_eq!(loaded, 3, "memory bounds it");
    let containers: Vec<ContainerId> = rig
        .actions
        .drain(..)
        .map(|action| match action {
            Action::Prewarm { container, .. } => container,
            other => panic!("{other:?}"),
        })
        .collect();
    for container in &containers {
        rig.scheduler
            .ready(ms(1.0), *container, &mut rig.actions)
            .expect("warming");
    }
    assert_eq!(rig.scheduler.warm(function), 3);
    rig.arrive(2.0, 0, function);
    assert!(
        matches!(rig.actions[..], [Action::StartWarm { container, .. }] if container == containers[2])
    );
    rig.actions.clear();
    let released = rig
        .scheduler
        .trim(ms(3.0), function, 9, &mut rig.actions)
        .expect("known");
    assert_eq!(released, 2, "a busy one is never released");
    let order: Vec<_> = rig.actions.iter().collect();
    assert!(
        matches!(order[..], [
            Action::Release { container: first, why: ReleaseReason::Surplus, .. },
            Action::Release { container: second, why: ReleaseReason::Surplus, .. },
        ] if *first == containers[0] && *second == containers[1]),
        "{order:?}"
    );
}

#[test]
fn what_was_found_warm_serves_and_is_kept_by_the_policy() {
    let mut scheduler =
        Scheduler::new(Settings::default(), Box::new(Fixed::new(ms(10.0)))).expect("valid");
    let mut actions = Vec::new();
    let worker = scheduler
        .add_worker(ms(0.0), MebiBytes(2), &mut actions)
        .expect("room");
    let function = scheduler.register(profile(1.0, 5.0, 2)).expect("room");
    let adopted = scheduler
        .adopt(ms(0.0), function, worker, &mut actions)
        .expect("known")
        .expect("it fits");
    let beyond = scheduler.adopt(ms(0.0), function, worker, &mut actions);
    assert_eq!(beyond, Ok(None), "its worker has no room for it");
    scheduler
        .arrive(ms(1.0), RequestId(0), function, &mut actions)
        .expect("room");
    assert!(matches!(actions[..], [Action::StartWarm { container, .. }] if container == adopted));
    actions.clear();
    scheduler
        .finished(ms(2.0), adopted, &mut actions)
        .expect("running");
    assert_eq!(scheduler.next_tick(), Some(ms(12.0)));
    scheduler.tick(ms(12.0), &mut actions);
    assert!(matches!(
        actions[..],
        [Action::Release {
            why: ReleaseReason::Expired,
            ..
        }]
    ));
}

#[test]
fn an_idle_container_is_evicted_when_told_so_and_a_busy_one_is_not() {
    let mut rig = Rig::new(10, Settings::default());
    let functions = [(), (), ()].map(|()| {
        let profile = profile(1.0, 1.0, 3);
        rig.scheduler.register(profile).expect("room")
    });
    for (request, function) in (0..).zip(functions) {
        rig.arrive(request as f64, request, function);
    }
    let started = rig.cold();
    for (_, container) in &started {
        let ready = rig.scheduler.ready(ms(3.0), *container, &mut rig.actions);
        ready.expect("loading");
    }
    // The last one is busy; of the others the second was free first.
    for at in [1, 0] {
        let container = started[at].1;
        let scheduler = &mut rig.scheduler;
        let finished = scheduler.finished(ms(5.0 - at as f64), container, &mut rig.actions);
        finished.expect("running");
    }
    let [first, second, busy] = [0, 1, 2].map(|at| started[at].1);
    assert_eq!(
        rig.scheduler.idle_in_eviction_order(),
        [first, second],
        "by use"
    );
    assert!(!rig.scheduler.evict(ms(6.0), busy, &mut rig.actions));
    assert!(rig.actions.is_empty(), "{:?}", rig.actions);
    assert!(rig.scheduler.evict(ms(6.0), second, &mut rig.actions));
    let [
        Action::Release {
            container,
            why: ReleaseReason::Evicted,
            ..
        },
    ] = rig.actions[..]
    else {
        panic!("{:?}", rig.actions);
    };
    assert_eq!(container, second);
    assert!(!rig.scheduler.evict(ms(6.0), second, &mut rig.actions));
    assert_eq!(rig.scheduler.idle_in_eviction_order(), [first]);
}
