//! Nodes that change and say so in messages that are lost, doubled and out of order: the copy never goes back in time, what is gone
//! stays gone, and with the next full report of each node the copy is the truth.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::InstanceId;
use fdn_scheduling::registry::{Event, InstanceReport, Limits, NodeReport, Registry, Stamp, State};
use proptest::prelude::*;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{function, id, node, registry, size};

/// A node as it really is.
#[derive(Clone, Debug)]
struct Truth {
    stamp: Stamp,
    report: NodeReport,
    instances: BTreeMap<InstanceId, InstanceReport>,
}

#[derive(Clone, Debug)]
enum Message {
    Node(u32, Stamp, NodeReport),
    Instance(u32, InstanceReport),
    Full(u32, Stamp, NodeReport, Vec<InstanceReport>),
}

/// What happens at the nodes.
#[derive(Clone, Debug)]
enum Change {
    Start { on: u32, of: u32 },
    Step { on: u32, pick: usize, event: Event },
    Restart { on: u32 },
    Resize { on: u32, cores: u64 },
    SayAll { on: u32 },
}

fn change() -> impl Strategy<Value = Change> {
    let on = 0u32..2;
    let event = prop::sample::select(Event::ALL.as_slice());
    prop_oneof![
        5 => (on.clone(), 0u32..2).prop_map(|(on, of)| Change::Start { on, of }),
        12 => (on.clone(), any::<usize>(), event)
            .prop_map(|(on, pick, event)| Change::Step { on, pick, event }),
        1 => on.clone().prop_map(|on| Change::Restart { on }),
        1 => (on.clone(), 1u64..9).prop_map(|(on, cores)| Change::Resize { on, cores }),
        1 => on.prop_map(|on| Change::SayAll { on }),
    ]
}

impl Truth {
    fn new() -> Self {
        Self {
            stamp: Stamp::new(1, 1),
            report: size(4),
            instances: BTreeMap::new(),
        }
    }

    fn say_all(&self, on: u32) -> Message {
        let all = self.instances.values().copied().collect();
        Message::Full(on, self.stamp, self.report, all)
    }

    /// Changes, and says so.
    fn change(&mut self, change: &Change, next: &mut u128) -> Option<Message> {
        self.stamp.sequence += 1;
        match *change {
            Change::Start { on, of } => {
                *next += 1;
                let new = InstanceReport {
                    id: id(*next),
                    function: function(of),
                    state: State::Starting,
                    stamp: self.stamp,
                };
                self.instances.insert(new.id, new);
                Some(Message::Instance(on, new))
            }
            Change::Step { on, pick, event } => {
                let at = pick.checked_rem(self.instances.len())?;
                let instance = self.instances.values_mut().nth(at).expect("within");
                instance.state = instance.state.apply(event).ok()?;
                instance.stamp = self.stamp;
                let said = *instance;
                if said.state == State::Gone {
                    self.instances.remove(&said.id);
                }
                Some(Message::Instance(on, said))
            }
            Change::Restart { on } => {
                self.stamp = Stamp::new(self.stamp.epoch + 1, 1);
                self.instances.clear();
                Some(Message::Node(on, self.stamp, self.report))
            }
            Change::Resize { on, cores } => {
                self.report = size(cores);
                Some(Message::Node(on, self.stamp, self.report))
            }
            Change::SayAll { on } => Some(self.say_all(on)),
        }
    }
}

fn deliver(registry: &mut Registry, message: &Message) {
    let mut lost = Vec::new();
    let done = match message {
        Message::Node(on, stamp, report) => {
            registry.observe_node(node(*on), *stamp, *report, &mut lost)
        }
        Message::Instance(on, said) => registry.observe_instance(node(*on), *said, &mut lost),
        Message::Full(on, stamp, report, all) => {
            registry.reconcile(node(*on), *stamp, *report, all, &mut lost)
        }
    };
    done.expect("nothing here is out of bounds");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_copy_only_becomes_newer_and_ends_as_the_truth(
        changes in prop::collection::vec(change(), 1..80),
        seed in any::<u64>(),
        spread in 1usize..12,
    ) {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut registry = registry(Limits::default());
        let mut truth = [Truth::new(), Truth::new()];
        let mut next = 0;
        let (mut under_way, mut ended) = (Vec::new(), BTreeSet::new());
        let mut stamps: BTreeMap<InstanceId, Stamp> = BTreeMap::new();
        for change in &changes {
            let (Change::Start { on, .. }
            | Change::Step { on, .. }
            | Change::Restart { on }
            | Change::Resize { on, .. }
            | Change::SayAll { on }) = *change;
            under_way.extend(truth[on as usize].change(change, &mut next));
            if under_way.len() < spread {
                continue;
            }
            // One of those under way arrives: for good, again later, or never.
            under_way.shuffle(&mut rng);
            let fate = rng.random_range(0..10);
            let message = under_way.pop().expect("some are under way");
            if fate > 0 {
                deliver(&mut registry, &message);
            }
            if fate > 7 {
                under_way.push(message);
            }
            let held: BTreeMap<InstanceId, Stamp> =
                registry.instances().filter_map(|(id, held)| Some((id, held.stamp?))).collect();
            for (id, stamp) in &stamps {
                match held.get(id) {
                    Some(now) => prop_assert!(now >= stamp, "went back in time"),
                    None => drop(ended.insert(*id)),
                }
            }
            prop_assert!(held.keys().all(|id| !ended.contains(id)), "came back");
            stamps = held;
        }
        for on in [0, 1] {
            let all = truth[on as usize].say_all(on);
            // The last word is newer than all before it.
            let Message::Full(_, mut stamp, report, instances) = all else { unreachable!() };
            stamp.sequence += 1;
            deliver(&mut registry, &Message::Full(on, stamp, report, instances));
        }
        // What is still under way is old news.
        for message in &under_way {
            deliver(&mut registry, message);
        }
        for (on, truth) in (0u32..).zip(&truth) {
            prop_assert_eq!(registry.node(node(on)), Some(&truth.report));
            let held: Vec<_> = registry.instances_on(node(on)).collect();
            prop_assert_eq!(&held, &truth.instances.keys().copied().collect::<Vec<_>>());
            for id in held {
                let held = registry.instance(id).expect("known");
                prop_assert_eq!(held.state, truth.instances[&id].state);
            }
        }
    }
}
