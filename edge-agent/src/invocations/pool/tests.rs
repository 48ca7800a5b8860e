//! A simulated environment of the pool: starts take a while, fail or succeed, instances crash, calls end when the script says so.

mod announced;
mod examples;
mod pausing;
mod properties;
mod share;

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::{MebiBytes, Millis, TenantId};
use fdn_scheduling::invocation::{
    ContainerId, Fixed, FunctionIndex, KeepAlive, Order, Profile, QueueLimits, ReleaseReason,
    Settings, Weight,
};
use fdn_scheduling::scale;
use uuid::Uuid;

use super::*;

fn ms(value: f64) -> Millis {
    Millis::new(value)
}

/// The pausing state of an instance, by the orders given and completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Resting {
    #[default]
    Awake,
    Pausing,
    Paused,
    Waking,
}

/// The observed state of an instance.
#[derive(Clone, Debug, Default)]
struct Seen {
    function: Option<FunctionIndex>,
    ready: bool,
    rest: Resting,
    calls: BTreeSet<CallId>,
}

/// A pool, and what a checker without knowledge of its internals has observed.
struct World {
    pool: Pool,
    now: f64,
    functions: Vec<(FunctionIndex, u32, u64)>,
    /// Instances being started.
    starting: Vec<ContainerId>,
    live: BTreeMap<ContainerId, Seen>,
    waiting: BTreeSet<CallId>,
    /// The calls that were handed to an instance, in order.
    served: Vec<CallId>,
    stopped: Vec<(ContainerId, ReleaseReason)>,
    memory: u64,
    /// The shares of an app and of a tenant.
    shares: (Percent, Percent),
    /// The number of apps, and the tenant of each app.
    apps: usize,
    tenants: Vec<u128>,
}

struct Shape {
    execution: f64,
    cold: f64,
    memory: u64,
    concurrency: u32,
}

fn settings(order: Order) -> PoolSettings {
    PoolSettings {
        scheduler: Settings {
            order,
            queue_or_cold: true,
            queue: QueueLimits {
                total: 10_000,
                per_function: 10_000,
            },
            ..Settings::default()
        },
        reaction: ms(5.0),
        interval: ms(1000.0),
        ahead: ms(60_000.0),
        pause_after: Some(ms(2000.0)),
        app_share: Percent::WHOLE,
        tenant_share: Percent::WHOLE,
    }
}

fn app_named(number: usize) -> AppName {
    format!("app-{number}").parse().expect("it parses")
}

impl World {
    fn new(memory: u64, shapes: &[Shape]) -> Self {
        let keep = Box::new(Fixed::new(ms(600_000.0)));
        Self::with(settings(Order::FuncSched), keep, memory, shapes)
    }

    fn with(
        settings: PoolSettings,
        keep: Box<dyn KeepAlive>,
        memory: u64,
        shapes: &[Shape],
    ) -> Self {
        Self::of_apps(settings, keep, memory, shapes, 2)
    }

    /// A world with functions of `apps` apps in rotation, whose tenants are not set.
    fn of_apps(
        settings: PoolSettings,
        keep: Box<dyn KeepAlive>,
        memory: u64,
        shapes: &[Shape],
        apps: usize,
    ) -> Self {
        let mut pool = Pool::new(settings, keep).expect("valid settings");
        pool.capacity(ms(0.0), Weight(memory));
        let functions = shapes
            .iter()
            .enumerate()
            .map(|(number, shape)| {
                let profile =
                    Profile::new(ms(shape.execution), ms(shape.cold), MebiBytes(shape.memory));
                let parameters = FunctionParameters {
                    app: app_named(number % apps),
                    memory: Weight(shape.memory),
                    profile: profile.expect("valid"),
                    concurrency: shape.concurrency,
                    scale: scale::Settings {
                        concurrency: f64::from(shape.concurrency),
                        ..scale::Settings::default()
                    },
                };
                let index = pool.register(parameters).expect("room");
                (index, shape.concurrency, shape.memory)
            })
            .collect();
        Self {
            pool,
            now: 0.0,
            functions,
            starting: Vec::new(),
            live: BTreeMap::new(),
            waiting: BTreeSet::new(),
            served: Vec::new(),
            stopped: Vec::new(),
            memory,
            shares: (settings.app_share, settings.tenant_share),
            apps,
            // Each app has a tenant of its own.
            tenants: (0..apps).map(|app| 1000 + app as u128).collect(),
        }
    }

    /// Sets the tenant of an app.
    fn set_tenant(&mut self, app: usize, tenant: u128) {
        let tag = TenantId::from_uuid(Uuid::from_u128(tenant)).tag();
        // An app without functions is unknown, so its tenant is not stored.
        if app < self.functions.len() {
            self.tenants[app] = tenant;
        }
        self.pool.set_tenant(self.at(), &app_named(app), tag);
        self.look();
    }

