//! The messages of a node, one by one.

use fdn_core::Millis;
use fdn_scheduling::instance::{
    Action, Fence, Limits, Load, Node, NodeIndex, Policy, Probe, Refusal, Settings, Slots, Stage,
    Task, TaskId, Term, ToGlobal, ToNode, ToSubmitter,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::cluster::ms;

struct One {
    node: Node<Slots>,
    rng: ChaCha8Rng,
    actions: Vec<Action<Slots>>,
}

fn settings(policy: Policy) -> Settings {
    // A lease of 10 ms, an answer within 4 ms.
    Settings::for_round_trip(ms(1.0)).with_policy(policy)
}

impl One {
    fn of(slots: u32, nodes: u32, settings: Settings) -> Self {
        Self {
            node: Node::new(NodeIndex(0), nodes, Slots(slots), settings).expect("as set up"),
            rng: ChaCha8Rng::seed_from_u64(1),
            actions: Vec::new(),
        }
    }

    fn new(slots: u32, policy: Policy) -> Self {
        Self::of(slots, 4, settings(policy))
    }

    /// What a message brings about, notices left out.
    fn hears(&mut self, now: f64, message: ToNode<Slots>) -> Vec<Action<Slots>> {
        self.node
            .receive(ms(now), message, &mut self.rng, &mut self.actions);
        self.poll(now)
    }

    fn poll(&mut self, now: f64) -> Vec<Action<Slots>> {
        self.node.poll(ms(now), &mut self.rng, &mut self.actions);
        let is_notice =
            |action: &Action<Slots>| matches!(action, Action::Global(ToGlobal::Notice(_)));
        let all = self.actions.drain(..);
        all.filter(|action| !is_notice(action)).collect()
    }

    fn reply(&mut self, now: f64, id: u64, from: NodeIndex, yes: bool) -> Vec<Action<Slots>> {
        let (id, attempt) = (TaskId(id), 1);
        self.hears(
            now,
            ToNode::Reply {
                id,
                attempt,
                from,
                yes,
            },
        )
    }
}

fn task(id: u64) -> Task<Slots> {
    Task {
        id: TaskId(id),
        attempt: 1,
        leg: 0,
        demand: Slots(1),
        remaining: ms(50.0),
        deadline: ms(1000.0),
    }
}

fn leg(id: u64, leg: u32) -> Task<Slots> {
    Task { leg, ..task(id) }
}

fn probe(id: u64) -> Probe<Slots> {
    Probe {
        id: TaskId(id),
        attempt: 1,
        leg: 0,
        demand: Slots(1),
        deadline: ms(1000.0),
        home: NodeIndex(3),
        wait: false,
    }
}

fn started(id: u64) -> Action<Slots> {
    Action::Submitter(ToSubmitter::Started {
        id: TaskId(id),
        attempt: 1,
        by: NodeIndex(0),
    })
}

fn is_start(action: &Action<Slots>, id: u64, by: Stage) -> bool {
    matches!(action, Action::Start { task, stage, .. } if task.id == TaskId(id) && *stage == by)
}

/// The two nodes that are asked.
fn asked(actions: &[Action<Slots>]) -> [NodeIndex; 2] {
    let to = |action: &Action<Slots>| match action {
        Action::Node(to, ToNode::Probe(_)) => Some(*to),
        _ => None,
    };
    let all: Vec<NodeIndex> = actions.iter().filter_map(to).collect();
    assert_eq!(actions.len(), 2, "{actions:?}");
    [all[0], all[1]]
}

fn answer(id: u64, yes: bool) -> Action<Slots> {
    let reply = ToNode::Reply {
        id: TaskId(id),
        attempt: 1,
        from: NodeIndex(0),
        yes,
    };
    Action::Node(NodeIndex(3), reply)
}

#[test]
fn with_room_a_task_starts_where_it_arrives_and_only_once() {
    let mut one = One::new(1, Policy::LocalProbeGlobal);
    let actions = one.hears(0.0, ToNode::Submit(task(1)));
    assert!(is_start(&actions[0], 1, Stage::Local));
    assert_eq!(actions[1..], [started(1)]);
    let again = one.hears(1.0, ToNode::Submit(task(1)));
    assert_eq!(again, [started(1)], "the report may have been lost");
    assert_eq!(one.node.used(), Slots(1));
}

#[test]
fn of_tasks_that_come_together_the_shortest_goes_first() {
    let mut one = One::new(1, Policy::BottomUp);
    for (id, remaining) in [(1, 9.0), (2, 3.0), (3, 3.0)] {
        let remaining = ms(remaining);
        let task = Task {
            remaining,
            ..task(id)
        };
        one.node.receive(
            Millis::ZERO,
            ToNode::Submit(task),
            &mut one.rng,
            &mut one.actions,
        );
    }
    let actions = one.poll(0.0);
    assert!(is_start(&actions[0], 2, Stage::Local), "ties by arrival");
    let forwarded: Vec<u64> = actions
        .iter()
        .filter_map(|action| match action {
            Action::Global(ToGlobal::Forward(task, _)) => Some(task.id.0),
            _ => None,
        })
        .collect();
    assert_eq!(forwarded, [3, 1]);
}

#[test]
fn the_first_yes_gets_the_task_and_a_later_one_is_released() {
    let mut one = One::new(0, Policy::LocalProbeGlobal);
    let [first, second] = asked(&one.hears(0.0, ToNode::Submit(task(1))));
    assert_ne!(first, second);
    let assign = Action::Node(second, ToNode::Assign(leg(1, 1)));
    assert_eq!(one.reply(1.0, 1, second, true), [assign]);
    assert_eq!(one.reply(1.1, 1, second, true), [], "the same yes twice");
    let release = ToNode::Release {
        id: TaskId(1),
        attempt: 1,
    };
    assert_eq!(
        one.reply(1.2, 1, first, true),
        [Action::Node(first, release)]
    );
    assert_eq!(one.node.open_probes(), 0);
    let again = one.hears(2.0, ToNode::Submit(task(1)));
    assert_eq!(again, [assign], "the assignment may have been lost");
}

#[test]
fn after_two_noes_or_no_answer_in_time_the_task_goes_to_the_global_scheduler() {
    let forward = |id| [Action::Global(ToGlobal::Forward(leg(id, 1), Term(0)))];
    let mut one = One::new(0, Policy::LocalProbeGlobal);
    let [first, second] = asked(&one.hears(0.0, ToNode::Submit(task(1))));
    assert_eq!(one.reply(1.0, 1, first, false), []);
    assert_eq!(
        one.reply(1.0, 1, first, false),
        [],
        "one node said it twice"
    );
    assert_eq!(one.reply(1.5, 1, second, false), forward(1));
    let [first, _] = asked(&one.hears(2.0, ToNode::Submit(task(2))));
    assert_eq!(one.node.next_timer(), Some(ms(6.0)));
    assert_eq!(one.poll(5.9), []);
    assert_eq!(one.poll(6.0), forward(2));
    let release = ToNode::Release {
        id: TaskId(2),
        attempt: 1,
    };
    assert_eq!(
        one.reply(7.0, 2, first, true),
        [Action::Node(first, release)]
    );
}

#[test]
fn a_yes_reserves_once_until_its_lease_ends() {
    let mut one = One::new(1, Policy::LocalProbeGlobal);
    assert_eq!(one.hears(0.0, ToNode::Probe(probe(1))), [answer(1, true)]);
    assert_eq!(
        one.hears(1.0, ToNode::Probe(probe(1))),
        [answer(1, true)],
        "asked twice"
    );
    assert_eq!(one.node.reserved(), Slots(1));
    assert_eq!(one.hears(2.0, ToNode::Probe(probe(2))), [answer(2, false)]);
    assert_eq!(one.poll(9.9), []);
    assert_eq!(one.node.reserved(), Slots(1));
    one.poll(10.0);
    assert_eq!(
        one.node.reserved(),
        Slots(0),
        "the lease is ten round trips"
    );
    // The task comes too late, finds room all the same; another does not.
    let late = one.hears(11.0, ToNode::Assign(leg(1, 1)));
    assert!(is_start(&late[0], 1, Stage::Probe));
    let none = one.hears(12.0, ToNode::Assign(leg(3, 1)));
    assert_eq!(
        none,
        [Action::Global(ToGlobal::Forward(leg(3, 2), Term(0)))]
    );
}

#[test]
fn a_late_question_about_a_task_that_has_started_reserves_nothing() {
    let mut one = One::new(2, Policy::LocalProbeGlobal);
    one.hears(0.0, ToNode::Probe(probe(1)));
    let actions = one.hears(1.0, ToNode::Assign(leg(1, 1)));
    assert!(is_start(&actions[0], 1, Stage::Probe));
    assert_eq!(one.hears(2.0, ToNode::Probe(probe(1))), []);
    assert_eq!((one.node.used(), one.node.reserved()), (Slots(1), Slots(0)));
}

#[test]
fn a_node_without_room_bounces_a_placement_and_says_how_it_stands() {
    let mut one = One::new(1, Policy::LocalProbeGlobal);
    let placed = one.hears(0.0, ToNode::Place(leg(1, 2), Term(0), 7));
    assert!(is_start(&placed[0], 1, Stage::Global));
    let bounced = one.hears(1.0, ToNode::Place(leg(2, 2), Term(0), 8));
    let [Action::Global(ToGlobal::Bounce(task, report))] = bounced[..] else {
        panic!("{bounced:?}");
    };
    assert_eq!(task, leg(2, 3));
    assert_eq!((report.free, report.seen), (Slots(0), 8));
    // The global scheduler may place it here again; a repetition of the first time must not start it.
    let Action::Start { running, .. } = placed[0] else {
        panic!("{placed:?}");
    };
    one.node.ended(running);
    let repeated = one.hears(2.0, ToNode::Place(leg(2, 2), Term(0), 8));
    assert!(
        matches!(repeated[..], [Action::Global(ToGlobal::Bounce(task, _))] if task == leg(2, 3))
    );
    let again = one.hears(3.0, ToNode::Place(leg(2, 4), Term(0), 9));
    assert!(is_start(&again[0], 2, Stage::Global));
}

#[test]
fn nothing_starts_after_its_deadline_or_behind_a_fence() {
    let mut one = One::new(3, Policy::LocalProbeGlobal);
    assert_eq!(one.hears(1000.1, ToNode::Submit(task(1))), []);
    let fence = Fence {
        id: TaskId(2),
        attempt: 1,
        deadline: ms(1000.0),
    };
    let fenced = |id, started| {
        [Action::Submitter(ToSubmitter::Fenced {
            id: TaskId(id),
            attempt: 1,
            by: Some(NodeIndex(0)),
            started,
        })]
    };
    let mut one = One::new(3, Policy::LocalProbeGlobal);
    assert_eq!(one.hears(0.0, ToNode::Fence(fence)), fenced(2, false));
    assert_eq!(one.hears(1.0, ToNode::Assign(leg(2, 5))), []);
    let second = Task {
        attempt: 2,
        ..task(2)
    };
    assert!(is_start(
        &one.hears(2.0, ToNode::Submit(second))[0],
        2,
        Stage::Local
    ));
    one.hears(3.0, ToNode::Submit(task(3)));
    let late = Fence {
        id: TaskId(3),
        ..fence
    };
    assert_eq!(one.hears(4.0, ToNode::Fence(late)), fenced(3, true));
}

#[test]
fn hints_send_the_task_itself_a_few_times_then_to_the_centre() {
    let mut one = One::new(0, Policy::Hints);
    let forward = [Action::Global(ToGlobal::Forward(leg(1, 1), Term(0)))];
    assert_eq!(
        one.hears(0.0, ToNode::Submit(task(1))),
        forward,
        "no snapshot"
    );
    let load = |free| Load {
        capacity: Slots(9),
        free: Slots(free),
    };
    one.node.snapshot(&[load(9), load(0), load(5), load(0)]);
    let hint = Action::Node(NodeIndex(2), ToNode::Hint(leg(2, 1), 1));
    assert_eq!(one.hears(0.0, ToNode::Submit(task(2))), [hint]);
    let last = one.hears(1.0, ToNode::Hint(leg(3, 4), 4));
    assert_eq!(
        last,
        [Action::Global(ToGlobal::Forward(leg(3, 5), Term(0)))]
    );
    let mut free = One::new(1, Policy::Hints);
    let here = free.hears(1.0, ToNode::Hint(leg(4, 1), 1));
    assert!(is_start(&here[0], 4, Stage::Hint));
}

#[test]
fn re_probing_asks_on_until_it_gives_up() {
    let settings = Settings {
        rounds: 2,
        ..settings(Policy::ReProbing)
    };
    let mut one = One::of(0, 4, settings);
    let [a, b] = asked(&one.hears(0.0, ToNode::Submit(task(1))));
    one.reply(1.0, 1, a, false);
    let [c, d] = asked(&one.reply(1.0, 1, b, false));
    one.reply(2.0, 1, c, false);
    let refused = ToSubmitter::Refused {
        id: TaskId(1),
        attempt: 1,
        refusal: Refusal::NoRoom,
    };
    assert_eq!(one.reply(2.0, 1, d, false), [Action::Submitter(refused)]);
    let again = one.hears(3.0, ToNode::Submit(task(1)));
    assert_eq!(again, [Action::Submitter(refused)]);
}

#[test]
fn late_binding_answers_when_there_is_room_in_the_order_of_the_questions() {
    let mut one = One::new(1, Policy::LateBinding);
    let running = one.node.adopt(Slots(1)).expect("as set up");
    let waits = |id| {
        ToNode::Probe(Probe {
            wait: true,
            ..probe(id)
        })
    };
    assert_eq!(one.hears(0.0, waits(1)), []);
    assert_eq!(one.hears(0.0, waits(2)), []);
    one.node.ended(running);
    assert_eq!(one.poll(1.0), [answer(1, true)]);
    let release = ToNode::Release {
        id: TaskId(1),
        attempt: 1,
    };
    assert_eq!(
        one.hears(2.0, release),
        [answer(2, true)],
        "the first had gone elsewhere"
    );
    // Its own tasks are not started at once either.
    asked(&One::new(5, Policy::LateBinding).hears(0.0, ToNode::Submit(task(9))));
}

#[test]
fn a_lost_node_counts_as_a_no_and_breaks_what_was_passed_to_it() {
    let mut one = One::new(0, Policy::LocalProbeGlobal);
    let [first, second] = asked(&one.hears(0.0, ToNode::Submit(task(1))));
    one.reply(1.0, 1, first, false);
    let (rng, actions) = (&mut one.rng, &mut one.actions);
    one.node.lost(ms(2.0), second, rng, actions);
    assert_eq!(
        one.poll(2.0),
        [Action::Global(ToGlobal::Forward(leg(1, 1), Term(0)))]
    );
    let [third, _] = asked(&one.hears(3.0, ToNode::Submit(task(2))));
    assert_ne!(third, second, "a lost node is not asked");
    one.reply(4.0, 2, third, true);
    one.node
        .lost(ms(5.0), third, &mut one.rng, &mut one.actions);
    let broken = ToSubmitter::Broken {
        id: TaskId(2),
        attempt: 1,
    };
    assert_eq!(
        one.hears(6.0, ToNode::Submit(task(2))),
        [Action::Submitter(broken)]
    );
}

#[test]
fn at_its_bounds_a_node_refuses_or_goes_on_without_asking() {
    let limits = Limits {
        probing: 1,
        memory: 2,
        ..Limits::default()
    };
    let settings = Settings {
        limits,
        ..settings(Policy::LocalProbeGlobal)
    };
    let mut one = One::of(0, 4, settings);
    asked(&one.hears(0.0, ToNode::Submit(task(1))));
    let forward = [Action::Global(ToGlobal::Forward(leg(2, 1), Term(0)))];
    assert_eq!(one.hears(0.0, ToNode::Submit(task(2))), forward);
    let refused = ToSubmitter::Refused {
        id: TaskId(3),
        attempt: 1,
        refusal: Refusal::MemoryFull,
    };
    assert_eq!(
        one.hears(0.0, ToNode::Submit(task(3))),
        [Action::Submitter(refused)]
    );
    assert_eq!(one.node.remembered(), 2);
    // A second after the deadline both are forgotten.
    one.poll(2000.1);
    assert_eq!(one.node.remembered(), 0);
}

#[test]
fn a_lonely_node_has_nobody_to_ask() {
    let mut one = One::of(0, 1, settings(Policy::LocalProbeGlobal));
    let forward = [Action::Global(ToGlobal::Forward(leg(1, 1), Term(0)))];
    assert_eq!(one.hears(0.0, ToNode::Submit(task(1))), forward);
}

#[test]
fn changes_are_gathered_before_the_centre_is_told_and_repeated_from_time_to_time() {
    let mut one = One::new(9, Policy::LocalProbeGlobal);
    let told = |one: &mut One, now: f64, start: Option<u64>| {
        if let Some(id) = start {
            let message = ToNode::Submit(task(id));
            one.node
                .receive(ms(now), message, &mut one.rng, &mut one.actions);
        }
        one.node.poll(ms(now), &mut one.rng, &mut one.actions);
        let all = one.actions.drain(..).filter_map(|action| match action {
            Action::Global(ToGlobal::Notice(report)) => Some((report.version, report.free.0)),
            _ => None,
        });
        all.collect::<Vec<_>>()
    };
    assert_eq!(told(&mut one, 0.0, Some(1)), [(1, 8)]);
    assert_eq!(told(&mut one, 0.2, Some(2)), []);
    assert_eq!(told(&mut one, 0.9, Some(3)), []);
    assert_eq!(one.node.next_timer(), Some(ms(1.0)));
    assert_eq!(told(&mut one, 1.0, None), [(3, 6)]);
    assert_eq!(told(&mut one, 500.0, None), []);
    assert_eq!(
        told(&mut one, 501.0, None),
        [(3, 6)],
        "a notice may be lost"
    );
}
