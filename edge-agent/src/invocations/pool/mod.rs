//! Which instance serves which call, and which instances there are: a pure state machine around the [`Scheduler`].
//!
//! Events come in, [`Effect`]s come out; nothing here waits, reads a clock or draws a number.
//!
//! **Division of labour.** The scheduler decides which function's calls get an instance next, warm or new, and what is evicted for it.
//! The autoscaler of each function decides how many instances it may have. This module keeps the calls of each function in order of
//! arrival and asks the scheduler with *tokens*: one for each instance that its waiting calls need beside those that are being
//! started. A token that is granted opens an instance for as many calls as it runs at once.
//!
//! **Readings.** A call is bound to an instance when it is handed to it, not when one is started for it: who is first in the line
//! takes what is first ready. While an open instance has a free place, a call of its function takes it at once, because that costs
//! no memory. An instance whose last call has ended is the scheduler's again, unless calls of its function wait to whom an instance
//! was granted already.
//!
//! **Invariants.** Every call is assigned once, refused or withdrawn. An instance never runs more calls than its function's
//! concurrency. Tokens are as many as the waiting calls need. Instances of a function are at most what the autoscaler wants,
//! but for those that were there before it wanted fewer.

mod announced;
mod function;
mod rest;
mod scaling;
mod serving;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::device::Percent;
use fdn_core::{AppName, Millis, TenantTag};
use fdn_scheduling::invocation::{
    Action, Bounds, ContainerId, FunctionIndex, KeepAlive, Profile, Refusal, RequestId, Scheduler,
    Settings, Ticket, Weight, Why, WorkerIndex,
};
use fdn_scheduling::scale;

use function::{Doing, Function, Rest, Row};

/// A call that waits or runs, as the shell calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// Something to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Hand this call to this instance.
    Assign {
        /// The call.
        call: CallId,
        /// The instance.
        container: ContainerId,
    },
    /// Start an instance; to be reported by [`Pool::started`] or [`Pool::start_failed`].
    Start {
        /// The instance.
        container: ContainerId,
        /// Of which function.
        function: FunctionIndex,
        /// On which worker.
        worker: WorkerIndex,
        /// No call waits for it yet.
        is_ahead: bool,
    },
    /// Freeze an idle instance; to be reported by [`Pool::paused`].
    Pause {
        /// The instance.
        container: ContainerId,
    },
    /// Wake a paused instance, for which calls wait; to be reported by [`Pool::resumed`] or [`Pool::gone`].
    Resume {
        /// The instance.
        container: ContainerId,
    },
    /// Stop an idle instance, which may be paused.
    Stop {
        /// The instance.
        container: ContainerId,
        /// Why.
        why: Why,
    },
}

/// How the pool is set.
#[derive(Clone, Copy, Debug)]
pub struct PoolSettings {
    /// Order and bounds.
    pub scheduler: Settings,
    /// How soon after a call began to wait the number of instances is decided on.
    pub reaction: Millis,
    /// How often otherwise.
    pub interval: Millis,
    /// For how long an instance that was started for the load is kept at least.
    pub ahead: Millis,
    /// Instances that are idle for so long are paused; `None` where they never are.
    pub pause_after: Option<Millis>,
    /// How much of the memory for instances those of one app may hold together.
    pub app_share: Percent,
    /// How much those of all apps of one tenant may hold, of what other tenants leave.
    pub tenant_share: Percent,
}

impl PoolSettings {
    /// What instances may hold of so much memory; nothing where one app and one tenant may hold all of it.
    fn bounds(&self, all: Weight) -> Option<Bounds> {
        let (group, owner) = (self.app_share, self.tenant_share);
        let whole = (Percent::WHOLE, Percent::WHOLE);
        ((group, owner) != whole).then_some(Bounds { all, group, owner })
    }
}

/// What the pool is told of a function.
#[derive(Clone, Debug)]
pub struct Known {
    /// Of which app it is: the instances of all its functions have one share of the memory together.
    pub app: AppName,
    /// The memory of one instance, as it counts towards that share.
    pub memory: Weight,
    /// Times and memory, until they have been measured.
    pub profile: Profile,
    /// How many calls an instance runs at once.
    pub concurrency: u32,
    /// How its number of instances follows the load.
    pub scale: scale::Settings,
}

