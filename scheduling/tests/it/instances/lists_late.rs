//! The global scheduler with pre-schedulers whose lists come late, twice or never, while nodes and tasks come and go.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::Resources;
use fdn_scheduling::commit::{Choice, List, NodeSelection, PreScheduler, Ties, Version, View};
use fdn_scheduling::instance::{
    Action, ByRoom, Fence, Global, NodeIndex, NodeReport, TaskId, Term, ToGlobal, ToNode,
};
use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::cluster::ms;
use super::lists::{Actions, LISTS, settings, size, task};

#[derive(Clone, Debug)]
enum Event {
    Forward(u64, u32, u64, u64, f64),
    Take(usize, bool),
    Arrive(usize, bool),
    Notice(u32, u64, u64, u64),
    Lose(u32),
    Return(u32),
    Fence(u64),
    Pass(f64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0u64..25, 1u32..4, 1u64..5, 1u64..5, 0.0..9.0)
            .prop_map(|(id, leg, cpu, memory, time)| Event::Forward(id, leg, cpu, memory, time)),
        8 => (0usize..3, prop::bool::weighted(0.6)).prop_map(|(who, reads)| Event::Take(who, reads)),
        8 => (any::<usize>(), prop::bool::weighted(0.2))
            .prop_map(|(which, again)| Event::Arrive(which, again)),
        5 => (0u32..4, 0u64..10, 0u64..10, 0u64..9)
            .prop_map(|(node, cpu, memory, unseen)| Event::Notice(node, cpu, memory, unseen)),
        1 => (1u32..4).prop_map(Event::Lose),
        1 => (1u32..4).prop_map(Event::Return),
        1 => (0u64..25).prop_map(Event::Fence),
        1 => (0.0..40.0).prop_map(Event::Pass),
    ]
}

#[derive(Clone, Debug, Default)]
struct Model {
    reported: Resources,
    version: u64,
    /// Placements that it has not seen, by number.
    unseen: BTreeMap<u64, Resources>,
    lost: bool,
}

/// Three pre-schedulers whose lists come late, twice or never, against a model of what each node has promised to have.
struct World {
    global: Global<Resources>,
    views: [View; 3],
    schedulers: [PreScheduler<ByRoom>; 3],
    rng: ChaCha8Rng,
    now: f64,
    lists: Vec<List>,
    model: Vec<Model>,
    placed: BTreeSet<(u64, u32)>,
    fenced: BTreeSet<u64>,
    versions: Vec<Version>,
    actions: Actions,
}

impl World {
    fn new() -> Self {
        let capacity = size(9, 9);
        let choice = |selection, ties| Choice {
            length: 2,
            selection,
            ties,
        };
        let choices = [
            (NodeSelection::All, Ties::Node),
            (NodeSelection::Sample(2), Ties::Random),
            (NodeSelection::Dealt { hands: 2 }, Ties::Random),
        ];
        let model = Model {
            reported: capacity,
            ..Model::default()
        };
        Self {
            global: Global::new(&[capacity; 4], settings()).with_lists(LISTS),
            views: Default::default(),
            schedulers: choices
                .map(|(selection, ties)| PreScheduler::new(ByRoom, choice(selection, ties))),
            rng: ChaCha8Rng::seed_from_u64(5),
            now: 0.0,
            lists: Vec::new(),
            model: vec![model; 4],
            placed: BTreeSet::new(),
            fenced: BTreeSet::new(),
            versions: vec![Version::default(); 4],
            actions: Vec::new(),
        }
    }

    fn hears(&mut self, message: ToGlobal<Resources>) {
        self.global
            .receive(ms(self.now), message, &mut self.actions);
    }

