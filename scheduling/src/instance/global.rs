//! The global scheduler of a cluster: for the few tasks that found no room by themselves.
//!
//! **Problem.** A task that two nodes refused still wants the best place there is, soon, and nobody else knows all nodes.
//!
//! **Source.** The patent "Highly scalable distributed scheduling system for serverless computing" (Tianjin University, 2022):
//! a heap by remaining time; the shortest goes to the node with the most free resources in this scheduler's view; a node that
//! no longer has the room bounces it, which corrects the view; without room anywhere a task waits for a release notice.
//!
//! **Readings.** The view lags: a node's notice may be older than the last placement sent there. Placements are therefore numbered
//! per node, a notice says which it has seen, and the others are taken off what it reports. A task that fits nowhere does not
//! keep back smaller ones: up to `look_ahead` such tasks are passed over.
//!
//! **Losses.** As for nodes (see [`super`]): every leg is decided once and remembered; a second message repeats it.
//!
//! **Complexity.** O(log q + log n) per decision with q tasks waiting on n nodes (unit slots), O(log n) per notice; no
//! allocation once the tables have grown.
//!
//! **Bounds.** Waiting tasks, remembered tasks ([`GlobalSettings`]); one more is refused, with the reason.

use std::collections::VecDeque;

use fdn_core::Millis;

use super::demand::Demand;
use super::memory::Memory;
use super::message::{
    Action, Fence, NodeIndex, Refusal, Standing, Task, ToGlobal, ToNode, ToOrigin,
};
use super::order::{Arrival, ShortestFirst};
use super::settings::GlobalSettings;
use super::view::View;

/// Placements under way to one node that need no new memory; more are rare.
const UNDER_WAY: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Placed(NodeIndex, u64),
    Refused(Refusal),
    Fenced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    attempt: u32,
    leg: u32,
    state: State,
}

/// What is known of a node beside what the view says is free.
#[derive(Clone, Debug)]
struct Known<D> {
    capacity: D,
    reported: D,
    version: Option<u64>,
    lost: bool,
    /// The number of placements sent there, and those it had not seen when it last reported.
    serial: u64,
    under_way: VecDeque<(u64, D)>,
}

/// A placement that is forgotten if the node has not seen it by then: its message is lost.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    until: Millis,
    node: NodeIndex,
    serial: u64,
}

impl<D: Demand> Known<D> {
    /// All of it free until the node says otherwise.
    fn new(capacity: D) -> Self {
        Self {
            capacity,
            reported: capacity,
            version: None,
            lost: false,
            serial: 0,
            under_way: VecDeque::with_capacity(UNDER_WAY),
        }
    }

    fn free(&self) -> D {
        if self.lost {
            return D::default();
        }
        self.under_way
            .iter()
            .fold(self.reported, |free, (_, demand)| {
                free.minus_or_zero(demand)
            })
    }

    /// The placements up to this one are no longer under way.
    fn arrived(&mut self, serial: u64) {
        while self
            .under_way
            .front()
            .is_some_and(|(first, _)| *first <= serial)
        {
            self.under_way.pop_front();
        }
    }
}

/// The global scheduler.
#[derive(Clone, Debug)]
pub struct Global<D> {
    settings: GlobalSettings,
    queue: ShortestFirst<Task<D>>,
    /// Tasks of the last look ahead that go back into the queue.
    passed_over: Vec<(Arrival, Task<D>)>,
    memory: Memory<Record>,
    nodes: Vec<Known<D>>,
    view: View<D>,
    sizes: View<D>,
    under_way: VecDeque<UnderWay>,
    /// Whether something has changed since nothing that waits could be placed.
    worth_a_look: bool,
}

impl<D: Demand> Global<D> {
    /// For nodes of these capacities, all of it free until they say otherwise.
    #[must_use]
    pub fn new(capacities: &[D], settings: GlobalSettings) -> Self {
        let mut view = View::new(capacities.len());
        for (capacity, node) in capacities.iter().zip(0..) {
            view.set(NodeIndex(node), *capacity, capacity.room(capacity));
        }
        Self {
            settings,
            queue: ShortestFirst::default(),
            passed_over: Vec::new(),
            memory: Memory::new(settings.memory, settings.memory_limit),
            nodes: capacities.iter().map(|&capacity| Known::new(capacity)).collect(),
            sizes: view.clone(),
            view,
            under_way: VecDeque::new(),
            worth_a_look: false,
        }
    }