/// How many there are, for metrics and reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instances that are being started.
    pub starting: u32,
    /// Instances that run calls.
    pub open: u32,
    /// Instances that are warm and free, paused ones included.
    pub idle: u32,
    /// Instances that are woken for calls that wait.
    pub waking: u32,
    /// Instances that are paused, those that are being woken included.
    pub paused: u32,
    /// Calls that run.
    pub running: u32,
    /// Calls that wait.
    pub waiting: u32,
    /// Instances that the autoscaler wants.
    pub wanted: u32,
}

/// The state of all instances and of those who wait for them.
#[derive(Debug)]
pub struct Pool {
    settings: PoolSettings,
    scheduler: Scheduler,
    worker: WorkerIndex,
    memory: Weight,
    functions: Vec<Option<Function>>,
    /// By the container's slot.
    rows: Vec<Option<Row>>,
    /// Calls that wait.
    calls: BTreeMap<CallId, FunctionIndex>,
    next_token: u64,
    next_call: u64,
    next_group: u64,
    actions: Vec<Action>,
    /// Functions whose tokens may no longer fit their waiting calls.
    touched: Vec<FunctionIndex>,
    /// Functions whose tokens the scheduler did not take.
    stranded: Vec<FunctionIndex>,
    /// When functions are looked at again.
    timers: BTreeSet<(Millis, FunctionIndex)>,
    /// When idle instances are paused.
    naps: BTreeSet<(Millis, ContainerId)>,
    effects: Vec<Effect>,
}

impl Pool {
    /// A pool without functions, on a node whose memory is not known yet.
    ///
    /// # Errors
    /// When a setting cannot be used.
    pub fn new(settings: PoolSettings, keep_alive: Box<dyn KeepAlive>) -> Result<Self, Refusal> {
        // A token is for calls that were let in, so the bounds are those of the calls.
        let mut tokens = settings.scheduler;
        tokens.queue.total = 1 << 30;
        tokens.queue.per_function = 1 << 30;
        let mut scheduler = Scheduler::new(tokens, keep_alive)?;
        let mut actions = Vec::new();
        let worker = scheduler.add_worker(Millis::ZERO, Weight(0), &mut actions)?;
        Ok(Self {
            scheduler,
            settings,
            worker,
            functions: Vec::new(),
            rows: Vec::new(),
            calls: BTreeMap::new(),
            next_token: 0,
            next_call: 0,
            next_group: 0,
            actions,
            touched: Vec::new(),
            stranded: Vec::new(),
            memory: Weight(0),
            timers: BTreeSet::new(),
            naps: BTreeSet::new(),
            effects: Vec::new(),
        })
    }

    /// What is to be done, in this order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// The node's memory for instances is now this.
    pub fn capacity(&mut self, now: Millis, memory: Weight) {
        if memory == self.memory {
            return;
        }
        self.memory = memory;
        let known = self
            .scheduler
            .memory_changed(now, self.worker, memory, &mut self.actions);
        known.expect("the node is a worker from the beginning");
        if let Some(bounds) = self.settings.bounds(memory) {
            self.scheduler.set_bounds(now, bounds, &mut self.actions);
        }
        self.touched.append(&mut self.stranded);
        self.settle(now);
    }

    /// What instances hold of it.
    #[must_use]
    pub fn held(&self) -> Weight {
        let held = self.scheduler.workers().map(|worker| worker.held.get());
        Weight(held.sum())
    }

    /// Makes a function known.
    ///
    /// # Errors
    /// When as many are known as may, or its figures cannot be.
    pub fn register(&mut self, known: Known) -> Result<FunctionIndex, Refusal> {
        let (profile, memory) = (known.profile, known.memory);
        let mut function = Function::new(known)?;
        let index = self.scheduler.register(profile)?;
        if self.settings.bounds(self.memory).is_some() {
            let mut all = self.functions.iter().flatten();
            let other = all.find(|other| other.app == function.app);
            function.group = other.map_or(self.next_group, |other| other.group);
            self.next_group = self.next_group.max(function.group + 1);
            self.scheduler.join(index, function.group, memory)?;
        }
        let rows = self.functions.len().max(index.get() + 1);
        self.functions.resize_with(rows, || None);
        self.functions[index.get()] = Some(function);
        Ok(index)
    }

