//! The state machine: what happens goes in, orders come out.

use fdn_core::Millis;

use super::container::{Claim, Containers, State};
use super::event::Action;
use super::heap::{Heap, IndexedHeap};
use super::id::{ContainerId, FunctionIndex, RequestId, Ticket};
use super::keep_alive::{Keep, KeepAlive};
use super::learn::LiveProfile;
use super::queue::{Queue, Queued};
use super::refusal::Refusal;
use super::settings::Settings;
use super::share::{Part, Shares};
use super::starvation::Starvation;
use super::weight::Weight;
use super::worker::Workers;

/// What is known of a function beside its queue.
#[derive(Clone, Debug)]
pub(super) struct Function {
    /// Idle containers, the most recently used first; their number is `W(j)`.
    pub(super) idle: Heap<std::cmp::Reverse<u64>>,
    /// Containers that hold memory, whatever they do.
    pub(super) containers: usize,
    /// Those of them that load for an invocation, and for nobody yet.
    pub(super) loading: usize,
    pub(super) ahead: usize,
    /// Idle containers that the keep-alive policy has let go.
    pub(super) let_go: usize,
    /// Whether a scaler decides beside the keep-alive policy.
    pub(super) is_scaled: bool,
    /// How many of them there may be before no new one is loaded for an invocation.
    pub(super) limit: usize,
    /// Busy containers that are not past their expected end; counted for queue-or-cold.
    pub(super) timely: usize,
    /// Until when a container that is loaded ahead is kept.
    pub(super) reload_until: Millis,
    pub(super) live: Option<LiveProfile>,
    pub(super) is_retired: bool,
    /// Its group, and what a container of it takes of the share.
    pub(super) part: Option<Part>,
}

/// The scheduler of invocations on a set of workers.
#[derive(Debug)]
pub struct Scheduler {
    pub(super) settings: Settings,
    pub(super) keep_alive: Box<dyn KeepAlive>,
    pub(super) now: Millis,
    pub(super) queue: Queue,
    pub(super) functions: Vec<Function>,
    pub(super) retired: Vec<u32>,
    pub(super) containers: Containers,
    pub(super) workers: Workers,
    pub(super) starvation: Starvation,
    pub(super) shares: Shares,
    /// How many times containers were used.
    pub(super) uses: u64,
    /// Idle containers by the end of their keeping, the least recently used first.
    pub(super) expiry: IndexedHeap<(Millis, u64)>,
    /// Busy containers by their expected end, for queue-or-cold.
    pub(super) expected: IndexedHeap<Millis>,
    /// Running containers by the end of their quantum.
    pub(super) quanta: IndexedHeap<Millis>,
    /// Functions by the time when a container is loaded ahead.
    pub(super) reloads: IndexedHeap<Millis>,
}

impl Scheduler {
    /// A scheduler without functions and workers.
    ///
    /// # Errors
    /// When a setting cannot be used.
    pub fn new(settings: Settings, keep_alive: Box<dyn KeepAlive>) -> Result<Self, Refusal> {
        settings.check()?;
        let ages = settings.starvation.is_some();
        Ok(Self {
            settings,
            keep_alive,
            now: Millis::ZERO,
            queue: Queue::new(settings.order, settings.queue, ages),
            functions: Vec::new(),
            retired: Vec::new(),
            containers: Containers::default(),
            workers: Workers::default(),
            starvation: Starvation::new(settings.starvation),
            shares: Shares::default(),
            uses: 0,
            expiry: IndexedHeap::default(),
            expected: IndexedHeap::default(),
            quanta: IndexedHeap::default(),
            reloads: IndexedHeap::default(),
        })
    }

    /// An invocation came. What can start is started.
    ///
    /// # Errors
    /// As [`Self::enqueue`].
    pub fn arrive(
        &mut self,
        now: Millis,
        request: RequestId,
        function: FunctionIndex,
        actions: &mut Vec<Action>,
    ) -> Result<Ticket, Refusal> {
        let ticket = self.enqueue(now, request, function)?;
        self.dispatch(actions);
        Ok(ticket)
    }

    /// An invocation came together with others: nothing starts until the next event, such as [`Self::tick`] after the last
    /// of them, so that the order decides between all.
    ///
    /// # Errors
    /// When the function is not known, no worker is large enough for it, or as many invocations wait as may.
    pub fn enqueue(
        &mut self,
        now: Millis,
        request: RequestId,
        function: FunctionIndex,
    ) -> Result<Ticket, Refusal> {
        self.check_function(function)?;
        let (wanted, largest) = (
            self.queue.profile(function).memory(),
            self.workers.largest(),
        );
        if wanted > largest && self.functions[function.get()].idle.is_empty() {
            return Err(Refusal::TooLarge {
                function,
                wanted,
                largest,
            });
        }
        self.advance(now);
        self.queue.push(function, request, self.now)
    }

    /// A waiting invocation is given up; `None` if it no longer waits.
    pub fn cancel(
        &mut self,
        now: Millis,
        ticket: Ticket,
        actions: &mut Vec<Action>,
    ) -> Option<RequestId> {
        let Queued { request, .. } = self.queue.cancel(ticket)?;
        self.advance(now);
        self.dispatch(actions);
        Some(request)
    }

