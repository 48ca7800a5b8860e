//! The state machines on a network without delay, against a naive model that looks at all nodes at once.

use std::collections::VecDeque;

use fdn_core::Millis;
use fdn_scheduling::instance::{
    Action, Global, GlobalSettings, Limits, Node, NodeIndex, Policy, Running, Settings, Slots,
    Stage, Task, TaskId, ToNode,
};
use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::cluster::ms;

/// Nodes and a global scheduler whose messages arrive at once, in the order of sending.
struct Instant {
    now: Millis,
    nodes: Vec<Node<Slots>>,
    global: Global<Slots>,
    rng: ChaCha8Rng,
    started: Vec<(TaskId, NodeIndex, Stage, Running)>,
}

impl Instant {
    fn new(policy: Policy, capacities: &[u32], seed: u64) -> Self {
        let settings = Settings {
            notice_every: Millis::ZERO,
            limits: Limits {
                memory: 1024,
                ..Limits::default()
            },
            ..Settings::for_round_trip(ms(1.0)).with_policy(policy)
        };
        let patient = GlobalSettings {
            look_ahead: 1000,
            queue: 1024,
            memory_limit: 1024,
            ..GlobalSettings::for_round_trip(ms(1.0))
        };
        let slots: Vec<Slots> = capacities.iter().map(|&capacity| Slots(capacity)).collect();
        let count = u32::try_from(slots.len()).expect("as set up");
        Self {
            now: Millis::ZERO,
            nodes: (0..count)
                .zip(&slots)
                .map(|(at, slots)| {
                    Node::new(NodeIndex(at), count, *slots, settings).expect("as set up")
                })
                .collect(),
            global: Global::new(&slots, patient),
            rng: ChaCha8Rng::seed_from_u64(seed),
            started: Vec::new(),
        }
    }

    fn deliver(&mut self, actions: &mut Vec<Action<Slots>>) {
        let mut under_way: VecDeque<Action<Slots>> = actions.drain(..).collect();
        while let Some(action) = under_way.pop_front() {
            match action {
                Action::Start {
                    node,
                    task,
                    stage,
                    running,
                } => self.started.push((task.id, node, stage, running)),
                Action::Node(to, message) => {
                    let node = &mut self.nodes[to.get()];
                    node.receive(self.now, message, &mut self.rng, actions);
                    node.poll(self.now, &mut self.rng, actions);
                }
                Action::Global(message) => {
                    self.global.receive(self.now, message, actions);
                    while self.global.has_work() && self.global.decide(self.now, actions) {}
                }
                Action::Submitter(_) => {}
            }
            under_way.extend(actions.drain(..));
        }
    }

    fn submit(&mut self, home: u32, task: Task<Slots>) {
        self.now += ms(0.001);
        self.deliver(&mut vec![Action::Node(
            NodeIndex(home),
            ToNode::Submit(task),
        )]);
    }

    fn end(&mut self, node: NodeIndex, running: Running) {
        self.now += ms(0.001);
        let mut actions = Vec::new();
        self.nodes[node.get()].ended(running);
        self.nodes[node.get()].poll(self.now, &mut self.rng, &mut actions);
        self.deliver(&mut actions);
    }

    fn free(&self) -> Vec<u32> {
        self.nodes.iter().map(|node| node.free().0).collect()
    }
}