    fn at(&self) -> Millis {
        ms(self.now)
    }

    fn arrive(&mut self, function: usize) -> CallId {
        let index = self.functions[function].0;
        let call = self.pool.arrive(self.at(), index).expect("room to wait");
        assert!(self.waiting.insert(call), "a new name for every call");
        self.look();
        call
    }

    /// Advances the time, with every tick that falls into the span.
    fn pass(&mut self, span: f64) {
        let end = self.now + span;
        while let Some(tick) = self.pool.next_tick()
            && tick.get() <= end
        {
            self.now = self.now.max(tick.get());
            self.pool.tick(self.at());
            self.look();
        }
        self.now = end;
    }

    fn start(&mut self, which: usize) -> ContainerId {
        let container = self.starting.remove(which);
        assert!(self.pool.started(self.at(), container), "it was ordered");
        self.live.get_mut(&container).expect("ordered").ready = true;
        self.look();
        container
    }

    fn fail_start(&mut self, which: usize, pause: f64) {
        let container = self.starting.remove(which);
        self.live.remove(&container);
        let again = ms(self.now + pause);
        self.pool.start_failed(self.at(), container, again);
        self.look();
    }

    fn end(&mut self, container: ContainerId) {
        let seen = self.live.get_mut(&container).expect("alive");
        seen.calls.pop_first().expect("it runs a call");
        self.pool.ended(self.at(), container, Some(ms(1.0)));
        self.look();
    }

    /// An instance crashes; its calls come back.
    fn crash(&mut self, container: ContainerId) {
        let seen = self.live.remove(&container).expect("alive");
        self.starting.retain(|starting| *starting != container);
        self.pool.gone(self.at(), container);
        self.look();
        for _ in seen.calls {
            let function = seen.function.expect("known");
            let call = self.pool.requeue(self.at(), function).expect("known");
            self.waiting.insert(call);
            self.look();
        }
    }

    /// Completes an order to pause.
    fn pause(&mut self, container: ContainerId, is_paused: bool) {
        let seen = self.live.get_mut(&container).expect("alive");
        seen.rest = if is_paused {
            Resting::Paused
        } else {
            Resting::Awake
        };
        self.pool.paused(self.at(), container, is_paused);
        self.look();
    }

    fn wake(&mut self, container: ContainerId) {
        self.live.get_mut(&container).expect("alive").rest = Resting::Awake;
        self.pool.resumed(self.at(), container);
        self.look();
    }

    fn resting(&self, wanted: Resting) -> Vec<ContainerId> {
        let such = self.live.iter().filter(|(_, seen)| seen.rest == wanted);
        such.map(|(container, _)| *container).collect()
    }

    fn leave(&mut self, call: CallId) {
        assert!(self.pool.leave(self.at(), call), "it waits");
        self.waiting.remove(&call);
        self.look();
    }

    fn busy(&self) -> Vec<ContainerId> {
        let busy = self.live.iter().filter(|(_, seen)| !seen.calls.is_empty());
        busy.map(|(container, _)| *container).collect()
    }

    fn ready(&self) -> Vec<ContainerId> {
        let ready = self.live.iter().filter(|(_, seen)| seen.ready);
        ready.map(|(container, _)| *container).collect()
    }

    /// Performs the pool's effects and checks the invariants.
    fn look(&mut self) {
        for effect in self.pool.take_effects() {
            match effect {
                Effect::Start {
                    container,
                    function,
                    ..
                } => {
                    self.starting.push(container);
                    let seen = Seen {
                        function: Some(function),
                        ..Seen::default()
                    };
                    assert!(self.live.insert(container, seen).is_none());
                    self.check_tenant(function);
                }
                Effect::Assign { call, container } => {
                    assert!(self.waiting.remove(&call), "{call:?} is served once");
                    let seen = self.live.get_mut(&container).expect("alive");
                    assert!(
                        seen.ready && seen.rest == Resting::Awake,
                        "calls are handed to instances that answer"
                    );
                    seen.calls.insert(call);
                    self.served.push(call);
                }
                Effect::Pause { container } => {
                    let seen = self.live.get_mut(&container).expect("alive");
                    assert!(seen.ready && seen.calls.is_empty(), "only idle ones rest");
                    assert_eq!(seen.rest, Resting::Awake, "one order at a time");
                    seen.rest = Resting::Pausing;
                }
                Effect::Resume { container } => {
                    let seen = self.live.get_mut(&container).expect("alive");
                    assert_eq!(seen.rest, Resting::Paused, "one order at a time");
                    seen.rest = Resting::Waking;
                }
                Effect::Stop { container, why } => {
                    let seen = self.live.remove(&container).expect("alive");
                    assert!(
                        seen.ready && seen.calls.is_empty(),
                        "only idle ones are stopped"
                    );
                    self.stopped.push((container, why));
                }
            }
        }
        self.check();
    }

