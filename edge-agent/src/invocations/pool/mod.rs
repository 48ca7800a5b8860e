//! Decides which instance serves which call, and which instances exist: a pure state machine around the [`Scheduler`].
//!
//! Events go in, [`Effect`]s come out; nothing here waits, reads a clock or generates a random number.
//!
//! **Division of labour.** The scheduler decides which function's calls get an instance next, warm or new, and what is evicted for it. The
//! autoscaler of each function decides how many instances it may have. This module keeps the calls of each function in order of arrival and
//! queues *tokens* in the scheduler: one for each instance that the function's waiting calls need beyond those being started. A granted token
//! opens an instance for as many calls as it runs at once.
//!
//! **Interpretation.** A call is bound to an instance when it is handed to it, not when one is started for it: the first waiting call takes the
//! first ready instance. While an open instance has a free seat, a call of its function takes it at once, because that costs no memory. An
//! instance whose last call has ended returns to the scheduler, unless calls of its function wait that were already granted an instance.
//!
//! **Invariants.** Every call is assigned once, refused or withdrawn. An instance never runs more calls than its function's concurrency. There
//! are as many tokens as the waiting calls need. A function has at most as many instances as the autoscaler wants, except for those that existed
//! before it wanted fewer.

mod announced;
mod function;
mod pausing;
mod scaling;
mod serving;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::device::Percent;
use fdn_core::{AppName, Millis, TenantTag};
use fdn_scheduling::invocation::{
    Action, Bounds, ContainerId, FunctionIndex, KeepAlive, Profile, Refusal, ReleaseReason,
    RequestId, Scheduler, Settings, Ticket, Weight, WorkerIndex,
};
use fdn_scheduling::scale;

use function::{Function, PauseState, Phase, Row};

/// The id of a call that waits or runs, for use between the pool and its shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// An action that the shell must perform.
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
        /// Its function.
        function: FunctionIndex,
        /// The worker on which it is started.
        worker: WorkerIndex,
        /// No call waits for it yet.
        is_ahead: bool,
    },
    /// Pause an idle instance; to be reported by [`Pool::paused`].
    Pause {
        /// The instance.
        container: ContainerId,
    },
    /// Resume a paused instance for waiting calls; to be reported by [`Pool::resumed`] or [`Pool::gone`].
    Resume {
        /// The instance.
        container: ContainerId,
    },
    /// Stop an idle instance, which may be paused.
    Stop {
        /// The instance.
        container: ContainerId,
        /// The reason.
        why: ReleaseReason,
    },
}

/// The settings of a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolSettings {
    /// The scheduler's order and limits.
    pub scheduler: Settings,
    /// The delay between a call's arrival in the queue and the next scaling decision.
    pub reaction: Millis,
    /// The interval of scaling decisions otherwise.
    pub interval: Millis,
    /// How long an instance started ahead of calls is kept at least.
    pub ahead: Millis,
    /// How long instances are idle before they are paused; `None` if they never are.
    pub pause_after: Option<Millis>,
    /// The share of the memory for instances that one app may hold.
    pub app_share: Percent,
    /// The share that all apps of one tenant may hold, of what other tenants leave.
    pub tenant_share: Percent,
}

impl PoolSettings {
    /// The limits on instances within this much memory; `None` if one app and one tenant may hold all of it.
    fn bounds(&self, all: Weight) -> Option<Bounds> {
        let (group, owner) = (self.app_share, self.tenant_share);
        let whole = (Percent::WHOLE, Percent::WHOLE);
        ((group, owner) != whole).then_some(Bounds { all, group, owner })
    }
}

/// The properties of a function when it is registered.
#[derive(Clone, Debug)]
pub struct FunctionParameters {
    /// Its app: the instances of all functions of an app share one limit on memory.
    pub app: AppName,
    /// The memory of one instance, as it counts towards that limit.
    pub memory: Weight,
    /// Expected times and weight, until times have been measured.
    pub profile: Profile,
    /// The number of calls that an instance runs at once.
    pub concurrency: u32,
    /// The settings of its autoscaler.
    pub scale: scale::Settings,
}

/// The numbers of a function's instances and calls, for metrics and reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionCounts {
    /// Instances being started.
    pub starting: u32,
    /// Instances running calls.
    pub open: u32,
    /// Instances that are ready and unused, including paused ones.
    pub idle: u32,
    /// Instances being resumed for waiting calls.
    pub waking: u32,
    /// Paused instances, including those being resumed.
    pub paused: u32,
    /// Running calls.
    pub running: u32,
    /// Waiting calls.
    pub waiting: u32,
    /// The number of instances that the autoscaler wants.
    pub wanted: u32,
}

/// The state of all instances and of the calls that wait for them.
#[derive(Debug)]
pub struct Pool {
    settings: PoolSettings,
    scheduler: Scheduler,
    worker: WorkerIndex,
    memory: Weight,
    functions: Vec<Option<Function>>,
    /// Records of instances, by the container's slot.
    rows: Vec<Option<Row>>,
    /// Waiting calls.
    calls: BTreeMap<CallId, FunctionIndex>,
    next_token: u64,
    next_call: u64,
    next_group: u64,
    actions: Vec<Action>,
    /// Functions whose number of tokens may not match their waiting calls.
    touched: Vec<FunctionIndex>,
    /// Functions whose tokens the scheduler refused.
    stranded: Vec<FunctionIndex>,
    /// When functions are next examined.
    timers: BTreeSet<(Millis, FunctionIndex)>,
    /// When idle instances are to be paused.
    pause_timers: BTreeSet<(Millis, ContainerId)>,
    effects: Vec<Effect>,
}

