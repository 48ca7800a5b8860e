//! The messages of the global scheduler and of the origin, one by one.

use fdn_core::{MebiBytes, MilliCpu, Millis, Resources};
use fdn_scheduling::instance::{
    Action, Demand, Fence, Global, GlobalSettings, NodeIndex, Origin, OriginSettings, Refusal,
    Settled, Slots, Standing, Task, TaskId, Term, ToGlobal, ToNode, ToOrigin, TooManyOpen,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::cluster::ms;

fn settings() -> GlobalSettings {
    GlobalSettings::for_round_trip(ms(1.0))
}

fn task<D>(id: u64, demand: D, remaining: f64) -> Task<D> {
    Task {
        id: TaskId(id),
        attempt: 1,
        leg: 1,
        demand,
        remaining: ms(remaining),
        deadline: ms(1000.0),
    }
}

/// Sends a message and lets the scheduler decide as long as it can; placements as task, node, serial number.
fn hears<D: Demand>(global: &mut Global<D>, message: ToGlobal<D>) -> Vec<(u64, u32, u64)> {
    let mut actions = Vec::new();
    global.receive(ms(1.0), message, &mut actions);
    while global.has_work() && global.decide(ms(1.0), &mut actions) {}
    placements(&actions)
}

fn placements<D: Demand>(actions: &[Action<D>]) -> Vec<(u64, u32, u64)> {
    let placement = |action: &Action<D>| match action {
        Action::Node(node, ToNode::Place(task, _, serial)) => Some((task.id.0, node.0, *serial)),
        _ => None,
    };
    actions.iter().filter_map(placement).collect()
}

fn standing<D>(node: u32, version: u64, free: D, seen: u64) -> Standing<D> {
    Standing {
        node: NodeIndex(node),
        version,
        free,
        term: Term(0),
        seen,
    }
}

fn forward(id: u64, remaining: f64) -> ToGlobal<Slots> {
    ToGlobal::Forward(task(id, Slots(1), remaining), Term(0))
}

#[test]
fn the_node_with_most_room_is_taken_ties_the_smaller_index() {
    let mut global = Global::new(&[Slots(1), Slots(2), Slots(2)], settings());
    let nodes: Vec<u32> = (0..5)
        .flat_map(|id| hears(&mut global, forward(id, 1.0)))
        .map(|(_, node, _)| node)
        .collect();
    assert_eq!(nodes, [1, 2, 0, 1, 2]);
    assert_eq!(hears(&mut global, forward(9, 1.0)), [], "all is taken");
    assert_eq!(global.waiting(), 1);
}

#[test]
fn waiting_tasks_go_shortest_first_as_room_is_released() {
    let mut global = Global::new(&[Slots(0), Slots(0)], settings());
    // It could hold them, but nothing is free.
    let mut global_of_two = Global::new(&[Slots(2), Slots(2)], settings());
    assert_eq!(hears(&mut global, forward(1, 1.0)), []);
    assert_eq!(global.waiting(), 0, "no node is large enough: refused");
    for node in 0..2 {
        hears(
            &mut global_of_two,
            ToGlobal::Notice(standing(node, 1, Slots(0), 0)),
        );
    }
    for (id, remaining) in [(1, 9.0), (2, 3.0), (3, 5.0)] {
        assert_eq!(hears(&mut global_of_two, forward(id, remaining)), []);
    }
    let notice = ToGlobal::Notice(standing(1, 2, Slots(2), 0));
    assert_eq!(hears(&mut global_of_two, notice), [(2, 1, 1), (3, 1, 2)]);
    assert_eq!(global_of_two.waiting(), 1);
}

#[test]
fn a_notice_that_has_not_seen_a_placement_does_not_hide_it() {
    let mut global = Global::new(&[Slots(2)], settings());
    let believed = |global: &Global<Slots>| global.believed(NodeIndex(0));
    assert_eq!(hears(&mut global, forward(1, 1.0)), [(1, 0, 1)]);
    hears(&mut global, ToGlobal::Notice(standing(0, 5, Slots(2), 0)));
    assert_eq!(believed(&global), Slots(1), "one is under way");
    hears(&mut global, ToGlobal::Notice(standing(0, 6, Slots(1), 1)));
    assert_eq!(believed(&global), Slots(1));
    hears(&mut global, ToGlobal::Notice(standing(0, 4, Slots(2), 0)));
    assert_eq!(believed(&global), Slots(1), "an older one comes late");
}

#[test]
fn a_placement_nobody_has_seen_is_taken_for_lost_after_a_time() {
    let mut global = Global::new(&[Slots(1)], settings());
    hears(&mut global, forward(1, 1.0));
    assert_eq!(hears(&mut global, forward(2, 1.0)), []);
    assert_eq!(global.next_timer(), Some(ms(11.0)));
    let mut actions = Vec::new();
    assert!(!global.decide(ms(10.9), &mut actions));
    assert!(global.decide(ms(11.0), &mut actions));
    assert_eq!(placements(&actions), [(2, 0, 2)]);
}

#[test]
fn a_bounce_corrects_the_view_and_the_task_goes_elsewhere() {
    let mut global = Global::new(&[Slots(3), Slots(2)], settings());
    assert_eq!(hears(&mut global, forward(1, 1.0)), [(1, 0, 1)]);
    let back = Task {
        leg: 3,
        ..task(1, Slots(1), 1.0)
    };
    let bounce = ToGlobal::Bounce(back, standing(0, 7, Slots(0), 1));
    assert_eq!(hears(&mut global, bounce), [(1, 1, 1)]);
    assert_eq!(global.believed(NodeIndex(0)), Slots(0));
    assert_eq!(
        hears(&mut global, bounce),
        [(1, 1, 1)],
        "repeated, not placed anew"
    );
    assert_eq!(
        hears(&mut global, forward(1, 1.0)),
        [(1, 1, 1)],
        "so is the first leg"
    );
}

#[test]
fn a_task_that_fits_nowhere_does_not_keep_back_a_smaller_one() {
    let vector = |cpu, memory| Resources::new(MilliCpu(cpu), MebiBytes(memory));
    let mut global = Global::new(&[vector(1000, 100)], settings());
    hears(
        &mut global,
        ToGlobal::Notice(standing(0, 1, vector(500, 100), 0)),
    );
    let large = ToGlobal::Forward(task(1, vector(800, 10), 1.0), Term(0));
    assert_eq!(hears(&mut global, large), []);
    let small = ToGlobal::Forward(task(2, vector(400, 10), 9.0), Term(0));
    assert_eq!(hears(&mut global, small), [(2, 0, 1)]);
    let too_large = ToGlobal::Forward(task(3, vector(10, 101), 1.0), Term(0));
    let mut actions = Vec::new();
    global.receive(ms(1.0), too_large, &mut actions);
    let refused = ToOrigin::Refused {
        id: TaskId(3),
        attempt: 1,
        refusal: Refusal::TooLarge,
    };
    assert_eq!(actions, [Action::Origin(refused)]);
}

#[test]
fn only_so_many_are_passed_over() {
    let tight = GlobalSettings {
        look_ahead: 1,
        ..settings()
    };
    let mut global = Global::new(&[Slots(2)], tight);
    hears(&mut global, ToGlobal::Notice(standing(0, 1, Slots(1), 0)));
    for id in [1, 2] {
        let large = ToGlobal::Forward(task(id, Slots(2), 1.0), Term(0));
        assert_eq!(hears(&mut global, large), []);
    }
    assert_eq!(
        hears(&mut global, forward(3, 9.0)),
        [],
        "two large ones are before it"
    );
    assert_eq!(hears(&mut global, forward(4, 0.5)), [(4, 0, 1)]);
}

#[test]
fn the_bounds_refuse_with_their_reason_and_waiting_ends_with_the_deadline() {
    let tight = GlobalSettings {
        queue: 1,
        memory_limit: 2,
        ..settings()
    };
    let mut global = Global::new(&[Slots(1)], tight);
    hears(&mut global, ToGlobal::Notice(standing(0, 1, Slots(0), 0)));
    let mut actions = Vec::new();
    for id in 1..4 {
        global.receive(ms(1.0), forward(id, 1.0), &mut actions);
    }
    global.receive(
        ms(1000.5),
        ToGlobal::Notice(standing(0, 2, Slots(1), 0)),
        &mut actions,
    );
    assert!(
        !global.decide(ms(1000.5), &mut actions),
        "nothing starts after its deadline"
    );
    let refusals: Vec<(u64, Refusal)> = actions
        .iter()
        .filter_map(|action| match action {
            Action::Origin(ToOrigin::Refused { id, refusal, .. }) => Some((id.0, *refusal)),
            _ => None,
        })
        .collect();
    let expected = [
        (2, Refusal::QueueFull),
        (3, Refusal::MemoryFull),
        (1, Refusal::Expired),
    ];
    assert_eq!(refusals, expected);
}

#[test]
fn a_fence_takes_a_waiting_task_out() {
    let mut global = Global::new(&[Slots(1)], settings());
    hears(&mut global, ToGlobal::Notice(standing(0, 1, Slots(0), 0)));
    hears(&mut global, forward(1, 1.0));
    let fence = Fence {
        id: TaskId(1),
        attempt: 1,
        deadline: ms(1000.0),
    };
    hears(&mut global, ToGlobal::Fence(fence));
    let notice = ToGlobal::Notice(standing(0, 2, Slots(1), 0));
    assert_eq!(hears(&mut global, notice), []);
    assert_eq!(hears(&mut global, forward(1, 1.0)), []);
    assert_eq!(global.waiting(), 0);
}

#[test]
fn a_lost_node_gets_nothing_and_breaks_what_was_placed_there() {
    let mut global = Global::new(&[Slots(5), Slots(1)], settings());
    assert_eq!(hears(&mut global, forward(1, 1.0)), [(1, 0, 1)]);
    global.lost(NodeIndex(0));
    assert_eq!(hears(&mut global, forward(2, 1.0)), [(2, 1, 1)]);
    let mut actions = Vec::new();
    global.receive(ms(2.0), forward(1, 1.0), &mut actions);
    let broken = ToOrigin::Broken {
        id: TaskId(1),
        attempt: 1,
    };
    assert_eq!(actions, [Action::Origin(broken)]);
    global.returned(NodeIndex(0));
    assert_eq!(
        hears(&mut global, forward(3, 1.0)),
        [],
        "it has not said what it has"
    );
    let notice = ToGlobal::Notice(standing(0, 0, Slots(5), 0));
    assert_eq!(hears(&mut global, notice), [(3, 0, 2)]);
}

struct Source {
    origin: Origin<Slots>,
    rng: ChaCha8Rng,
    actions: Vec<Action<Slots>>,
}

impl Source {
    fn new(settings: OriginSettings) -> Self {
        Self {
            origin: Origin::new(3, TaskId(10), settings),
            rng: ChaCha8Rng::seed_from_u64(1),
            actions: Vec::new(),
        }
    }

    fn submit(&mut self, now: f64) -> Result<TaskId, TooManyOpen> {
        let (rng, actions) = (&mut self.rng, &mut self.actions);
        self.origin.submit(ms(now), Slots(1), ms(5.0), rng, actions)
    }

    fn hears(&mut self, now: f64, message: ToOrigin) -> Option<Settled> {
        let (rng, actions) = (&mut self.rng, &mut self.actions);
        self.origin.receive(ms(now), message, rng, actions)
    }

    fn tick(&mut self, now: f64) -> Option<Settled> {
        let (rng, actions) = (&mut self.rng, &mut self.actions);
        self.origin.tick(ms(now), rng, actions)
    }

    /// The node and attempt of what was sent.
    fn sent(&mut self) -> Vec<(NodeIndex, u32)> {
        let submit = |action| match action {
            Action::Node(node, ToNode::Submit(task)) => Some((node, task.attempt)),
            _ => None,
        };
        self.actions.drain(..).filter_map(submit).collect()
    }

    fn fenced(&mut self, now: f64, by: Option<u32>, started: bool) -> Option<Settled> {
        let message = ToOrigin::Fenced {
            id: TaskId(10),
            attempt: 1,
            by: by.map(NodeIndex),
            started,
        };
        self.hears(now, message)
    }
}

fn patient() -> OriginSettings {
    // Sent again after 20 ms, 40 ms and so on.
    OriginSettings {
        wanted: ms(200.0),
        memory: ms(100.0),
        ..OriginSettings::for_round_trip(ms(1.0))
    }
}

#[test]
fn a_task_is_sent_to_the_same_node_again_until_there_is_news() {
    let mut source = Source::new(patient());
    assert_eq!(source.submit(0.0), Ok(TaskId(10)));
    let first = source.sent();
    assert_eq!(source.origin.next_timer(), Some(ms(20.0)));
    assert_eq!(source.tick(19.0), None);
    assert_eq!(source.sent(), []);
    assert_eq!(source.tick(20.0), None);
    assert_eq!(source.sent(), first, "the same attempt");
    assert_eq!(
        source.origin.next_timer(),
        Some(ms(60.0)),
        "later each time"
    );
    let started = ToOrigin::Started {
        id: TaskId(10),
        attempt: 1,
        by: NodeIndex(2),
    };
    let settled = Some(Settled::Started(TaskId(10), NodeIndex(2)));
    assert_eq!(source.hears(30.0, started), settled);
    assert_eq!(source.hears(31.0, started), None, "known");
    assert_eq!((source.origin.open(), source.tick(500.0)), (0, None));
}

#[test]
fn another_attempt_waits_for_every_promise() {
    let mut source = Source::new(patient());
    source.submit(0.0).expect("as set up");
    let (first, _) = source.sent()[0];
    let mut settled = Vec::new();
    let (rng, actions) = (&mut source.rng, &mut source.actions);
    source
        .origin
        .lost(ms(5.0), first, rng, actions, &mut settled);
    let others: Vec<u32> = (0..3).filter(|node| *node != first.0).collect();
    assert_eq!(
        source.actions.len(),
        3,
        "two nodes and the global scheduler"
    );
    source.actions.clear();
    assert_eq!(source.fenced(6.0, Some(others[0]), false), None);
    assert_eq!(
        source.fenced(6.0, Some(others[0]), false),
        None,
        "twice counts once"
    );
    assert_eq!(source.fenced(6.0, None, false), None);
    assert_eq!(source.sent(), []);
    assert_eq!(source.fenced(7.0, Some(others[1]), false), None);
    let again = source.sent();
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].1, 2, "the second attempt");
    assert_ne!(again[0].0, first);
}