    /// How many tasks wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// How many tasks it remembers.
    #[must_use]
    pub const fn remembered(&self) -> usize {
        self.memory.len()
    }

    /// What it believes to be free on a node.
    #[must_use]
    pub fn believed(&self, node: NodeIndex) -> D {
        self.view.free(node)
    }

    /// Whether [`Self::decide`] may place something.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.worth_a_look && !self.queue.is_empty()
    }

    /// A message arrives.
    pub fn receive(&mut self, now: Millis, message: ToGlobal<D>, actions: &mut Vec<Action<D>>) {
        self.expire(now);
        match message {
            ToGlobal::Forward(task) => self.queue_up(now, task, actions),
            ToGlobal::Bounce(task, standing) => {
                self.update(&standing);
                self.queue_up(now, task, actions);
            }
            ToGlobal::Notice(standing) => self.update(&standing),
            ToGlobal::Fence(fence) => self.fence(fence, actions),
        }
    }

    /// Places the shortest task that fits somewhere; false if none does.
    pub fn decide(&mut self, now: Millis, actions: &mut Vec<Action<D>>) -> bool {
        self.expire(now);
        let mut too_much: Option<D> = None;
        let mut placed = false;
        while self.passed_over.len() <= self.settings.look_ahead {
            let Some((arrival, task)) = self.queue.pop() else {
                break;
            };
            if !self.is_waiting(&task) {
                continue;
            }
            if now > task.deadline {
                self.refuse(&task, Refusal::Expired, actions);
                continue;
            }
            // What asks for no less than one that fits nowhere need not be looked at.
            let fits_nowhere = too_much.is_some_and(|least| least.fits(&task.demand));
            let best = (!fits_nowhere).then(|| self.view.best(&task.demand));
            if let Some(node) = best.flatten() {
                self.place(now, &task, node, actions);
                placed = true;
                break;
            }
            too_much = too_much.or(Some(task.demand));
            self.passed_over.push((arrival, task));
        }
        for (arrival, task) in self.passed_over.drain(..) {
            self.queue.push_back(task.remaining, arrival, task);
        }
        self.worth_a_look = placed;
        placed
    }

    /// When [`Self::decide`] may find room without a message: a placement under way is taken for lost.
    #[must_use]
    pub fn next_timer(&self) -> Option<Millis> {
        let first = self.under_way.front()?;
        (!self.queue.is_empty()).then_some(first.until)
    }

    /// A node is lost for good; see [`super::Node::lost`].
    pub fn lost(&mut self, node: NodeIndex) {
        self.nodes[node.get()].lost = true;
        self.revise(node);
    }

    /// A node is there again, as a new one: what it had before is forgotten.
    pub fn returned(&mut self, node: NodeIndex) {
        let known = &mut self.nodes[node.get()];
        known.lost = false;
        known.version = None;
        known.reported = D::default();
        known.under_way.clear();
        self.revise(node);
    }

    /// A new node takes the next index, all of it free until it says otherwise.
    pub fn grow(&mut self, capacity: D) -> NodeIndex {
        let node = NodeIndex(u32::try_from(self.nodes.len()).expect("there are fewer nodes"));
        self.nodes.push(Known::new(capacity));
        for view in [&mut self.view, &mut self.sizes] {
            view.grow(self.nodes.len());
            view.set(node, capacity, capacity.room(&capacity));
        }
        self.worth_a_look = true;
        node
    }

    /// A lost node's index goes to another node, of this capacity, all of it free until it says otherwise.
    pub fn replaced(&mut self, node: NodeIndex, capacity: D) {
        let serial = self.nodes[node.get()].serial;
        self.nodes[node.get()] = Known {
            serial,
            ..Known::new(capacity)
        };
        self.sizes.set(node, capacity, capacity.room(&capacity));
        self.revise(node);
    }

    fn queue_up(&mut self, now: Millis, task: Task<D>, actions: &mut Vec<Action<D>>) {
        if now > task.deadline {
            return;
        }
        match self.memory.get(task.id) {
            Some(known) if known.attempt > task.attempt => return,
            Some(known) if known.attempt == task.attempt && known.leg >= task.leg => {
                return self.repeat(&task, known, actions);
            }
            Some(_) | None => {}
        }
        let record = Record {
            attempt: task.attempt,
            leg: task.leg,
            state: State::Waiting,
        };
        if self.memory.put(task.id, task.deadline, record).is_err() {
            tell_refusal(&task, Refusal::MemoryFull, actions);
        } else if self.sizes.best(&task.demand).is_none() {
            self.refuse(&task, Refusal::TooLarge, actions);
        } else if self.queue.len() >= self.settings.queue {
            self.refuse(&task, Refusal::QueueFull, actions);
        } else {
            self.queue.push(task.remaining, task);
            self.worth_a_look = true;
        }
    }

    fn repeat(&self, task: &Task<D>, known: Record, actions: &mut Vec<Action<D>>) {
        match known.state {
            State::Waiting | State::Fenced => {}
            State::Placed(node, _) if self.nodes[node.get()].lost => {
                actions.push(Action::Origin(ToOrigin::Broken {
                    id: task.id,
                    attempt: task.attempt,
                }));
            }
            State::Placed(node, serial) => {
                let message = ToNode::Place(task.passed_on(known.leg), serial);
                actions.push(Action::Node(node, message));
            }
            State::Refused(refusal) => tell_refusal(task, refusal, actions),
        }
    }

    /// It may have been fenced since it was queued, or queued again as a later leg.
    fn is_waiting(&self, task: &Task<D>) -> bool {
        let waits = Record {
            attempt: task.attempt,
            leg: task.leg,
            state: State::Waiting,
        };
        self.memory.get(task.id) == Some(waits)
    }

    fn decided(&mut self, task: &Task<D>, state: State) {
        let record = Record {
            attempt: task.attempt,
            leg: task.leg,
            state,
        };
        self.memory.change(task.id, record);
    }

    fn place(
        &mut self,
        now: Millis,
        task: &Task<D>,
        node: NodeIndex,
        actions: &mut Vec<Action<D>>,
    ) {
        let known = &mut self.nodes[node.get()];
        known.serial += 1;
        let serial = known.serial;
        known.under_way.push_back((serial, task.demand));
        self.under_way.push_back(UnderWay {
            until: now + self.settings.under_way,
            node,
            serial,
        });
        self.revise(node);
        self.decided(task, State::Placed(node, serial));
        let message = ToNode::Place(task.passed_on(task.leg), serial);
        actions.push(Action::Node(node, message));
    }

    fn refuse(&mut self, task: &Task<D>, refusal: Refusal, actions: &mut Vec<Action<D>>) {
        self.decided(task, State::Refused(refusal));
        tell_refusal(task, refusal, actions);
    }

    /// What a node says of itself, unless it has said something newer.
    fn update(&mut self, standing: &Standing<D>) {
        let known = &mut self.nodes[standing.node.get()];
        if known.lost
            || known
                .version
                .is_some_and(|version| version > standing.version)
        {
            return;
        }
        known.version = Some(standing.version);
        known.reported = standing.free;
        known.arrived(standing.seen);
        self.revise(standing.node);
    }

    fn revise(&mut self, node: NodeIndex) {
        let known = &self.nodes[node.get()];
        let free = known.free();
        self.worth_a_look |= !free.fits(&self.view.free(node));
        self.view.set(node, free, free.room(&known.capacity));
    }

    /// Forgets tasks whose time is over, and placements whose message must be lost.
    fn expire(&mut self, now: Millis) {
        while self.memory.forget(now).is_some() {}
        while let Some(first) = self.under_way.front().copied() {
            if first.until > now {
                return;
            }
            self.under_way.pop_front();
            self.nodes[first.node.get()].arrived(first.serial);
            self.revise(first.node);
        }
    }

    fn fence(&mut self, fence: Fence, actions: &mut Vec<Action<D>>) {
        let Fence {
            id,
            attempt,
            deadline,
        } = fence;
        let is_newer = |known: Record| known.attempt > attempt;
        if !self.memory.get(id).is_some_and(is_newer) {
            let record = Record {
                attempt,
                leg: u32::MAX,
                state: State::Fenced,
            };
            if self.memory.put(id, deadline, record).is_err() {
                return;
            }
        }
        actions.push(Action::Origin(ToOrigin::Fenced {
            id,
            attempt,
            by: None,
            started: false,
        }));
    }
}

fn tell_refusal<D>(task: &Task<D>, refusal: Refusal, actions: &mut Vec<Action<D>>) {
    actions.push(Action::Origin(ToOrigin::Refused {
        id: task.id,
        attempt: task.attempt,
        refusal,
    }));
}