    fn check(&self) {
        let mut held = 0;
        for (index, concurrency, memory) in &self.functions {
            let of = |seen: &&Seen| seen.function == Some(*index);
            let all: Vec<&Seen> = self.live.values().filter(of).collect();
            let counts = self.pool.counts(*index);
            let instances = counts.starting + counts.open + counts.idle + counts.waking;
            assert_eq!(instances as usize, all.len());
            let running: usize = all.iter().map(|seen| seen.calls.len()).sum();
            assert_eq!(counts.running as usize, running);
            assert!(
                all.iter()
                    .all(|seen| seen.calls.len() <= *concurrency as usize)
            );
            let open = all.iter().filter(|seen| !seen.calls.is_empty()).count();
            assert_eq!(counts.open as usize, open);
            let is_paused = |seen: &&&Seen| matches!(seen.rest, Resting::Paused | Resting::Waking);
            let paused = all.iter().filter(is_paused).count();
            assert_eq!(counts.paused as usize, paused);
            held += memory * all.len() as u64;
        }
        assert_eq!(self.pool.waiting(), self.waiting.len());
        assert_eq!(self.pool.held(), Weight(held));
        assert!(held <= self.memory, "{held} of {}", self.memory);
        self.check_shares();
    }

    /// The memory that the instances of one app hold, and their number.
    fn held_by(&self, app: usize) -> (u64, usize) {
        let functions = self.functions.iter().skip(app).step_by(self.apps);
        let held = functions.map(|(index, _, memory)| {
            let of = |seen: &&Seen| seen.function == Some(*index);
            let count = self.live.values().filter(of).count();
            (memory * count as u64, count)
        });
        held.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    fn check_shares(&self) {
        if self.shares.0 == Percent::WHOLE {
            return;
        }
        let share = self.memory * u64::from(self.shares.0.get()) / 100;
        for app in 0..self.apps {
            let (held, count) = self.held_by(app);
            assert!(
                held <= share || count == 1,
                "{count} instances of one app hold {held} of its {share}"
            );
        }
    }

    /// The memory of a tenant's instances, their number, and the memory of those that are not idle.
    fn held_by_tenant(&self, tenant: u128) -> (u64, usize, u64) {
        let mut held = (0, 0, 0);
        for seen in self.live.values() {
            let mut functions = self.functions.iter();
            let at = functions.position(|(index, ..)| seen.function == Some(*index));
            let at = at.expect("known");
            if self.tenants[at % self.apps] == tenant {
                let memory = self.functions[at].2;
                let is_idle = seen.ready && seen.calls.is_empty() && seen.rest != Resting::Waking;
                held.0 += memory;
                held.1 += 1;
                held.2 += if is_idle { 0 } else { memory };
            }
        }
        held
    }

    /// Checks, after an instance of the function was ordered, that its tenant is within its share of what others leave, or has no other instance.
    fn check_tenant(&self, function: FunctionIndex) {
        let at = self
            .functions
            .iter()
            .position(|(index, ..)| *index == function);
        let own = self.tenants[at.expect("known") % self.apps];
        // An app without functions is unknown.
        let known = &self.tenants[..self.apps.min(self.functions.len())];
        let others: BTreeSet<u128> = known.iter().copied().filter(|one| *one != own).collect();
        let share = u64::from(self.shares.1.get());
        if others.is_empty() || share == 100 {
            return;
        }
        let busy: u64 = others.iter().map(|one| self.held_by_tenant(*one).2).sum();
        let left = self.memory - busy;
        let (held, count, _) = self.held_by_tenant(own);
        assert!(
            held <= left * share / 100 || count == 1,
            "{count} instances of a tenant hold {held} of the {left} that others leave"
        );
    }

    /// Everything succeeds from now on, until no calls wait.
    fn drain(&mut self) {
        for _ in 0..100_000 {
            if self.waiting.is_empty() && self.starting.is_empty() {
                return;
            }
            for container in self.resting(Resting::Pausing) {
                self.pause(container, true);
            }
            for container in self.resting(Resting::Waking) {
                self.wake(container);
            }
            while !self.starting.is_empty() {
                self.start(0);
            }
            for container in self.busy() {
                while self
                    .live
                    .get(&container)
                    .is_some_and(|seen| !seen.calls.is_empty())
                {
                    self.end(container);
                }
            }
            self.pass(50.0);
        }
        panic!(
            "{} calls wait for ever: {:?}",
            self.waiting.len(),
            self.pool
        );
    }
}