    /// Says whose an app is: the instances of all apps of a tenant have one share of the memory together. Until then, and of an app that is not
    /// known, it is as if the app were its tenant's only one.
    pub fn belong(&mut self, now: Millis, app: &AppName, tenant: TenantTag) {
        let mut all = self.functions.iter().flatten();
        if let Some(group) = all.find(|one| one.app == *app).map(|one| one.group) {
            let owner = tenant.uuid().as_u128();
            self.scheduler
                .set_owner(now, group, owner, &mut self.actions);
            self.settle(now);
        }
    }

    /// Nobody will call the function any more: its instances are stopped once they are idle, and it is forgotten then.
    pub fn retire(&mut self, now: Millis, index: FunctionIndex) {
        let Some(function) = self.function_mut(index) else {
            return;
        };
        function.is_retiring = true;
        function.wanted = 0;
        for call in std::mem::take(&mut function.waiting) {
            self.calls.remove(&call);
        }
        self.touched.push(index);
        self.settle(now);
    }

    /// A call came. It waits, or is assigned in the effects.
    ///
    /// # Errors
    /// When as many wait as may.
    pub fn arrive(&mut self, now: Millis, index: FunctionIndex) -> Result<CallId, Refusal> {
        let limits = self.settings.scheduler.queue;
        let waiting = self.calls.len();
        let function = self.called(now, index)?;
        let limit = limits.per_function;
        if function.waiting.len() >= limit {
            let function = index;
            return Err(Refusal::FunctionQueueFull { function, limit });
        }
        if waiting >= limits.total {
            let limit = limits.total;
            return Err(Refusal::QueueFull { limit });
        }
        function.arrivals += 1;
        function.came();
        Ok(self.join(now, index, false))
    }

    /// A call comes again, because its instance was lost before it answered: before all others of its function, and beyond the
    /// bounds, within which it came the first time.
    ///
    /// # Errors
    /// When the function is no longer known.
    pub fn come_back(&mut self, now: Millis, index: FunctionIndex) -> Result<CallId, Refusal> {
        self.called(now, index)?;
        Ok(self.join(now, index, true))
    }

    fn called(&mut self, now: Millis, index: FunctionIndex) -> Result<&mut Function, Refusal> {
        let function = self.function_mut(index);
        let function = function.filter(|function| !function.is_retiring);
        let function = function.ok_or(Refusal::UnknownFunction { function: index })?;
        function.advance(now);
        Ok(function)
    }

    fn join(&mut self, now: Millis, index: FunctionIndex, first: bool) -> CallId {
        let call = CallId(self.next_call);
        self.next_call += 1;
        let function = self.functions[index.get()]
            .as_mut()
            .expect("only calls of known functions join");
        if function.waiting.is_empty()
            && let Some(container) = function.free_seat()
        {
            self.in_flight(now, container, call);
            return call;
        }
        if first {
            function.waiting.push_front(call);
        } else {
            function.waiting.push_back(call);
        }
        self.calls.insert(call, index);
        self.hurry(now, index);
        self.touched.push(index);
        self.settle(now);
        call
    }

    /// A waiting call is given up. Whether it still waited.
    pub fn leave(&mut self, now: Millis, call: CallId) -> bool {
        let Some(index) = self.calls.remove(&call) else {
            return false;
        };
        if let Some(function) = self.function_mut(index) {
            function.advance(now);
            function.waiting.retain(|waiting| *waiting != call);
        }
        self.touched.push(index);
        self.settle(now);
        true
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Millis) {
        while let Some(&(at, index)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            self.due(now, index);
        }
        self.scheduler.tick(now, &mut self.actions);
        self.settle(now);
        self.doze(now);
    }

