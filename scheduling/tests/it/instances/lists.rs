//! The global scheduler with pre-schedulers: what it hands out, and what becomes of the lists.

use fdn_core::{MebiBytes, MilliCpu, Millis, Resources};
use fdn_scheduling::commit::{Choice, List, ListRequest, PreScheduler, Ties, View};
use fdn_scheduling::instance::{
    Action, ByRoom, Fence, Global, GlobalSettings, ListSettings, NodeIndex, NodeReport, Task,
    TaskId, Term, ToGlobal, ToNode, ToSubmitter, Verdict,
};
use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::cluster::ms;

pub(super) type Actions = Vec<Action<Resources>>;

pub(super) fn size(cpu: u64, memory: u64) -> Resources {
    Resources::new(MilliCpu(cpu), MebiBytes(memory))
}

pub(super) fn settings() -> GlobalSettings {
    GlobalSettings {
        queue: 64,
        memory_limit: 256,
        ..GlobalSettings::for_round_trip(ms(1e6))
    }
}

pub(super) const LISTS: ListSettings = ListSettings {
    in_flight: 4,
    retries: 1,
    lease: Millis::new(30.0),
    history: 5,
};

pub(super) fn task(id: u64, leg: u32, demand: Resources, remaining: f64) -> Task<Resources> {
    Task {
        id: TaskId(id),
        attempt: 1,
        leg,
        demand,
        remaining: ms(remaining),
        deadline: ms(5000.0),
    }
}

/// One global scheduler, one pre-scheduler with its copy, and what was said.
struct One {
    global: Global<Resources>,
    view: View,
    scheduler: PreScheduler<ByRoom>,
    rng: ChaCha8Rng,
    actions: Actions,
    now: f64,
}

impl One {
    fn new(capacities: &[Resources], lists: ListSettings) -> Self {
        let choice = Choice {
            ties: Ties::Node,
            ..Choice::default()
        };
        Self {
            global: Global::new(capacities, settings()).with_lists(lists),
            view: View::default(),
            scheduler: PreScheduler::new(ByRoom, choice),
            rng: ChaCha8Rng::seed_from_u64(1),
            actions: Vec::new(),
            now: 1.0,
        }
    }

    fn forward(&mut self, id: u64, demand: Resources, remaining: f64) {
        let message = ToGlobal::Forward(task(id, 1, demand, remaining), Term(0));
        self.global
            .receive(ms(self.now), message, &mut self.actions);
    }

    fn notice(&mut self, node: u32, version: u64, free: Resources, seen: u64) {
        let report = NodeReport {
            node: NodeIndex(node),
            version,
            free,
            term: Term(0),
            seen,
        };
        let message = ToGlobal::Notice(report);
        self.global
            .receive(ms(self.now), message, &mut self.actions);
    }

    fn take(&mut self) -> Option<ListRequest> {
        self.global.take(ms(self.now), &mut self.actions)
    }

    fn list(&mut self, wanted: &ListRequest, reads: bool) -> List {
        if reads {
            self.view
                .read(self.global.records().expect("it keeps them"));
        }
        let mut list = List::default();
        let records = self.view.records();
        self.scheduler
            .list_for(wanted, records, &mut self.rng, &mut list);
        list
    }

    fn commit(&mut self, list: &List) -> Verdict {
        let commit = self.global.commit(ms(self.now), list, &mut self.actions);
        commit.verdict
    }

    /// Task and node of what was placed.
    fn placed(&mut self) -> Vec<(u64, u32)> {
        let place = |action| match action {
            Action::Node(node, ToNode::Place(task, ..)) => Some((task.id.0, node.0)),
            _ => None,
        };
        self.actions.drain(..).filter_map(place).collect()
    }

    /// As long as something is handed out, each list is committed before the next is made.
    fn run(&mut self) -> Vec<(u64, u32)> {
        while let Some(wanted) = self.take() {
            let list = self.list(&wanted, true);
            self.commit(&list);
        }
        self.placed()
    }
}