impl Pool {
    /// A pool without functions, on a node whose memory is not known yet.
    ///
    /// # Errors
    /// When a setting is invalid.
    pub fn new(settings: PoolSettings, keep_alive: Box<dyn KeepAlive>) -> Result<Self, Refusal> {
        // Tokens are queued only for admitted calls, so the limits on calls bound them too.
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
            pause_timers: BTreeSet::new(),
            effects: Vec::new(),
        })
    }

    /// Takes the actions to perform, in this order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Sets the node's memory for instances.
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

    /// The weight held by instances.
    #[must_use]
    pub fn held(&self) -> Weight {
        let held = self.scheduler.workers().map(|worker| worker.held.get());
        Weight(held.sum())
    }

    /// Registers a function.
    ///
    /// # Errors
    /// When the limit of functions is reached, or its figures are invalid.
    pub fn register(&mut self, parameters: FunctionParameters) -> Result<FunctionIndex, Refusal> {
        let (profile, memory) = (parameters.profile, parameters.memory);
        let mut function = Function::new(parameters)?;
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

    /// Sets the tenant of an app: the instances of all apps of a tenant share one limit on memory. Until then, and for an unknown app, the app
    /// counts as its tenant's only one.
    pub fn set_tenant(&mut self, now: Millis, app: &AppName, tenant: TenantTag) {
        let mut all = self.functions.iter().flatten();
        if let Some(group) = all.find(|one| one.app == *app).map(|one| one.group) {
            let owner = tenant.uuid().as_u128();
            self.scheduler
                .set_owner(now, group, owner, &mut self.actions);
            self.settle(now);
        }
    }

    /// Retires a function that will not be called any more: its instances are stopped once they are idle, then it is forgotten.
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

    /// Accepts a new call. It waits, or is assigned in the effects.
    ///
    /// # Errors
    /// When the limit of waiting calls is reached.
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
        function.call_arrived();
        Ok(self.join(now, index, false))
    }

    /// Accepts a call again whose instance was lost before it answered: ahead of all others of its function, and regardless of the limits, which
    /// it met the first time.
    ///
    /// # Errors
    /// When the function is no longer known.
    pub fn requeue(&mut self, now: Millis, index: FunctionIndex) -> Result<CallId, Refusal> {
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
        self.scale_soon(now, index);
        self.touched.push(index);
        self.settle(now);
        call
    }

    /// Withdraws a waiting call. Returns whether it was still waiting.
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

    /// Performs what is due at `now`.
    pub fn tick(&mut self, now: Millis) {
        while let Some(&(at, index)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            self.due(now, index);
        }
        self.scheduler.tick(now, &mut self.actions);
        self.settle(now);
        self.pause_due(now);
    }

    /// When [`Pool::tick`] must be called next, unless something else happens before.
    #[must_use]
    pub fn next_tick(&self) -> Option<Millis> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let pause_at = self.pause_timers.first().map(|(at, _)| *at);
        [timer, pause_at, self.scheduler.next_tick()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The numbers of a function's instances and calls; all 0 if it is not known.
    #[must_use]
    pub fn counts(&self, index: FunctionIndex) -> FunctionCounts {
        self.function(index)
            .map(Function::counts)
            .unwrap_or_default()
    }

    /// Whether an instance runs nothing, paused or not; `false` while it is being paused.
    #[must_use]
    pub fn is_idle(&self, container: ContainerId) -> bool {
        self.row(container)
            .is_some_and(|row| row.phase == Phase::Idle && row.pause_state != PauseState::Pausing)
    }

    /// The current profile of a function, as measured.
    #[must_use]
    pub fn profile(&self, index: FunctionIndex) -> Option<Profile> {
        self.scheduler.profile(index)
    }

    /// The number of apps whose calls wait because instances of the app, or of its tenant, hold their share of the memory.
    #[must_use]
    pub fn apps_at_share(&self) -> usize {
        self.scheduler.groups_at_share()
    }

    /// The number of waiting calls.
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

    /// Performs the scheduler's actions and adjusts tokens, until nothing is left to do.
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

    /// Adjusts the number of a function's tokens to its waiting calls.
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
                    // If it can start now, its start is among the actions that are performed next.
                    self.scheduler.tick(now, &mut self.actions);
                }
                // Calls in sandboxes hold so much memory now that no instance of it fits: retried when that changes.
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

    /// Continues to retire a function.
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
            // Some instances still run calls or start, and are handled when they are done. The idle ones are stopped now.
            Err(_) => {
                let trimmed = self
                    .scheduler
                    .trim(now, index, usize::MAX, &mut self.actions);
                debug_assert!(trimmed.is_ok(), "{trimmed:?}");
            }
        }
    }
}