#[test]
fn a_fence_may_find_that_it_was_started_or_that_it_expired() {
    let broken = ToOrigin::Broken {
        id: TaskId(10),
        attempt: 1,
    };
    let mut source = Source::new(patient());
    source.submit(0.0).expect("as set up");
    assert_eq!(source.hears(5.0, broken), None);
    let started = Some(Settled::Started(TaskId(10), NodeIndex(1)));
    assert_eq!(source.fenced(6.0, Some(1), true), started);

    let mut source = Source::new(patient());
    source.submit(0.0).expect("as set up");
    assert_eq!(source.tick(220.0), None, "past the deadline: a fence");
    for by in [Some(0), Some(1), Some(2)] {
        assert_eq!(source.fenced(221.0, by, false), None);
    }
    let expired = Some(Settled::Refused(TaskId(10), Refusal::Expired));
    assert_eq!(source.fenced(221.0, None, false), expired);

    let mut source = Source::new(patient());
    source.submit(0.0).expect("as set up");
    source.tick(220.0);
    assert_eq!(
        source.tick(301.0),
        Some(Settled::Unresolved(TaskId(10))),
        "all have forgotten it"
    );
}

#[test]
fn no_more_tasks_are_open_than_may_be() {
    let mut source = Source::new(OriginSettings {
        open: 1,
        ..patient()
    });
    source.submit(0.0).expect("as set up");
    let error = source.submit(0.0).expect_err("too many");
    assert_eq!(error.to_string(), "1 tasks are open, as many as may be");
}

#[test]
fn with_a_centre_only_the_global_scheduler_gets_tasks() {
    let central = OriginSettings {
        central: true,
        ..patient()
    };
    let mut source = Source::new(central);
    source.submit(0.0).expect("as set up");
    assert!(
        matches!(source.actions[..], [Action::Global(ToGlobal::Forward(task, _))] if task.leg == 0)
    );
    assert_eq!(source.origin.next_timer(), Some(Millis::new(20.0)));
}