    /// When [`Pool::tick`] must be called next, if nothing else happens before.
    #[must_use]
    pub fn next_tick(&self) -> Option<Millis> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let nap = self.naps.first().map(|(at, _)| *at);
        [timer, nap, self.scheduler.next_tick()]
            .into_iter()
            .flatten()
            .min()
    }

    /// How many instances and calls a function has; nothing if it is not known.
    #[must_use]
    pub fn counts(&self, index: FunctionIndex) -> Counts {
        self.function(index)
            .map(Function::counts)
            .unwrap_or_default()
    }

    /// Whether an instance runs nothing, paused or not, but for one that is just being paused.
    #[must_use]
    pub fn is_idle(&self, container: ContainerId) -> bool {
        self.row(container)
            .is_some_and(|row| row.doing == Doing::Idle && row.rest != Rest::Pausing)
    }

    /// The profile of a function as it was measured.
    #[must_use]
    pub fn profile(&self, index: FunctionIndex) -> Option<Profile> {
        self.scheduler.profile(index)
    }

    /// How many apps have calls that wait because the app's instances, or those of its tenant, hold their share of the memory.
    #[must_use]
    pub fn apps_at_share(&self) -> usize {
        self.scheduler.groups_at_share()
    }

    /// How many calls wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.calls.len()
    }

    fn function(&self, index: FunctionIndex) -> Option<&Function> {
        self.functions.get(index.get())?.as_ref()
    }

    fn function_mut(&mut self, index: FunctionIndex) -> Option<&mut Function> {
        self.functions.get_mut(index.get())?.as_mut()
    }

    fn row(&self, container: ContainerId) -> Option<&Row> {
        let row = self.rows.get(container.slot())?.as_ref();
        row.filter(|row| row.id == container)
    }

    /// Performs what the scheduler orders and brings tokens in line, until both have come to rest.
    fn settle(&mut self, now: Millis) {
        loop {
            let mut at = 0;
            while let Some(action) = self.actions.get(at).copied() {
                at += 1;
                self.act(now, action);
            }
            self.actions.clear();
            match self.touched.pop() {
                Some(index) => self.balance(now, index),
                None => return,
            }
        }
    }

    /// Brings the tokens of a function in line with its waiting calls.
    fn balance(&mut self, now: Millis, index: FunctionIndex) {
        let Some(function) = self.function(index) else {
            return;
        };
        if function.is_retiring {
            return self.end(now, index);
        }
        let (needed, there) = (function.tokens_needed(), function.tokens.len());
        if there < needed {
            let token = self.next_token;
            self.next_token += 1;
            let request = RequestId(token);
            let queued = self.scheduler.enqueue(now, request, index);
            let function = self.function_mut(index).expect("looked up above");
            match queued {
                Ok(ticket) => {
                    function.tokens.push_back((token, ticket));
                    self.touched.push(index);
                    // Its start, if it can, is among the actions that are performed next.
                    self.scheduler.tick(now, &mut self.actions);
                }
                // Calls in sandboxes hold so much now that no instance of it fits: tried again when that changes.
                Err(_) => self.stranded.push(index),
            }
        } else if there > needed {
            let function = self.function_mut(index).expect("looked up above");
            let newest: Option<(u64, Ticket)> = function.tokens.pop_back();
            if let Some((_, ticket)) = newest {
                self.scheduler.cancel(now, ticket, &mut self.actions);
            }
            self.touched.push(index);
        }
    }

    /// Goes on with a function that is being retired.
    fn end(&mut self, now: Millis, index: FunctionIndex) {
        let Some(function) = self.function_mut(index) else {
            return;
        };
        if let Some((_, ticket)) = function.tokens.pop_back() {
            self.scheduler.cancel(now, ticket, &mut self.actions);
            return self.touched.push(index);
        }
        let timer = function.timer.take();
        if let Some(at) = timer {
            self.timers.remove(&(at, index));
        }
        let known = self
            .scheduler
            .set_limit(now, index, 0, &mut self.actions)
            .and_then(|()| self.scheduler.retire(now, index, &mut self.actions));
        match known {
            Ok(()) => self.functions[index.get()] = None,
            // Instances that run calls or start: looked at again when they are done. The idle ones go now.
            Err(_) => {
                let trimmed = self
                    .scheduler
                    .trim(now, index, usize::MAX, &mut self.actions);
                debug_assert!(trimmed.is_ok(), "{trimmed:?}");
            }
        }
    }
}
