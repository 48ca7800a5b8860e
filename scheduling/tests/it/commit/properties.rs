//! What must hold whatever happens: containers and nodes come and go, lists are late, doubled or lost, nodes refuse.

use std::collections::BTreeMap;

use fdn_core::{InstanceId, Millis, Resources};
use fdn_scheduling::commit::{
    Choice, Committer, Container, ContainerState, LeastRequested, List, NodeSelection, Placed,
    PreScheduler, Presence, Settings, Ties, Verdict, Version, View,
};
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;

use super::{committer, container, node, rng, size};

#[derive(Clone, Debug)]
enum Event {
    Submit {
        number: u128,
        cores: u64,
    },
    /// A pre-scheduler reads, takes and lists; its list is under way.
    Take {
        pre_scheduler: usize,
        reads: bool,
    },
    /// A list arrives, and may arrive again later.
    Arrive {
        which: usize,
        again: bool,
    },
    Release {
        number: u128,
    },
    Refuse {
        number: u128,
        cores: u64,
    },
    Observe {
        node: u32,
        cores: u64,
    },
    Add {
        cores: u64,
    },
    Lose {
        node: u32,
    },
    Drain {
        node: u32,
    },
    Resume {
        node: u32,
    },
    Pass {
        time: f64,
    },
}

fn event() -> impl Strategy<Value = Event> {
    let number = 0u128..30;
    prop_oneof![
        6 => (number.clone(), 1u64..4).prop_map(|(number, cores)| Event::Submit { number, cores }),
        8 => (0usize..4, prop::bool::weighted(0.6))
            .prop_map(|(pre_scheduler, reads)| Event::Take { pre_scheduler, reads }),
        8 => (any::<usize>(), prop::bool::weighted(0.2))
            .prop_map(|(which, again)| Event::Arrive { which, again }),
        3 => number.clone().prop_map(|number| Event::Release { number }),
        1 => (number, 0u64..5).prop_map(|(number, cores)| Event::Refuse { number, cores }),
        1 => (0u32..7, 0u64..5).prop_map(|(node, cores)| Event::Observe { node, cores }),
        1 => (1u64..6).prop_map(|cores| Event::Add { cores }),
        1 => (0u32..7).prop_map(|node| Event::Lose { node }),
        1 => (0u32..7).prop_map(|node| Event::Drain { node }),
        1 => (0u32..7).prop_map(|node| Event::Resume { node }),
        1 => (0.0..20.0).prop_map(|time| Event::Pass { time }),
    ]
}

const BOUNDS: Settings = Settings {
    in_flight_max: 4,
    unplaced_max: 10,
    containers_max: 16,
    nodes_max: 6,
    retries_max: 1,
    lease: Millis::new(30.0),
    history: 5,
};

struct World {
    committer: Committer<LeastRequested>,
    views: [View; 4],
    pre_schedulers: [PreScheduler<LeastRequested>; 4],
    rng: ChaCha8Rng,
    now: Millis,
    under_way: Vec<List>,
    /// What the nodes were told to run.
    running: BTreeMap<InstanceId, usize>,
    foreign: BTreeMap<usize, Resources>,
    versions: Vec<Version>,
}

impl World {
    fn new() -> Self {
        let choice = |selection, ties| Choice {
            length: 2,
            selection,
            ties,
        };
        let part = NodeSelection::Part { index: 1, of: 2 };
        let choices = [
            (NodeSelection::All, Ties::Node),
            (NodeSelection::Sample(3), Ties::Random),
            (part, Ties::Random),
            (NodeSelection::Dealt { hands: 2 }, Ties::Node),
        ];
        Self {
            committer: committer(BOUNDS, &[size(3, 9), size(5, 9), size(4, 9)]),
            views: Default::default(),
            pre_schedulers: choices.map(|(selection, ties)| {
                PreScheduler::new(LeastRequested, choice(selection, ties))
            }),
            rng: rng(11),
            now: Millis::ZERO,
            under_way: Vec::new(),
            running: BTreeMap::new(),
            foreign: BTreeMap::new(),
            versions: Vec::new(),
        }
    }

    fn play(&mut self, event: &Event) {
        let mut placed = Vec::new();
        let committer = &mut self.committer;
        match *event {
            Event::Submit { number, cores } => {
                // Refusals are checked by the bounds.
                let _ = committer.submit(container(number, size(cores, 1)));
            }
            Event::Take {
                pre_scheduler,
                reads,
            } => self.take(pre_scheduler, reads),
            Event::Arrive { which, again } => self.arrive(which, again),
            Event::Release { number } => {
                let id = container(number, size(0, 0)).id;
                let was = committer.release(id, &mut placed);
                let ran = self.running.remove(&id).is_some();
                assert_eq!(ran, matches!(was, Some(ContainerState::On(_))));
            }
            Event::Refuse { number, cores } => {
                let id = container(number, size(0, 0)).id;
                if let Some(on) = self.running.get(&id).copied() {
                    let on_node = node(u32::try_from(on).expect("few nodes"));
                    self.running.remove(&id);
                    assert!(committer.refuse(id, on_node, size(cores, 0), &mut placed));
                    self.foreign.insert(on, size(cores, 0));
                    self.correct_for_refusal(on);
                }
            }
            Event::Observe { node: n, cores } => {
                committer.observe(node(n), size(cores, 0), &mut placed);
                if self.present(n as usize) {
                    self.foreign.insert(n as usize, size(cores, 0));
                }
            }
            Event::Add { cores } => {
                let nodes = self.present_count();
                let added = self.committer.add_node(size(cores, 9), &mut placed);
                assert_eq!(added.is_err(), nodes == BOUNDS.nodes_max);
            }
            Event::Lose { node: n } => self.lose(n),
            Event::Drain { node: n } => drop(committer.drain_node(node(n))),
            Event::Resume { node: n } => drop(committer.resume_node(node(n), &mut placed)),
            Event::Pass { time } => {
                self.now += Millis::new(time);
                committer.expire(self.now);
            }
        }
        for placed in placed {
            self.start(&placed);
        }
    }