    /// A container has been loaded.
    ///
    /// # Errors
    /// When it is not one that loads.
    pub fn ready(
        &mut self,
        now: Millis,
        container: ContainerId,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refusal> {
        let row = self.find(container)?;
        let was = *self.containers.get(row);
        let function = FunctionIndex::from_raw(was.function);
        match was.state {
            State::Loading(claim) => {
                self.advance(now);
                self.functions[function.get()].loading -= 1;
                self.run(row, claim);
            }
            State::Warming => {
                self.advance(now);
                let until = self.functions[function.get()].reload_until;
                self.loaded_ahead(row, until.max(self.now), actions);
            }
            State::Ahead => {
                self.advance(now);
                let until = self.keep_alive.loaded_ahead(self.now, function);
                self.loaded_ahead(row, until, actions);
            }
            State::Running { .. } | State::Idle | State::Gone => {
                return Err(Refusal::UnknownContainer { container });
            }
        }
        let took = self.now - was.since;
        self.learn(function, |live| live.saw_cold_start(took));
        self.dispatch(actions);
        Ok(())
    }

    /// The invocation in a container has ended; the container can take another one.
    ///
    /// # Errors
    /// When nothing runs in it.
    pub fn finished(
        &mut self,
        now: Millis,
        container: ContainerId,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refusal> {
        let row = self.find(container)?;
        let was = *self.containers.get(row);
        let State::Running { claim, since } = was.state else {
            return Err(Refusal::UnknownContainer { container });
        };
        self.advance(now);
        let function = FunctionIndex::from_raw(was.function);
        let executed = claim.executed + (self.now - since);
        self.learn(function, |live| live.saw_execution(executed));
        self.end_run(row, actions);
        self.dispatch(actions);
        Ok(())
    }

    /// A container is gone: it crashed, or could not be loaded.
    ///
    /// # Errors
    /// When it was gone before.
    pub fn failed(
        &mut self,
        now: Millis,
        container: ContainerId,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refusal> {
        let row = self.find(container)?;
        self.advance(now);
        self.forget(row, actions);
        self.dispatch(actions);
        Ok(())
    }

    /// A container of a function was seen to use this much memory.
    ///
    /// # Errors
    /// When the function is not known.
    pub fn saw_memory(
        &mut self,
        function: FunctionIndex,
        memory: impl Into<Weight>,
    ) -> Result<(), Refusal> {
        self.check_function(function)?;
        if let Some(live) = &mut self.functions[function.get()].live {
            live.saw_memory(memory);
        }
        Ok(())
    }

    /// Time has passed: keeping ends, containers are loaded ahead, quanta end, ages count.
    pub fn tick(&mut self, now: Millis, actions: &mut Vec<Action>) {
        self.advance(now);
        self.expire(actions);
        self.reload(actions);
        self.interrupt(actions);
        self.dispatch(actions);
    }

    /// When [`Self::tick`] must be called next, if nothing else happens before.
    #[must_use]
    pub fn next_tick(&self) -> Option<Millis> {
        let of = |heap: &IndexedHeap<Millis>| heap.peek().map(|(at, _)| at);
        let overdue = self.queue.has_parked().then(|| self.overdue_at()).flatten();
        let starves = self.queue.oldest().and_then(|(arrival, _)| {
            let at = self.starvation.starves_at(arrival)?;
            (at > self.now).then_some(at)
        });
        [
            self.expiry.peek().map(|((until, _), _)| until),
            of(&self.reloads),
            of(&self.quanta),
            overdue,
            starves,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// When to look whether invocations wait in vain for a container that is past its expected end: every event shows that, but
    /// where none comes, waiting has then cost as much as loading.
    fn overdue_at(&self) -> Option<Millis> {
        let (end, row) = self.expected.peek()?;
        let function = FunctionIndex::from_raw(self.containers.get(row).function);
        Some(end + self.queue.profile(function).cold_start())
    }

    /// A container that nobody waited for is loaded.
    fn loaded_ahead(&mut self, row: u32, until: Millis, actions: &mut Vec<Action>) {
        self.uses += 1;
        let container = self.containers.get_mut(row);
        container.used = self.uses;
        self.functions[container.function as usize].ahead -= 1;
        self.turn_idle(row, Keep::Until(until), actions);
    }

    /// Time never goes back.
    pub(super) fn advance(&mut self, now: Millis) {
        self.now = self.now.max(now);
    }

    fn find(&self, container: ContainerId) -> Result<u32, Refusal> {
        self.containers
            .find(container)
            .ok_or(Refusal::UnknownContainer { container })
    }

    fn learn(&mut self, function: FunctionIndex, see: impl FnOnce(&mut LiveProfile)) {
        if let Some(live) = &mut self.functions[function.get()].live {
            see(live);
            let profile = live.profile();
            self.queue.set_profile(function, profile);
        }
    }

    /// A container starts to execute.
    pub(super) fn run(&mut self, row: u32, claim: Claim) {
        let since = self.now;
        self.containers.get_mut(row).state = State::Running { claim, since };
        if let Some(quantum) = self.settings.order.quantum() {
            self.quanta.set(row, since + quantum);
        }
    }
}
