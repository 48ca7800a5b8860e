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

use fdn_core::Millis;

use super::demand::Demand;
use super::memory::{Memory, Place};
use super::message::{
    Action, Fence, NodeIndex, Refusal, Standing, Task, Term, ToGlobal, ToNode, ToOrigin,
};
use super::order::{Arrival, ShortestFirst};
use super::settings::GlobalSettings;
use super::slab::Slab;
use super::view::View;

/// No placement.
const NONE: u32 = u32::MAX;

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

/// A task that waits, and where that is noted.
#[derive(Clone, Copy, Debug)]
struct Waiting<D> {
    task: Task<D>,
    place: Place,
}

/// What is known of a node beside what the view says is free.
#[derive(Clone, Debug)]
struct Known<D> {
    capacity: D,
    reported: D,
    version: Option<u64>,
    lost: bool,
    /// The number of placements sent there.
    serial: u64,
    /// The first and the last of those that it had not seen when it last reported.
    first: u32,
    last: u32,
}

impl<D> Known<D> {
    const fn new(capacity: D, reported: D) -> Self {
        Self {
            capacity,
            reported,
            version: None,
            lost: false,
            serial: 0,
            first: NONE,
            last: NONE,
        }
    }
}

/// A placement that is forgotten if the node has not seen it by then: its message is lost.
#[derive(Clone, Copy, Debug)]
struct UnderWay<D> {
    until: Millis,
    node: NodeIndex,
    serial: u64,
    demand: D,
    /// The next one to the same node.
    next: u32,
}

/// The global scheduler.
#[derive(Clone, Debug)]
pub struct Global<D> {
    settings: GlobalSettings,
    term: Term,
    queue: ShortestFirst<Waiting<D>>,
    /// Tasks of the last look ahead that go back into the queue.
    passed_over: Vec<(Arrival, Waiting<D>)>,
    memory: Memory<Record>,
    nodes: Vec<Known<D>>,
    view: View<D>,
    sizes: View<D>,
    under_way: Slab<UnderWay<D>>,
    /// Whether something has changed since nothing that waits could be placed.
    worth_a_look: bool,
}

impl<D: Demand> Global<D> {
    /// The first one of a cluster, for nodes of these capacities, all of it free until they say otherwise.
    #[must_use]
    pub fn new(capacities: &[D], settings: GlobalSettings) -> Self {
        let mut view = View::new(capacities.len());
        for (capacity, node) in capacities.iter().zip(0..) {
            view.set(NodeIndex(node), *capacity, capacity.room(capacity));
        }
        let known = |&capacity: &D| Known::new(capacity, capacity);
        Self {
            settings,
            term: Term::default(),
            queue: ShortestFirst::with_capacity(settings.queue),
            passed_over: Vec::with_capacity(settings.look_ahead + 1),
            memory: Memory::new(settings.memory, settings.memory_limit),
            nodes: capacities.iter().map(known).collect(),
            sizes: view.clone(),
            view,
            under_way: Slab::new(settings.placements),
            worth_a_look: false,
        }
    }

    /// One that takes over from another, of which nothing is known: nothing is free until nodes say so. `term` is larger
    /// than that of any before, and nodes are told of it ([`super::Node::headed`]), as is the origin if it sends
    /// tasks here ([`super::Origin::headed`]).
    #[must_use]
    pub fn take_over(capacities: &[D], term: Term, settings: GlobalSettings) -> Self {
        let known = |&capacity: &D| Known::new(capacity, D::default());
        Self {
            term,
            nodes: capacities.iter().map(known).collect(),
            view: View::new(capacities.len()),
            ..Self::new(capacities, settings)
        }
    }

    /// Which one it is.
    #[must_use]
    pub const fn term(&self) -> Term {
        self.term
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
            // What was meant for another one may have been decided there.
            ToGlobal::Forward(_, term) if term != self.term => {}
            ToGlobal::Bounce(_, standing) | ToGlobal::Notice(standing)
                if standing.term != self.term => {}
            ToGlobal::Forward(task, _) => self.queue_up(now, task, actions),
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
        while self.passed_over.len() <= self.settings.look_ahead && !self.under_way.is_full() {
            let Some((arrival, waiting)) = self.queue.pop() else {
                break;
            };
            let Waiting { task, place } = waiting;
            // It may have been fenced since it was queued, or queued again as a later leg.
            if self.memory.at(place, task.id) != Some(noted(&task)) {
                continue;
            }
            if now > task.deadline {
                self.refuse(&waiting, Refusal::Expired, actions);
                continue;
            }
            // What asks for no less than one that fits nowhere need not be looked at.
            let fits_nowhere = too_much.is_some_and(|least| least.fits(&task.demand));
            let best = (!fits_nowhere).then(|| self.view.best(&task.demand));
            if let Some(node) = best.flatten() {
                self.place(now, &waiting, node, actions);
                placed = true;
                break;
            }
            too_much = too_much.or(Some(task.demand));
            self.passed_over.push((arrival, waiting));
        }
        for (arrival, waiting) in self.passed_over.drain(..) {
            self.queue
                .push_back(waiting.task.remaining, arrival, waiting);
        }
        self.worth_a_look = placed;
        placed
    }

    /// When [`Self::decide`] may find room without a message: a placement under way is taken for lost.
    #[must_use]
    pub fn next_timer(&self) -> Option<Millis> {
        let (_, first) = self.under_way.first()?;
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
        self.arrived(node, u64::MAX);
        self.revise(node);
    }