#[test]
fn the_shortest_goes_out_first_and_comes_back_to_its_place() {
    let mut one = One::new(&[size(10, 10)], LISTS);
    one.notice(0, 1, size(1, 1), 0);
    for (id, remaining) in [(1, 9.0), (2, 3.0), (3, 5.0)] {
        one.forward(id, size(1, 1), remaining);
    }
    assert_eq!(one.run(), [(2, 0)]);
    assert_eq!((one.global.waiting(), one.global.out()), (2, 0));
    one.notice(0, 2, size(1, 1), 1);
    assert_eq!(one.run(), [(3, 0)]);
    one.notice(0, 3, size(2, 2), 2);
    assert_eq!(one.run(), [(1, 0)]);
}

#[test]
fn what_changed_since_is_scored_anew_and_the_next_of_the_list_is_tried() {
    // By room: n0, then n1, then n2.
    let mut one = One::new(&[size(10, 10), size(10, 10), size(10, 10)], LISTS);
    one.notice(1, 1, size(9, 9), 0);
    one.notice(2, 1, size(8, 8), 0);
    one.forward(1, size(1, 1), 1.0);
    let wanted = one.take().expect("it waits");
    let list = one.list(&wanted, true);
    let nodes: Vec<u32> = list.entries.iter().map(|entry| entry.node.0).collect();
    assert_eq!(nodes, [0, 1, 2]);
    // The first has no room any more, the second less than the third.
    one.notice(0, 1, size(0, 0), 0);
    one.notice(1, 2, size(2, 2), 0);
    let commit = one.global.commit(ms(2.5), &list, &mut one.actions);
    assert_eq!(commit.verdict, Verdict::Listed(2));
    assert!(commit.conflict);
    assert_eq!(commit.took, ms(1.5));
    assert_eq!(one.placed(), [(1, 2)]);
    assert_eq!(one.commit(&list), Verdict::Ignored, "it comes twice");
    assert_eq!(one.placed(), []);
}

#[test]
fn after_as_many_failed_lists_as_may_be_all_nodes_are_looked_at() {
    let mut one = One::new(&[size(10, 10), size(10, 10)], LISTS);
    one.notice(1, 1, size(0, 0), 0);
    one.forward(1, size(5, 5), 1.0);
    // The pre-scheduler never reads again: it believes that n0 has room and n1 has none.
    let wanted = one.take().expect("it waits");
    let list = one.list(&wanted, true);
    one.notice(0, 1, size(0, 0), 0);
    one.notice(1, 2, size(10, 10), 0);
    assert_eq!(one.commit(&list), Verdict::Returned);
    let wanted = one.take().expect("it waits again");
    let list = one.list(&wanted, false);
    assert_eq!(one.commit(&list), Verdict::Scanned);
    assert_eq!(one.placed(), [(1, 1)]);
}

#[test]
fn a_task_without_room_is_not_handed_out_before_a_node_has_more() {
    // Neither has both, though together they would: only a look at each finds that out.
    let mut one = One::new(&[size(10, 10), size(10, 10)], LISTS);
    one.notice(0, 1, size(10, 0), 0);
    one.notice(1, 1, size(0, 10), 0);
    one.forward(1, size(5, 5), 1.0);
    for verdict in [Verdict::Returned, Verdict::Waiting] {
        let wanted = one.take().expect("it may fit");
        let list = one.list(&wanted, true);
        assert_eq!(one.commit(&list), verdict);
    }
    assert_eq!(one.take(), None);
    assert!(!one.global.has_work());
    one.notice(0, 2, size(4, 4), 0);
    assert!(one.global.has_work(), "it has more of one class");
    assert_eq!(one.take(), None, "no node can have room for it");
    one.notice(1, 2, size(6, 10), 0);
    assert_eq!(one.run(), [(1, 1)]);
}