    fn step(&mut self, event: &Event) {
        match *event {
            Event::Forward(id, leg, cpu, memory, remaining) => {
                let task = task(id, leg, size(cpu, memory), remaining);
                self.hears(ToGlobal::Forward(task, Term(0)));
            }
            Event::Take(who, reads) => {
                if reads {
                    let store = self.global.records().expect("it keeps them");
                    self.views[who].read(store);
                }
                if let Some(wanted) = self.global.take(ms(self.now), &mut self.actions) {
                    let mut list = List::default();
                    let records = self.views[who].records();
                    self.schedulers[who].list_for(&wanted, records, &mut self.rng, &mut list);
                    self.lists.push(list);
                }
            }
            Event::Arrive(which, again) if !self.lists.is_empty() => {
                let which = which % self.lists.len();
                let list = if again {
                    self.lists[which].clone()
                } else {
                    self.lists.swap_remove(which)
                };
                self.global.commit(ms(self.now), &list, &mut self.actions);
            }
            Event::Arrive(..) => {}
            Event::Notice(node, cpu, memory, unseen) => {
                self.notice(node, size(cpu, memory), unseen)
            }
            Event::Lose(node) => {
                self.global.lost(NodeIndex(node));
                self.model[node as usize].lost = true;
            }
            Event::Return(node) if self.model[node as usize].lost => {
                self.global.returned(NodeIndex(node));
                self.model[node as usize] = Model::default();
            }
            Event::Return(_) => {}
            Event::Fence(id) => {
                let fence = Fence {
                    id: TaskId(id),
                    attempt: 1,
                    deadline: ms(5000.0),
                };
                self.hears(ToGlobal::Fence(fence));
                self.fenced.insert(id);
            }
            Event::Pass(time) => self.now += time,
        }
    }

    /// A node says what it has, and has seen all but the last few placements.
    fn notice(&mut self, node: u32, free: Resources, unseen: u64) {
        let model = &mut self.model[node as usize];
        if model.lost {
            return;
        }
        let last = model.unseen.keys().next_back().copied();
        let seen = last.map_or(0, |last| last.saturating_sub(unseen));
        model.version += 1;
        model.reported = free;
        model.unseen.retain(|serial, _| *serial > seen);
        let report = NodeReport {
            node: NodeIndex(node),
            version: model.version,
            free,
            term: Term(0),
            seen,
        };
        self.hears(ToGlobal::Notice(report));
    }

    fn check(&mut self) {
        for action in std::mem::take(&mut self.actions) {
            let Action::Node(node, ToNode::Place(task, _, serial)) = action else {
                continue;
            };
            let (id, leg) = (task.id.0, task.leg);
            let model = &mut self.model[node.get()];
            let is_new = self.placed.insert((id, leg));
            if !is_new {
                // The same message once more.
                continue;
            }
            assert!(!self.fenced.contains(&id), "{id} was fenced");
            assert!(!model.lost, "{node} is lost");
            model.unseen.insert(serial, task.demand);
            let promised = model
                .unseen
                .values()
                .try_fold(model.reported, |left, demand| left.checked_sub(demand));
            assert!(promised.is_some(), "{node} has no room for {id}: {model:?}");
        }
        let store = self.global.records().expect("it keeps them");
        for (at, node) in (0..4).map(NodeIndex).enumerate() {
            let record = store.get(node).expect("there are four");
            assert!(record.version() >= self.versions[at], "versions only grow");
            self.versions[at] = record.version();
            assert_eq!(record.free(), self.global.assumed_free(node), "{node}");
        }
        assert!(self.global.out() <= LISTS.in_flight);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn whatever_becomes_of_lists_no_node_is_promised_more_than_it_has(
        events in prop::collection::vec(event(), 0..300),
    ) {
        let mut world = World::new();
        for event in &events {
            world.step(event);
            world.check();
        }
    }

    #[test]
    fn what_has_changed_since_is_what_a_copy_lacks(
        events in prop::collection::vec(event(), 0..100),
        every in 1usize..20,
    ) {
        let mut world = World::new();
        let (mut copy, mut seen) = (View::default(), 0);
        for (at, event) in events.iter().enumerate() {
            world.step(event);
            if at % every == 0 {
                let store = world.global.records().expect("it keeps them");
                for (node, record) in store.since(seen) {
                    copy.apply(node, record);
                }
                seen = store.changes();
                prop_assert_eq!(copy.records(), store.records());
            }
        }
    }
}
