//! A whole cluster in virtual time, with a network that loses, doubles and delays, and nodes that are lost. Every rule is checked
//! after every event.

mod pre_schedulers;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use fdn_core::Millis;
use fdn_scheduling::commit::{List, PreScheduler, View};
use fdn_scheduling::instance::{
    Action, ByRoom, Global, GlobalSettings, Limits, Load, Node, NodeIndex, Policy, Running,
    Settings, Settled, Slots, Stage, Submitter, SubmitterSettings, TaskId, Term, ToGlobal, ToNode,
    ToSubmitter,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use pre_schedulers::{pre_schedulers, with_lists};

pub(super) fn ms(value: f64) -> Millis {
    Millis::new(value)
}

/// What happens in a run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) policy: Policy,
    pub(super) capacities: Vec<u32>,
    /// When each task arrives, how many slots it takes, and for how long.
    pub(super) tasks: Vec<(f64, u32, f64)>,
    /// Until when messages are lost and doubled, and with which probabilities.
    pub(super) rough_until: f64,
    pub(super) loss: f64,
    pub(super) duplicate: f64,
    /// A message takes from 0.1 to this long; while it is rough, one in ten takes ten times as long.
    pub(super) slowest: f64,
    /// Nodes that are lost, and when.
    pub(super) losses: Vec<(f64, u32)>,
    /// When the global scheduler is lost.
    pub(super) heads: Vec<f64>,
    /// Whether it is only believed to be lost, and goes on.
    pub(super) deposed: bool,
    pub(super) wanted: f64,
    /// How many pre-schedulers the global scheduler has; 0: it decides by itself.
    pub(super) pre_schedulers: usize,
    /// How many tasks may be on their way.
    pub(super) window: usize,
    pub(super) seed: u64,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Submit(usize),
    Node(NodeIndex, ToNode<Slots>),
    Global(ToGlobal<Slots>),
    Submitter(ToSubmitter),
    /// A list of a pre-scheduler comes to the global scheduler of this term.
    Listed(Term, usize),
    End(NodeIndex, Running),
    Lose(NodeIndex),
    Hear(NodeIndex),
    LoseHead,
    TakeOver,
    /// A node, or the submitter, hears of another global scheduler.
    Headed(Option<NodeIndex>, Term),
    Tick,
    Snapshot,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Start {
    pub(super) node: NodeIndex,
    pub(super) at: Millis,
    pub(super) stage: Stage,
}

pub(super) struct Cluster {
    plan: Plan,
    settings: Settings,
    now: Millis,
    pub(super) nodes: Vec<Node<Slots>>,
    lost: Vec<bool>,
    /// Those whose loss is known.
    heard: Vec<NodeIndex>,
    pub(super) global: Global<Slots>,
    head_lost: bool,
    /// The one before, if it does not know that it was replaced.
    deposed: Option<Global<Slots>>,
    pub(super) submitter: Submitter<Slots>,
    rng: ChaCha8Rng,
    network: ChaCha8Rng,
    events: BinaryHeap<Reverse<(Millis, u64, usize)>>,
    bodies: Vec<Event>,
    actions: Vec<Action<Slots>>,
    lives: BTreeMap<TaskId, f64>,
    pub(super) starts: BTreeMap<TaskId, Vec<Start>>,
    pub(super) settled: BTreeMap<TaskId, Settled>,
    /// When each node last said that it had reserved something.
    reserved_at: Vec<Millis>,
    /// Whether a tick is under way.
    ticking: bool,
    /// Each pre-scheduler, and its copy of what this global scheduler believes.
    pre_schedulers: Vec<(PreScheduler<ByRoom>, View)>,
    lists: Vec<List>,
    /// Of the global scheduler that they work for.
    term: Term,
}

fn capacities(plan: &Plan) -> Vec<Slots> {
    plan.capacities.iter().map(|&slots| Slots(slots)).collect()
}

fn global_settings(plan: &Plan) -> GlobalSettings {
    GlobalSettings {
        memory: ms(3000.0),
        queue: 1024,
        memory_limit: 1024,
        ..GlobalSettings::for_round_trip(ms(plan.slowest * 2.0))
    }
}

const TICK: f64 = 0.5;
const DETECTION: f64 = 30.0;

impl Cluster {
    pub(super) fn new(plan: Plan) -> Self {
        let round_trip = ms(plan.slowest * 2.0);
        let settings = Settings {
            memory: ms(3000.0),
            limits: Limits {
                memory: 1024,
                ..Limits::default()
            },
            ..Settings::for_round_trip(round_trip)
        }
        .with_policy(plan.policy);
        let count = u32::try_from(plan.capacities.len()).expect("few");
        let node = |(&capacity, at)| {
            Node::new(NodeIndex(at), count, Slots(capacity), settings).expect("valid settings")
        };
        let submitter = SubmitterSettings {
            wanted: ms(plan.wanted),
            memory: ms(2500.0),
            open: 1024,
            window: plan.window,
            patience: ms(60.0),
            ..SubmitterSettings::for_round_trip(round_trip)
        };
        let mut cluster = Self {
            settings,
            now: Millis::ZERO,
            nodes: plan.capacities.iter().zip(0..).map(node).collect(),
            lost: vec![false; plan.capacities.len()],
            heard: Vec::new(),
            global: with_lists(
                &plan,
                Global::new(&capacities(&plan), global_settings(&plan)),
            ),
            head_lost: false,
            deposed: None,
            submitter: Submitter::new(count, TaskId(0), submitter),
            rng: ChaCha8Rng::seed_from_u64(plan.seed),
            network: ChaCha8Rng::seed_from_u64(plan.seed ^ 0xFFFF),
            events: BinaryHeap::new(),
            bodies: Vec::new(),
            actions: Vec::new(),
            lives: BTreeMap::new(),
            starts: BTreeMap::new(),
            settled: BTreeMap::new(),
            reserved_at: vec![Millis::ZERO; plan.capacities.len()],
            ticking: true,
            pre_schedulers: pre_schedulers(&plan),
            lists: Vec::new(),
            term: Term(0),
            plan,
        };
        for (at, task) in cluster.plan.tasks.clone().into_iter().enumerate() {
            cluster.at(ms(task.0), Event::Submit(at));
        }
        for (at, node) in cluster.plan.losses.clone() {
            cluster.at(ms(at), Event::Lose(NodeIndex(node)));
        }
        for at in cluster.plan.heads.clone() {
            cluster.at(ms(at), Event::LoseHead);
        }
        cluster.at(ms(TICK), Event::Tick);
        cluster.at(Millis::ZERO, Event::Snapshot);
        cluster
    }

    fn at(&mut self, at: Millis, event: Event) {
        self.bodies.push(event);
        self.events.push(Reverse((
            at,
            self.bodies.len() as u64,
            self.bodies.len() - 1,
        )));
    }

    /// Runs until nothing is open and nothing is under way, or the time is over.
    pub(super) fn run(&mut self, until: f64) {
        while let Some(Reverse((at, _, body))) = self.events.pop() {
            if at > ms(until) {
                return;
            }
            self.now = at;
            let event = self.bodies[body];
            self.step(event);
            self.act();
            self.check();
            // An instance that ends late may make room for a question: the lease ends by a timer of the node.
            if !self.ticking && self.holds() {
                self.tick_soon();
            }
        }
    }

    fn tick_soon(&mut self) {
        self.ticking = true;
        self.at(self.now + ms(TICK), Event::Tick);
    }

    /// Whether a node still asks, or has room reserved.
    fn holds(&self) -> bool {
        self.live()
            .any(|node| node.reserved() > Slots(0) || node.open_probes() > 0)
    }

    fn step(&mut self, event: Event) {
        let (now, rng, actions) = (self.now, &mut self.rng, &mut self.actions);
        match event {
            Event::Submit(at) => {
                let (_, demand, life) = self.plan.tasks[at];
                let id = self
                    .submitter
                    .submit(now, Slots(demand), ms(life), rng, actions)
                    .expect("few are open");
                self.lives.insert(id, life);
            }
            Event::Node(node, message) if !self.lost[node.get()] => {
                let scheduler = &mut self.nodes[node.get()];
                scheduler.receive(now, message, rng, actions);
                scheduler.poll(now, rng, actions);
            }
            Event::Global(message) => {
                let current = (!self.head_lost).then_some(&mut self.global);
                for global in current.into_iter().chain(&mut self.deposed) {
                    global.receive(now, message, actions);
                }
                self.decide();
            }
            Event::Listed(term, at) => {
                let list = self.lists[at].clone();
                let current = (!self.head_lost).then_some(&mut self.global);
                let mut all = current.into_iter().chain(&mut self.deposed);
                if let Some(global) = all.find(|global| global.term() == term) {
                    global.commit(now, &list, actions);
                }
                self.decide();
            }
            Event::Submitter(message) => {
                let settled = self.submitter.receive(now, message, rng, actions);
                self.settle(settled);
            }
            Event::End(node, running) if !self.lost[node.get()] => {
                let scheduler = &mut self.nodes[node.get()];
                scheduler.ended(running);
                scheduler.ended(running);
                scheduler.poll(now, rng, actions);
            }
            Event::Node(..) | Event::End(..) => {}
            Event::Lose(node) => {
                self.lost[node.get()] = true;
                self.at(now + ms(DETECTION), Event::Hear(node));
            }
            Event::Hear(node) => self.hear(node),
            Event::LoseHead => {
                self.head_lost |= !self.plan.deposed;
                self.at(now + ms(DETECTION), Event::TakeOver);
            }
            Event::TakeOver => self.take_over(),
            Event::Headed(Some(node), term) => {
                if !self.lost[node.get()] {
                    self.nodes[node.get()].headed(term);
                    self.nodes[node.get()].poll(now, rng, actions);
                }
            }
            Event::Headed(None, term) => {
                let mut settled = Vec::new();
                self.submitter.headed(now, term, rng, actions, &mut settled);
                for settled in settled {
                    self.settle(Some(settled));
                }
            }
            Event::Tick => self.tick(),
            Event::Snapshot => {
                let load = |node: &Node<Slots>| Load {
                    capacity: node.capacity(),
                    free: node.free(),
                };
                let loads: Vec<Load<Slots>> = self.nodes.iter().map(load).collect();
                for node in &mut self.nodes {
                    node.snapshot(&loads);
                }
                if self.is_busy() {
                    self.at(now + ms(5.0), Event::Snapshot);
                }
            }
        }
    }

    fn is_busy(&self) -> bool {
        self.submitter.open() > 0 || self.lives.len() < self.plan.tasks.len()
    }

    fn hear(&mut self, lost: NodeIndex) {
        let (now, rng, actions) = (self.now, &mut self.rng, &mut self.actions);
        for (at, node) in self.nodes.iter_mut().enumerate() {
            if !self.lost[at] {
                node.lost(now, lost, rng, actions);
            }
        }
        self.heard.push(lost);
        self.global.lost(lost);
        if let Some(deposed) = &mut self.deposed {
            deposed.lost(lost);
        }
        let mut settled = Vec::new();
        self.submitter.lost(now, lost, rng, actions, &mut settled);
        for settled in settled {
            self.settle(Some(settled));
        }
    }

    /// Everybody hears of the new one at a time of his own.
    fn take_over(&mut self) {
        let term = Term(self.global.term().0 + 1);
        let new = Global::take_over(&capacities(&self.plan), term, global_settings(&self.plan));
        let new = with_lists(&self.plan, new);
        self.pre_schedulers = pre_schedulers(&self.plan);
        self.term = term;
        let old = std::mem::replace(&mut self.global, new);
        self.deposed = self.plan.deposed.then_some(old);
        self.head_lost = false;
        for node in self.heard.clone() {
            self.global.lost(node);
        }
        let nodes = (0..self.nodes.len()).map(|at| Some(self.nodes[at].index()));
        for who in nodes.chain([None]).collect::<Vec<_>>() {
            let delay = self.network.random_range(0.1..=DETECTION);
            self.at(self.now + ms(delay), Event::Headed(who, term));
        }
    }

    fn tick(&mut self) {
        self.ticking = false;
        let (now, rng, actions) = (self.now, &mut self.rng, &mut self.actions);
        for (at, node) in self.nodes.iter_mut().enumerate() {
            if !self.lost[at] {
                node.poll(now, rng, actions);
                assert!(node.next_timer().is_none_or(|next| next > now));
            }
        }
        self.decide();
        let (rng, actions) = (&mut self.rng, &mut self.actions);
        let mut all = Vec::new();
        while let Some(settled) = self.submitter.tick(now, rng, actions) {
            all.push(settled);
        }
        for settled in all {
            self.settle(Some(settled));
        }
        if self.is_busy() || self.holds() {
            self.tick_soon();
        }
    }

    fn settle(&mut self, settled: Option<Settled>) {
        let Some(settled) = settled else { return };
        let id = match settled {
            Settled::Started(id, node) => {
                let starts = &self.starts[&id];
                assert!(starts.iter().any(|start| start.node == node), "{settled:?}");
                id
            }
            Settled::Refused(id, _) | Settled::Unresolved(id) => id,
        };
        assert_eq!(self.settled.insert(id, settled), None, "settled once");
    }

    fn act(&mut self) {
        let actions = std::mem::take(&mut self.actions);
        for action in actions {
            match action {
                Action::Start {
                    node,
                    task,
                    stage,
                    running,
                } => self.started(node, task.id, stage, running),
                Action::Node(to, message) => {
                    if let ToNode::Reply {
                        from, yes: true, ..
                    } = message
                    {
                        self.reserved_at[from.get()] = self.now;
                    }
                    self.send(Event::Node(to, message));
                }
                Action::Global(message) => self.send(Event::Global(message)),
                Action::Submitter(message) => self.send(Event::Submitter(message)),
            }
        }
    }

    fn started(&mut self, node: NodeIndex, id: TaskId, stage: Stage, running: Running) {
        let starts = self.starts.entry(id).or_default();
        for earlier in starts.iter() {
            assert!(
                self.lost[earlier.node.get()],
                "{id} was started on {} at {} and on {node} at {}",
                earlier.node,
                earlier.at,
                self.now
            );
        }
        starts.push(Start {
            node,
            at: self.now,
            stage,
        });
        let life = ms(self.lives[&id]);
        self.at(self.now + life, Event::End(node, running));
    }

    fn send(&mut self, event: Event) {
        let is_rough = self.now < ms(self.plan.rough_until);
        let copies = match is_rough {
            false => 1,
            true => {
                let lost = self.network.random::<f64>() < self.plan.loss;
                let doubled = self.network.random::<f64>() < self.plan.duplicate;
                usize::from(!lost) + usize::from(doubled)
            }
        };
        for _ in 0..copies {
            let mut delay = self.network.random_range(0.1..=self.plan.slowest.max(0.11));
            if is_rough && self.network.random_range(0..10) == 0 {
                delay *= 10.0;
            }
            self.at(self.now + ms(delay), event);
        }
    }

    fn check(&self) {
        for (at, node) in self.nodes.iter().enumerate() {
            let taken = node.used().0 + node.reserved().0;
            assert!(taken <= node.capacity().0, "{} is over", node.index());
            assert_eq!(taken + node.free().0, node.capacity().0);
            if !self.lost[at] {
                // Ticks are half a millisecond apart.
                let end = self.reserved_at[at] + self.settings.lease + ms(TICK);
                assert!(
                    node.reserved() == Slots(0) || self.now <= end,
                    "a lease on {} outlives its end",
                    node.index()
                );
            }
        }
    }

    /// Starts of a task on nodes that are not lost.
    pub(super) fn lasting(&self, id: TaskId) -> usize {
        let starts = self.starts.get(&id).map_or(&[][..], Vec::as_slice);
        let lasts = |start: &&Start| !self.lost[start.node.get()];
        starts.iter().filter(lasts).count()
    }

    pub(super) fn live(&self) -> impl Iterator<Item = &Node<Slots>> {
        let nodes = self.nodes.iter().zip(&self.lost);
        nodes.filter(|(_, lost)| !**lost).map(|(node, _)| node)
    }

    pub(super) fn ids(&self) -> Vec<TaskId> {
        self.lives.keys().copied().collect()
    }
}