    /// A new node takes the next index. Nothing is free there until it says so.
    pub fn grow(&mut self, capacity: D) -> NodeIndex {
        let node = NodeIndex(u32::try_from(self.nodes.len()).expect("there are fewer nodes"));
        self.nodes.push(Known::new(capacity, D::default()));
        for view in [&mut self.view, &mut self.sizes] {
            view.grow(self.nodes.len());
        }
        self.sizes.set(node, capacity, capacity.room(&capacity));
        node
    }

    /// A lost node's index goes to another node, of this capacity.
    pub fn replaced(&mut self, node: NodeIndex, capacity: D) {
        self.returned(node);
        self.nodes[node.get()].capacity = capacity;
        self.sizes.set(node, capacity, capacity.room(&capacity));
    }

    fn queue_up(&mut self, now: Millis, task: Task<D>, actions: &mut Vec<Action<D>>) {
        if now > task.deadline {
            return;
        }
        let record = noted(&task);
        let is_new = |known: Record| (known.attempt, known.leg) < (record.attempt, record.leg);
        let put = self.memory.put_if(task.id, task.deadline, record, is_new);
        let place = match put {
            Ok(Ok(place)) => place,
            Ok(Err(_)) => return tell_refusal(&task, Refusal::MemoryFull, actions),
            Err(known) => {
                if known.attempt == task.attempt {
                    self.repeat(&task, known, actions);
                }
                return;
            }
        };
        let waiting = Waiting { task, place };
        if self.sizes.best(&task.demand).is_none() {
            self.refuse(&waiting, Refusal::TooLarge, actions);
        } else if self.queue.len() >= self.settings.queue {
            self.refuse(&waiting, Refusal::QueueFull, actions);
        } else {
            self.queue.push(task.remaining, waiting);
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
                let message = ToNode::Place(task.passed_on(known.leg), self.term, serial);
                actions.push(Action::Node(node, message));
            }
            State::Refused(refusal) => tell_refusal(task, refusal, actions),
        }
    }

    fn decided(&mut self, waiting: &Waiting<D>, state: State) {
        let record = Record {
            state,
            ..noted(&waiting.task)
        };
        self.memory.change(waiting.place, waiting.task.id, record);
    }

    fn place(
        &mut self,
        now: Millis,
        waiting: &Waiting<D>,
        node: NodeIndex,
        actions: &mut Vec<Action<D>>,
    ) {
        let task = &waiting.task;
        let known = &mut self.nodes[node.get()];
        known.serial += 1;
        let serial = known.serial;
        let pushed = self.under_way.push(UnderWay {
            until: now + self.settings.under_way,
            node,
            serial,
            demand: task.demand,
            next: NONE,
        });
        if let Some(slot) = pushed {
            match self.under_way.get_mut(known.last) {
                Some(last) => last.next = slot,
                None => known.first = slot,
            }
            known.last = slot;
        }
        self.revise(node);
        self.decided(waiting, State::Placed(node, serial));
        let message = ToNode::Place(task.passed_on(task.leg), self.term, serial);
        actions.push(Action::Node(node, message));
    }

    /// The placements on a node up to this one are no longer under way.
    fn arrived(&mut self, node: NodeIndex, serial: u64) {
        let known = &mut self.nodes[node.get()];
        while let Some(first) = self.under_way.get(known.first).copied() {
            if first.serial > serial {
                return;
            }
            self.worth_a_look |= self.under_way.is_full();
            self.under_way.remove(known.first);
            known.first = first.next;
        }
        known.last = NONE;
    }

    /// What is free on a node, without what is under way to it.
    fn free(&self, node: NodeIndex) -> D {
        let known = &self.nodes[node.get()];
        if known.lost {
            return D::default();
        }
        let mut free = known.reported;
        let mut slot = known.first;
        while let Some(placement) = self.under_way.get(slot) {
            free = free.minus_or_zero(&placement.demand);
            slot = placement.next;
        }
        free
    }

    fn refuse(&mut self, waiting: &Waiting<D>, refusal: Refusal, actions: &mut Vec<Action<D>>) {
        self.decided(waiting, State::Refused(refusal));
        tell_refusal(&waiting.task, refusal, actions);
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
        self.arrived(standing.node, standing.seen);
        self.revise(standing.node);
    }

    fn revise(&mut self, node: NodeIndex) {
        let (free, before) = (self.free(node), self.view.free(node));
        if free != before {
            self.worth_a_look |= !free.fits(&before);
            let room = free.room(&self.nodes[node.get()].capacity);
            self.view.set(node, free, room);
        }
    }

    /// Forgets tasks whose time is over, and placements whose message must be lost.
    fn expire(&mut self, now: Millis) {
        while self.memory.forget(now).is_some() {}
        while let Some((_, &first)) = self.under_way.first() {
            if first.until > now {
                return;
            }
            self.arrived(first.node, first.serial);
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

/// As a task is noted that waits.
const fn noted<D>(task: &Task<D>) -> Record {
    Record {
        attempt: task.attempt,
        leg: task.leg,
        state: State::Waiting,
    }
}

fn tell_refusal<D>(task: &Task<D>, refusal: Refusal, actions: &mut Vec<Action<D>>) {
    actions.push(Action::Origin(ToOrigin::Refused {
        id: task.id,
        attempt: task.attempt,
        refusal,
    }));
}
