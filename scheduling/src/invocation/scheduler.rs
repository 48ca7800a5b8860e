//! The state machine: events go in, actions come out.

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

/// A function's state beside its queue.
#[derive(Clone, Debug)]
pub(super) struct Function {
    /// Idle containers, the most recently used first; their number is `W(j)`.
    pub(super) idle: Heap<std::cmp::Reverse<u64>>,
    /// Its containers in any state; all hold memory.
    pub(super) containers: usize,
    /// Those loading for an invocation, and (`ahead`) those loading without one.
    pub(super) loading: usize,
    pub(super) ahead: usize,
    /// Idle containers that the keep-alive policy no longer keeps.
    pub(super) let_go: usize,
    /// Whether a scaler decides beside the keep-alive policy.
    pub(super) is_scaled: bool,
    /// At this many containers none is loaded for an invocation.
    pub(super) limit: usize,
    /// Busy containers that are not past their expected end; maintained for queue-or-cold.
    pub(super) timely: usize,
    /// Until when a container that is loaded ahead is kept.
    pub(super) reload_until: Millis,
    pub(super) live: Option<LiveProfile>,
    pub(super) is_retired: bool,
    /// Its group, and what one of its containers counts towards the share.
    pub(super) part: Option<Part>,
}

/// The scheduler of invocations on a set of workers: see the module.
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
    /// The number of container uses so far.
    pub(super) uses: u64,
    /// Idle containers by the end of their keep-alive time, ties: the least recently used.
    pub(super) expiry: IndexedHeap<(Millis, u64)>,
    /// Busy containers by their expected end, for queue-or-cold.
    pub(super) expected: IndexedHeap<Millis>,
    /// Running containers by the end of their quantum.
    pub(super) quanta: IndexedHeap<Millis>,
    /// Functions by the time when a container is to be loaded ahead.
    pub(super) reloads: IndexedHeap<Millis>,
}

impl Scheduler {
    /// A scheduler without functions or workers.
    ///
    /// # Errors
    /// When a setting is out of its range.
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

    /// Adds an invocation and starts what can start.
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

    /// Adds one of several simultaneous invocations: nothing starts until the next event, such as [`Self::tick`] after the last of
    /// them, so that the order decides among all.
    ///
    /// # Errors
    /// When the function is not registered, no worker is large enough for it, or a bound on waiting invocations is reached.
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

    /// Removes a waiting invocation and returns its id; `None` if it no longer waits.
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

    /// Reports that a container has been loaded.
    ///
    /// # Errors
    /// When the container is not loading.
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

    /// Reports the end of the invocation in a container, which is then free for another one.
    ///
    /// # Errors
    /// When nothing runs in the container.
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

    /// Reports that a container is gone: it crashed, or could not be loaded.
    ///
    /// # Errors
    /// When it was already gone.
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

    /// Reports the peak memory use of a container of a function.
    ///
    /// # Errors
    /// When the function is not registered.
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

    /// Advances the time: keep-alive times and quanta end, containers are loaded ahead, waiting invocations age.
    pub fn tick(&mut self, now: Millis, actions: &mut Vec<Action>) {
        self.advance(now);
        self.expire(actions);
        self.reload(actions);
        self.interrupt(actions);
        self.dispatch(actions);
    }

    /// When [`Self::tick`] must be called next if no other event comes before; `None` if nothing is pending.
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

    /// When to check whether invocations wait in vain for a container that is past its expected end: every event does, but without
    /// one, the check is due when waiting has cost as much as loading.
    fn overdue_at(&self) -> Option<Millis> {
        let (end, row) = self.expected.peek()?;
        let function = FunctionIndex::from_raw(self.containers.get(row).function);
        Some(end + self.queue.profile(function).cold_start())
    }

    /// Handles a container that was loaded without an invocation.
    fn loaded_ahead(&mut self, row: u32, until: Millis, actions: &mut Vec<Action>) {
        self.uses += 1;
        let container = self.containers.get_mut(row);
        container.used = self.uses;
        self.functions[container.function as usize].ahead -= 1;
        self.turn_idle(row, Keep::Until(until), actions);
    }

    /// Advances the clock, which never goes back.
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

    /// Starts the execution in a container.
    pub(super) fn run(&mut self, row: u32, claim: Claim) {
        let since = self.now;
        self.containers.get_mut(row).state = State::Running { claim, since };
        if let Some(quantum) = self.settings.order.quantum() {
            self.quanta.set(row, since + quantum);
        }
    }
}