    /// A node that refused without being full in the committer's eyes counts as full.
    fn correct_for_refusal(&mut self, on: usize) {
        let record = self.committer.store().records()[on];
        let own = self.own(on);
        if record.used() != &own.saturating_add(&self.foreign[&on]) {
            self.foreign.insert(on, *record.capacity());
        }
    }

    fn take(&mut self, pre_scheduler: usize, reads: bool) {
        let Some(assignment) = self.committer.take(self.now) else {
            return;
        };
        let view = &mut self.views[pre_scheduler];
        if reads {
            view.read(self.committer.store());
            assert_eq!(view.records(), self.committer.store().records());
        }
        let mut list = List::default();
        self.pre_schedulers[pre_scheduler].list(
            &assignment,
            view.records(),
            &mut self.rng,
            &mut list,
        );
        self.under_way.push(list);
    }

    fn arrive(&mut self, which: usize, again: bool) {
        if self.under_way.is_empty() {
            return;
        }
        let which = which % self.under_way.len();
        let list = if again {
            self.under_way[which].clone()
        } else {
            self.under_way.swap_remove(which)
        };
        let commit = self.committer.commit(&list);
        if let Verdict::Placed(placed) = commit.verdict {
            self.start(&placed);
        }
    }

    fn lose(&mut self, n: u32) {
        let was = self.present(n as usize);
        let mut lost: Vec<Container> = Vec::new();
        assert_eq!(self.committer.lose_node(node(n), &mut lost), was);
        let mut lost: Vec<InstanceId> = lost.iter().map(|container| container.id).collect();
        lost.sort_unstable();
        let on = self.running.iter().filter(|&(_, &on)| on == n as usize);
        let expected: Vec<InstanceId> = on.map(|(&id, _)| id).collect();
        assert_eq!(lost, expected);
        self.running.retain(|_, on| *on != n as usize);
        self.foreign.remove(&(n as usize));
    }

    /// A node is told to run a container: it must have room, and nobody else may have been told.
    fn start(&mut self, placed: &Placed) {
        let record = self.committer.store().records()[placed.node.get()];
        assert_eq!(record.presence(), Presence::Up);
        assert!(record.used().fits(record.capacity()), "over capacity");
        let before = self.running.insert(placed.container.id, placed.node.get());
        assert_eq!(before, None, "committed twice");
    }

    fn present(&self, n: usize) -> bool {
        let record = self.committer.store().records().get(n);
        record.is_some_and(|record| record.presence() != Presence::Absent)
    }

    fn present_count(&self) -> usize {
        (0..self.committer.store().records().len())
            .filter(|&n| self.present(n))
            .count()
    }

    fn own(&self, n: usize) -> Resources {
        self.committer
            .containers()
            .filter(|(_, at)| matches!(at, ContainerState::On(on) if on.get() == n))
            .fold(Resources::default(), |sum, (container, _)| {
                sum.saturating_add(&container.demand)
            })
    }

    fn check(&mut self) {
        let records = self.committer.store().records();
        for (n, record) in records.iter().enumerate() {
            let foreign = self.foreign.get(&n).copied().unwrap_or_default();
            assert_eq!(*record.used(), self.own(n).saturating_add(&foreign));
            let before = self.versions.get(n).copied().unwrap_or_default();
            assert!(record.version() >= before, "a version fell");
        }
        self.versions = records.iter().map(|record| record.version()).collect();
        let on: BTreeMap<InstanceId, usize> = self
            .committer
            .containers()
            .filter_map(|(container, at)| match at {
                ContainerState::On(node) => Some((container.id, node.get())),
                ContainerState::Pending | ContainerState::Out | ContainerState::Waiting => None,
            })
            .collect();
        assert_eq!(on, self.running);
        for (container, at) in self.committer.containers() {
            let fits = records
                .iter()
                .any(|record| record.has_room(&container.demand));
            assert!(
                !(at == ContainerState::Waiting && fits),
                "waits beside room"
            );
        }
        assert!(self.committer.count(ContainerState::Out) <= BOUNDS.in_flight_max);
        assert!(self.committer.containers().count() <= BOUNDS.containers_max);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_room_is_given_twice_and_no_container_placed_twice(events in prop::collection::vec(event(), 1..150)) {
        let mut world = World::new();
        for event in &events {
            world.play(event);
            world.check();
        }
    }
}