/// What happens: a task of this home, size and length arrives, or the n-th of the running instances ends.
#[derive(Clone, Copy, Debug)]
enum Step {
    Arrive(u32, u32, u32),
    End(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let arrive = (0u32..8, 1u32..3, 1u32..50).prop_map(|(h, d, l)| Step::Arrive(h, d, l));
    let end = any::<usize>().prop_map(Step::End);
    prop::collection::vec(prop_oneof![3 => arrive, 2 => end], 1..120)
}

fn task(id: u64, demand: u32, length: u32) -> Task<Slots> {
    Task {
        id: TaskId(id),
        attempt: 1,
        leg: 0,
        demand: Slots(demand),
        remaining: ms(f64::from(length)),
        deadline: ms(1e6),
    }
}

/// Where a task must go by a look at all nodes; several when a probe may find either.
fn allowed(policy: Policy, home: usize, demand: u32, free: &[u32]) -> (Stage, Vec<usize>) {
    if free[home] >= demand {
        return (Stage::Local, vec![home]);
    }
    let fits: Vec<usize> = (0..free.len())
        .filter(|&node| free[node] >= demand)
        .collect();
    if policy == Policy::LocalProbeGlobal && !fits.is_empty() {
        return (Stage::Probe, fits);
    }
    let most = fits.iter().map(|&node| free[node]).max();
    let best = fits.into_iter().find(|&node| Some(free[node]) == most);
    (Stage::Global, best.into_iter().collect())
}

fn compare(policy: Policy, capacities: &[u32], steps: &[Step], seed: u64) {
    let mut machine = Instant::new(policy, capacities, seed);
    let mut free = capacities.to_vec();
    // Waiting tasks by length and arrival, and what runs.
    let mut waiting: Vec<(u32, u64, u32)> = Vec::new();
    let mut running: Vec<(NodeIndex, Running, u32)> = Vec::new();
    let mut demands = std::collections::BTreeMap::new();
    for (step, id) in steps.iter().zip(0u64..) {
        let before = machine.started.len();
        let mut expected: Vec<(u64, Stage, Vec<usize>)> = Vec::new();
        match *step {
            Step::Arrive(home, demand, length) => {
                let home = home % u32::try_from(capacities.len()).expect("as set up");
                demands.insert(TaskId(id), demand);
                machine.submit(home, task(id, demand, length));
                if capacities.iter().all(|&capacity| capacity < demand) {
                    assert_eq!(machine.started.len(), before, "too large for any node");
                    continue;
                }
                let (stage, nodes) = allowed(policy, home as usize, demand, &free);
                if nodes.is_empty() {
                    waiting.push((length, id, demand));
                    waiting.sort_unstable();
                } else {
                    expected.push((id, stage, nodes));
                }
            }
            Step::End(at) if !running.is_empty() => {
                let (node, handle, demand) = running.swap_remove(at % running.len());
                free[node.get()] += demand;
                machine.end(node, handle);
                // The shortest that fits goes first, then the next.
                let mut left = free.clone();
                waiting.retain(|&(_, id, demand)| {
                    let (_, nodes) = allowed(Policy::BottomUp, 0, demand, &with_home_full(&left));
                    let Some(&node) = nodes.first() else {
                        return true;
                    };
                    left[node - 1] -= demand;
                    expected.push((id, Stage::Global, vec![node - 1]));
                    false
                });
            }
            Step::End(_) => {}
        }
        let found = &machine.started[before..];
        assert_eq!(found.len(), expected.len(), "{found:?} {expected:?}");
        for (&(id, node, stage, handle), (expected, by, nodes)) in found.iter().zip(&expected) {
            assert_eq!((id, stage), (TaskId(*expected), *by));
            assert!(nodes.contains(&node.get()), "{node} of {nodes:?}");
            free[node.get()] -= demands[&id];
            running.push((node, handle, demands[&id]));
        }
        assert_eq!(machine.free(), free);
        assert_eq!(machine.global.waiting(), waiting.len());
    }
}

/// The nodes behind one that has no room.
fn with_home_full(free: &[u32]) -> Vec<u32> {
    std::iter::once(0).chain(free.iter().copied()).collect()
}

/// The properties, for as many cases as asked.
macro_rules! properties {
    ($cases:expr) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases($cases))]

            #[test]
            fn bottom_up_places_every_task_where_a_look_at_all_nodes_does(
                capacities in prop::collection::vec(0u32..4, 1..8), steps in steps(), seed in any::<u64>(),
            ) {
                compare(Policy::BottomUp, &capacities, &steps, seed);
            }

            #[test]
            fn of_three_nodes_both_others_are_asked_and_the_rest_waits_shortest_first(
                capacities in prop::collection::vec(0u32..4, 3), steps in steps(), seed in any::<u64>(),
            ) {
                compare(Policy::LocalProbeGlobal, &capacities, &steps, seed);
            }
        }
    };
}

properties!(60);

mod soak {
    use super::*;

    properties!(400);
}
