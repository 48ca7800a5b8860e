//! Nodes and a global scheduler in one process whose messages arrive at once: for counting allocations and decisions.

use std::collections::VecDeque;

use fdn_core::Millis;
use fdn_scheduling::instance::{
    Action, Global, GlobalSettings, Limits, Load, Node, NodeIndex, Policy, Running, Settings,
    Slots, Task, TaskId, ToNode,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A cluster that is kept 95 % busy: every task that starts ends the one that has run longest.
pub(crate) struct Loopback {
    now: Millis,
    wanted: Millis,
    nodes: Vec<Node<Slots>>,
    global: Global<Slots>,
    rng: ChaCha8Rng,
    actions: Vec<Action<Slots>>,
    running: VecDeque<(NodeIndex, Running)>,
    busy: usize,
    next: u64,
    started: u64,
    /// What hints go by; nobody gathers it for other policies.
    loads: Option<Vec<Load<Slots>>>,
}

/// Twice as many as arrive at one of so many nodes while a task is remembered: some pass through several, or through one
/// more often than others.
fn remembered(wanted: Millis, nodes: u32) -> usize {
    let span = (wanted + Millis::new(1.0)).get();
    (span / 0.01 / f64::from(nodes) * 2.0) as usize + 64
}

impl Loopback {
    /// Tasks are wanted, and remembered, for this long; one arrives every 10 µs.
    pub(crate) fn new(policy: Policy, nodes: u32, slots: u32, wanted: Millis) -> Self {
        let settings = Settings {
            memory: Millis::new(1.0),
            limits: Limits {
                queue: 16,
                probing: 64,
                reservations: 64,
                waiters: 1024,
                running: slots as usize,
                memory: remembered(wanted, nodes),
            },
            ..Settings::for_round_trip(Millis::new(0.5)).with_policy(policy)
        };
        let global = GlobalSettings {
            memory: Millis::new(1.0),
            queue: 4096,
            placements: 4096,
            memory_limit: remembered(wanted, 2),
            ..GlobalSettings::for_round_trip(Millis::new(0.5))
        };
        let node = |at| Node::new(NodeIndex(at), nodes, Slots(slots), settings).expect("valid");
        Self {
            now: Millis::ZERO,
            wanted,
            nodes: (0..nodes).map(node).collect(),
            global: Global::new(&vec![Slots(slots); nodes as usize], global),
            rng: ChaCha8Rng::seed_from_u64(1),
            actions: Vec::with_capacity(256),
            running: VecDeque::with_capacity((nodes * slots) as usize + 1),
            busy: (nodes * slots) as usize * 95 / 100,
            next: 0,
            started: 0,
            loads: (policy == Policy::Hints).then(|| Vec::with_capacity(nodes as usize)),
        }
    }

    /// How many instances were started.
    pub(crate) const fn started(&self) -> u64 {
        self.started
    }

    /// So many tasks arrive.
    pub(crate) fn run(&mut self, tasks: u64) {
        for _ in 0..tasks {
            self.now += Millis::new(0.01);
            self.next += 1;
            if self.next % 500 == 1 {
                self.take_snapshot();
            }
            let task = Task {
                id: TaskId(self.next),
                attempt: 1,
                leg: 0,
                demand: Slots(1),
                remaining: Millis::new(1.0),
                deadline: self.now + self.wanted,
            };
            let home = NodeIndex(self.rng.random_range(0..self.nodes.len() as u32));
            self.actions.push(Action::Node(home, ToNode::Submit(task)));
            self.deliver();
            while self.running.len() > self.busy {
                self.end();
                self.deliver();
            }
        }
    }

    fn take_snapshot(&mut self) {
        let load = |node: &Node<Slots>| Load {
            capacity: node.capacity(),
            free: node.free(),
        };
        let Some(loads) = &mut self.loads else {
            return;
        };
        loads.clear();
        loads.extend(self.nodes.iter().map(load));
        for node in &mut self.nodes {
            node.snapshot(loads);
        }
    }

    fn end(&mut self) {
        // A random one of the older half, so that nodes differ in what is free.
        let at = self.rng.random_range(0..self.running.len() / 2);
        if let Some((node, running)) = self.running.swap_remove_back(at) {
            let node = &mut self.nodes[node.get()];
            node.ended(running);
            node.poll(self.now, &mut self.rng, &mut self.actions);
        }
    }

    fn deliver(&mut self) {
        let mut delivered = 0;
        while let Some(action) = self.actions.get(delivered).copied() {
            delivered += 1;
            match action {
                Action::Start { node, running, .. } => {
                    self.started += 1;
                    self.running.push_back((node, running));
                }
                Action::Node(to, message) => {
                    let node = &mut self.nodes[to.get()];
                    node.receive(self.now, message, &mut self.rng, &mut self.actions);
                    node.poll(self.now, &mut self.rng, &mut self.actions);
                }
                Action::Global(message) => {
                    self.global.receive(self.now, message, &mut self.actions);
                    while self.global.has_work() && self.global.decide(self.now, &mut self.actions)
                    {
                    }
                }
                Action::Submitter(_) => {}
            }
        }
        self.actions.clear();
    }
}
