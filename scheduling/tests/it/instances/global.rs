//! The messages of the global scheduler, one by one.

use fdn_core::{MebiBytes, MilliCpu, Resources};
use fdn_scheduling::instance::{
    Action, Demand, Fence, Global, GlobalSettings, NodeIndex, NodeReport, Refusal, Slots, Task,
    TaskId, Term, ToGlobal, ToNode, ToSubmitter,
};

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

fn report<D>(node: u32, version: u64, free: D, seen: u64) -> NodeReport<D> {
    NodeReport {
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
            ToGlobal::Notice(report(node, 1, Slots(0), 0)),
        );
    }
    for (id, remaining) in [(1, 9.0), (2, 3.0), (3, 5.0)] {
        assert_eq!(hears(&mut global_of_two, forward(id, remaining)), []);
    }
    let notice = ToGlobal::Notice(report(1, 2, Slots(2), 0));
    assert_eq!(hears(&mut global_of_two, notice), [(2, 1, 1), (3, 1, 2)]);
    assert_eq!(global_of_two.waiting(), 1);
}

#[test]
fn a_notice_that_has_not_seen_a_placement_does_not_hide_it() {
    let mut global = Global::new(&[Slots(2)], settings());
    let believed = |global: &Global<Slots>| global.assumed_free(NodeIndex(0));
    assert_eq!(hears(&mut global, forward(1, 1.0)), [(1, 0, 1)]);
    hears(&mut global, ToGlobal::Notice(report(0, 5, Slots(2), 0)));
    assert_eq!(believed(&global), Slots(1), "one is under way");
    hears(&mut global, ToGlobal::Notice(report(0, 6, Slots(1), 1)));
    assert_eq!(believed(&global), Slots(1));
    hears(&mut global, ToGlobal::Notice(report(0, 4, Slots(2), 0)));
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
    let bounce = ToGlobal::Bounce(back, report(0, 7, Slots(0), 1));
    assert_eq!(hears(&mut global, bounce), [(1, 1, 1)]);
    assert_eq!(global.assumed_free(NodeIndex(0)), Slots(0));
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
        ToGlobal::Notice(report(0, 1, vector(500, 100), 0)),
    );
    let large = ToGlobal::Forward(task(1, vector(800, 10), 1.0), Term(0));
    assert_eq!(hears(&mut global, large), []);
    let small = ToGlobal::Forward(task(2, vector(400, 10), 9.0), Term(0));
    assert_eq!(hears(&mut global, small), [(2, 0, 1)]);
    let too_large = ToGlobal::Forward(task(3, vector(10, 101), 1.0), Term(0));
    let mut actions = Vec::new();
    global.receive(ms(1.0), too_large, &mut actions);
    let refused = ToSubmitter::Refused {
        id: TaskId(3),
        attempt: 1,
        refusal: Refusal::TooLarge,
    };
    assert_eq!(actions, [Action::Submitter(refused)]);
}

#[test]
fn only_so_many_are_passed_over() {
    let tight = GlobalSettings {
        look_ahead: 1,
        ..settings()
    };
    let mut global = Global::new(&[Slots(2)], tight);
    hears(&mut global, ToGlobal::Notice(report(0, 1, Slots(1), 0)));
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
    hears(&mut global, ToGlobal::Notice(report(0, 1, Slots(0), 0)));
    let mut actions = Vec::new();
    for id in 1..4 {
        global.receive(ms(1.0), forward(id, 1.0), &mut actions);
    }
    global.receive(
        ms(1000.5),
        ToGlobal::Notice(report(0, 2, Slots(1), 0)),
        &mut actions,
    );
    assert!(
        !global.decide(ms(1000.5), &mut actions),
        "nothing starts after its deadline"
    );
    let refusals: Vec<(u64, Refusal)> = actions
        .iter()
        .filter_map(|action| match action {
            Action::Submitter(ToSubmitter::Refused { id, refusal, .. }) => Some((id.0, *refusal)),
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
    hears(&mut global, ToGlobal::Notice(report(0, 1, Slots(0), 0)));
    hears(&mut global, forward(1, 1.0));
    let fence = Fence {
        id: TaskId(1),
        attempt: 1,
        deadline: ms(1000.0),
    };
    hears(&mut global, ToGlobal::Fence(fence));
    let notice = ToGlobal::Notice(report(0, 2, Slots(1), 0));
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
    let broken = ToSubmitter::Broken {
        id: TaskId(1),
        attempt: 1,
    };
    assert_eq!(actions, [Action::Submitter(broken)]);
    global.returned(NodeIndex(0));
    assert_eq!(
        hears(&mut global, forward(3, 1.0)),
        [],
        "it has not said what it has"
    );
    let notice = ToGlobal::Notice(report(0, 0, Slots(5), 0));
    assert_eq!(hears(&mut global, notice), [(3, 0, 2)]);
}