#[test]
fn a_pre_scheduler_that_dies_loses_no_task() {
    let mut one = One::new(&[size(10, 10)], LISTS);
    one.forward(1, size(1, 1), 1.0);
    let wanted = one.take().expect("it waits");
    let late = one.list(&wanted, true);
    assert_eq!(one.global.next_timer(), Some(ms(31.0)));
    assert_eq!((one.global.waiting(), one.take()), (1, None));
    one.now = 31.0;
    let again = one.take().expect("its time with the first is over");
    assert_ne!(again.ticket, wanted.ticket);
    assert_eq!(one.commit(&late), Verdict::Ignored);
    let list = one.list(&again, true);
    assert_eq!(one.commit(&list), Verdict::Listed(0));
    assert_eq!(one.placed(), [(1, 0)]);
}

#[test]
fn no_more_are_out_than_may_be_and_all_count_as_waiting() {
    let mut one = One::new(&[size(100, 100)], LISTS);
    for id in 1..=6 {
        one.forward(id, size(1, 1), 1.0);
    }
    let out: Vec<ListRequest> = std::iter::from_fn(|| one.take()).collect();
    assert_eq!(
        (out.len(), one.global.out(), one.global.waiting()),
        (4, 4, 6)
    );
    let list = one.list(&out[2], true);
    assert_eq!(one.commit(&list), Verdict::Listed(0));
    assert_eq!((one.global.out(), one.global.waiting()), (3, 5));
}

#[test]
fn a_task_that_is_fenced_or_expires_while_it_is_out_is_not_placed() {
    let mut one = One::new(&[size(100, 100)], LISTS);
    one.forward(1, size(1, 1), 1.0);
    one.forward(2, size(1, 1), 2.0);
    let out: Vec<ListRequest> = std::iter::from_fn(|| one.take()).collect();
    let lists: Vec<List> = out.iter().map(|wanted| one.list(wanted, true)).collect();
    let fence = Fence {
        id: TaskId(1),
        attempt: 1,
        deadline: ms(5000.0),
    };
    let now = ms(2.0);
    one.global
        .receive(now, ToGlobal::Fence(fence), &mut one.actions);
    assert_eq!(one.commit(&lists[0]), Verdict::Gone);
    let mut tight = LISTS;
    tight.lease = ms(1e9);
    assert_eq!(one.placed(), []);
    let mut two = One::new(&[size(100, 100)], tight);
    two.forward(2, size(1, 1), 2.0);
    let wanted = two.take().expect("it waits");
    let list = two.list(&wanted, true);
    two.now = 5000.5;
    assert_eq!(two.commit(&list), Verdict::Gone);
    let refused = |action: &Action<Resources>| matches!(action, Action::Submitter(ToSubmitter::Refused { id, .. }) if *id == TaskId(2));
    assert!(two.actions.iter().any(refused));
    assert_eq!(two.global.waiting(), 0);
}

proptest! {
    #[test]
    fn one_pre_scheduler_that_reads_after_each_commit_places_as_if_there_were_none(
        sizes in prop::collection::vec((1u64..9, 1u64..9), 1..6),
        tasks in prop::collection::vec((1u64..9, 1u64..9, 0.0..9.0), 0..20),
    ) {
        let capacities: Vec<Resources> = sizes.iter().map(|&(cpu, memory)| size(cpu, memory)).collect();
        let mut serial = Global::new(&capacities, settings());
        let mut one = One::new(&capacities, LISTS);
        let (mut actions, mut expected) = (Vec::new(), Vec::new());
        for (id, &(cpu, memory, remaining)) in (0..).zip(&tasks) {
            one.forward(id, size(cpu, memory), remaining);
            let message = ToGlobal::Forward(task(id, 1, size(cpu, memory), remaining), Term(0));
            serial.receive(ms(1.0), message, &mut actions);
        }
        while serial.has_work() && serial.decide(ms(1.0), &mut actions) {}
        for action in actions {
            if let Action::Node(node, ToNode::Place(task, ..)) = action {
                expected.push((task.id.0, node.0));
            }
        }
        prop_assert_eq!(one.run(), expected);
        prop_assert_eq!(one.global.waiting(), serial.waiting());
    }
}
