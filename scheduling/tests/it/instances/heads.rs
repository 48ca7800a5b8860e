//! Another global scheduler takes over: message by message.

use fdn_scheduling::instance::{
    Action, Fence, Global, GlobalSettings, Node, NodeIndex, NodeReport, Policy, Settings, Settled,
    Slots, Submitter, SubmitterSettings, Task, TaskId, Term, ToGlobal, ToNode, ToSubmitter,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::cluster::ms;

type Actions = Vec<Action<Slots>>;

const NEW: Term = Term(1);

fn task(leg: u32) -> Task<Slots> {
    Task {
        id: TaskId(1),
        attempt: 1,
        leg,
        demand: Slots(1),
        remaining: ms(50.0),
        deadline: ms(1000.0),
    }
}

fn settings() -> GlobalSettings {
    GlobalSettings {
        queue: 64,
        memory_limit: 64,
        ..GlobalSettings::for_round_trip(ms(1.0))
    }
}

fn broken() -> Action<Slots> {
    Action::Submitter(ToSubmitter::Broken {
        id: TaskId(1),
        attempt: 1,
    })
}

fn report(version: u64, free: u32, term: Term, seen: u64) -> NodeReport<Slots> {
    NodeReport {
        node: NodeIndex(0),
        version,
        free: Slots(free),
        term,
        seen,
    }
}

fn hears(global: &mut Global<Slots>, message: ToGlobal<Slots>) -> Actions {
    let mut actions = Vec::new();
    global.receive(ms(1.0), message, &mut actions);
    while global.has_work() && global.decide(ms(1.0), &mut actions) {}
    actions
}

#[test]
fn a_new_one_places_nothing_until_nodes_have_said_what_is_free() {
    let mut global = Global::take_over(&[Slots(2)], NEW, settings());
    assert_eq!(global.term(), NEW);
    assert_eq!(global.assumed_free(NodeIndex(0)), Slots(0));
    assert_eq!(hears(&mut global, ToGlobal::Forward(task(1), NEW)), []);
    assert_eq!(global.waiting(), 1, "a node is large enough for it");
    let old = ToGlobal::Notice(report(7, 2, Term(0), 9));
    assert_eq!(hears(&mut global, old), [], "that was meant for another");
    let notice = ToGlobal::Notice(report(7, 2, NEW, 0));
    let placed = Action::Node(NodeIndex(0), ToNode::Place(task(2), NEW, 1));
    assert_eq!(hears(&mut global, notice), [placed]);
    assert_eq!(
        global.assumed_free(NodeIndex(0)),
        Slots(1),
        "one is under way"
    );
}

#[test]
fn what_was_sent_to_another_one_is_not_decided_again() {
    let mut global = Global::take_over(&[Slots(2)], NEW, settings());
    hears(&mut global, ToGlobal::Notice(report(1, 2, NEW, 0)));
    assert_eq!(hears(&mut global, ToGlobal::Forward(task(1), Term(0))), []);
    let bounce = ToGlobal::Bounce(task(3), report(9, 0, Term(0), 4));
    assert_eq!(hears(&mut global, bounce), []);
    assert_eq!((global.waiting(), global.remembered()), (0, 0));
    assert_eq!(global.assumed_free(NodeIndex(0)), Slots(2));
    // One that was replaced does nothing for those who follow the new one.
    let mut old = Global::new(&[Slots(2)], settings());
    assert_eq!(hears(&mut old, ToGlobal::Forward(task(1), NEW)), []);
    assert_eq!(old.waiting(), 0);
}

struct One {
    node: Node<Slots>,
    rng: ChaCha8Rng,
}

impl One {
    fn new(slots: u32) -> Self {
        let settings = Settings::for_round_trip(ms(1.0)).with_policy(Policy::BottomUp);
        Self {
            node: Node::new(NodeIndex(0), 4, Slots(slots), settings).expect("as set up"),
            rng: ChaCha8Rng::seed_from_u64(1),
        }
    }

    fn poll(&mut self, now: f64) -> Actions {
        let mut actions = Vec::new();
        self.node.poll(ms(now), &mut self.rng, &mut actions);
        actions
    }

    fn hears(&mut self, now: f64, message: ToNode<Slots>) -> Actions {
        let mut actions = Vec::new();
        self.node
            .receive(ms(now), message, &mut self.rng, &mut actions);
        self.node.poll(ms(now), &mut self.rng, &mut actions);
        actions.retain(|action| !matches!(action, Action::Global(ToGlobal::Notice(_))));
        actions
    }
}

#[test]
fn a_node_tells_a_new_one_how_it_stands_at_once() {
    let mut one = One::new(2);
    one.poll(0.0);
    assert_eq!(one.poll(0.1), [], "nothing has changed");
    one.node.headed(NEW);
    assert_eq!(one.node.next_timer(), Some(ms(0.0)));
    let told = [Action::Global(ToGlobal::Notice(report(0, 2, NEW, 0)))];
    assert_eq!(one.poll(0.1), told);
    one.node.headed(Term(0));
    one.node.headed(NEW);
    assert_eq!(one.poll(0.2), [], "that is no news");
}

#[test]
fn a_chain_through_the_one_before_is_broken() {
    let mut one = One::new(0);
    let submit = ToNode::Submit(task(0));
    let forward = [Action::Global(ToGlobal::Forward(task(1), Term(0)))];
    assert_eq!(one.hears(0.0, submit), forward);
    assert_eq!(one.hears(1.0, submit), forward, "repeated");
    one.node.headed(NEW);
    assert_eq!(one.hears(2.0, submit), [broken()]);
    // What finds no room from now on goes to the new one.
    let next = Task {
        id: TaskId(2),
        ..task(0)
    };
    let on = Task { leg: 1, ..next };
    let forward = [Action::Global(ToGlobal::Forward(on, NEW))];
    assert_eq!(one.hears(3.0, ToNode::Submit(next)), forward);
}

#[test]
fn a_placement_of_the_one_before_counts_unless_it_was_fenced() {
    let mut one = One::new(1);
    one.node.headed(NEW);
    let fence = Fence {
        id: TaskId(1),
        attempt: 1,
        deadline: ms(1000.0),
    };
    one.hears(0.0, ToNode::Fence(fence));
    assert_eq!(one.hears(1.0, ToNode::Place(task(2), Term(0), 8)), []);
    let other = Task {
        id: TaskId(2),
        ..task(2)
    };
    let started = one.hears(2.0, ToNode::Place(other, Term(0), 9));
    assert!(matches!(started[0], Action::Start { .. }));
    assert_eq!(one.node.report().seen, 0, "of the new one it has seen none");
    // The first word from a new one may be a placement.
    let third = Task {
        id: TaskId(3),
        ..task(2)
    };
    let bounced = one.hears(3.0, ToNode::Place(third, Term(2), 1));
    let [Action::Global(ToGlobal::Bounce(_, report))] = bounced[..] else {
        panic!("{bounced:?}");
    };
    assert_eq!((report.term, report.seen), (Term(2), 1));
}

#[test]
fn the_origin_fences_what_it_had_sent_to_the_one_before() {
    let central = SubmitterSettings {
        central: true,
        open: 8,
        ..SubmitterSettings::for_round_trip(ms(1.0))
    };
    let mut submitter = Submitter::new(1, TaskId(1), central);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let (mut actions, mut settled) = (Vec::new(), Vec::new());
    let id = submitter.submit(ms(0.0), Slots(1), ms(5.0), &mut rng, &mut actions);
    assert_eq!(id, Ok(TaskId(1)));
    actions.clear();
    submitter.headed(ms(1.0), NEW, &mut rng, &mut actions, &mut settled);
    let fences = |action: &Action<Slots>| {
        matches!(
            action,
            Action::Node(_, ToNode::Fence(_)) | Action::Global(ToGlobal::Fence(_))
        )
    };
    assert!(
        actions.len() == 2 && actions.iter().all(fences),
        "{actions:?}"
    );
    actions.clear();
    for by in [Some(NodeIndex(0)), None] {
        let fenced = ToSubmitter::Fenced {
            id: TaskId(1),
            attempt: 1,
            by,
            started: false,
        };
        assert_eq!(
            submitter.receive(ms(2.0), fenced, &mut rng, &mut actions),
            None
        );
    }
    let [Action::Global(ToGlobal::Forward(task, NEW))] = actions[..] else {
        panic!("{actions:?}");
    };
    assert_eq!((task.attempt, task.leg), (2, 0));
    let started = ToSubmitter::Started {
        id: TaskId(1),
        attempt: 2,
        by: NodeIndex(0),
    };
    let end = submitter.receive(ms(3.0), started, &mut rng, &mut actions);
    assert_eq!(end, Some(Settled::Started(TaskId(1), NodeIndex(0))));
    assert_eq!(settled, []);
}
