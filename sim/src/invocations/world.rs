//! The world around the scheduler of invocations: invocations come as recorded, containers load for as long as the profile
//! says, executions take as long as the trace says.

use fdn_core::{MebiBytes, Millis};
use fdn_scheduling::invocation::{
    Action, ContainerId, FunctionIndex, Refusal, ReleaseReason, RequestId, Scheduler,
};

use super::policy::Policy;
use super::result::{Counts, Fate, Run};
use super::scaled::{Scalers, Scaling, Span};
use super::trace::Workload;
use crate::Error;
use crate::events::Events;

/// The workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machines {
    /// How many.
    pub nodes: usize,
    /// The memory of each.
    pub memory: MebiBytes,
}

impl Machines {
    /// Work over what the workers can do within this time.
    #[must_use]
    pub fn rho(&self, workload: &Workload, span: Millis) -> f64 {
        workload.work() / (self.nodes as f64 * self.memory.get() as f64 * span.get())
    }
}

/// A run in which the number of containers counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaled {
    /// Its figures.
    pub run: Run,
    /// How long containers were there, loading ones included, up to the last invocation's end, all together.
    pub alive_ms: f64,
    /// How often a wanted number of containers changed its direction.
    pub reversals: u64,
    /// How often it changed and changed back within the stable window.
    pub flaps: u64,
}

/// What happens in the world.
#[derive(Clone, Copy, Debug)]
enum Event {
    Arrival(usize),
    Ready(ContainerId),
    Finished(ContainerId),
    /// Scalers decide.
    Scale,
}

/// What a container does in the world, by its slot.
#[derive(Clone, Copy, Debug)]
struct Busy {
    container: ContainerId,
    invocation: usize,
    since: Millis,
    executes: bool,
}

#[derive(Debug)]
struct World<'a> {
    workload: &'a Workload,
    scheduler: Scheduler,
    events: Events<Event>,
    busy: Vec<Option<Busy>>,
    fates: Vec<Fate>,
    /// How long each invocation still executes.
    remaining: Vec<Millis>,
    counts: Counts,
    end: Millis,
    scalers: Option<Scalers>,
    /// How long containers were there.
    alive: Span,
}

/// Plays a workload on machines under a policy. Time begins at 0; the load is measured over `span`.
///
/// # Errors
/// When an invocation needs more memory than a machine has, or the simulation breaks a rule.
pub fn simulate(
    workload: &Workload,
    machines: Machines,
    span: Millis,
    policy: &Policy,
) -> Result<Run, Error> {
    simulate_scaled(workload, machines, span, policy, None).map(|scaled| scaled.run)
}

/// As [`simulate`], with an autoscaler for every function beside the keep-alive policy: both decide on the same containers.
///
/// # Errors
/// As [`simulate`], and when the scalers' settings do not go together.
pub fn simulate_scaled(
    workload: &Workload,
    machines: Machines,
    span: Millis,
    policy: &Policy,
    scaling: Option<Scaling>,
) -> Result<Scaled, Error> {
    let mut scheduler =
        Scheduler::new(policy.settings(), policy.keep_alive()?).map_err(|error| usage(&error))?;
    let mut actions = Vec::new();
    for _ in 0..machines.nodes {
        scheduler
            .add_worker(Millis::ZERO, machines.memory, &mut actions)
            .map_err(|error| usage(&error))?;
    }
    for function in &workload.functions {
        scheduler
            .register(function.profile)
            .map_err(|error| usage(&error))?;
    }
    let mut world = World {
        workload,
        scheduler,
        events: Events::default(),
        busy: Vec::new(),
        fates: vec![Fate::default(); workload.invocations.len()],
        remaining: workload.invocations.iter().map(|i| i.execution).collect(),
        counts: Counts::default(),
        end: Millis::ZERO,
        scalers: scaling
            .map(|scaling| Scalers::new(scaling, workload))
            .transpose()?,
        alive: Span::default(),
    };
    world.play(&mut actions)?;
    let rho = machines.rho(workload, span);
    let run = Run::new(workload, rho, &world.fates, &world.counts, world.end);
    let (reversals, flaps) = world.scalers.map_or((0, 0), |scalers| scalers.reversals());
    Ok(Scaled {
        run,
        alive_ms: world.alive.sum(),
        reversals,
        flaps,
    })
}

fn usage(error: &Refusal) -> Error {
    Error::Usage(error.to_string())
}

fn broken(error: &Refusal) -> Error {
    Error::Broken(error.to_string())
}

impl World<'_> {
    fn play(&mut self, actions: &mut Vec<Action>) -> Result<(), Error> {
        let mut left = self.workload.invocations.len();
        self.expect_arrival(0);
        self.expect_decision();
        while left > 0 {
            let now = match self.scheduler.next_tick() {
                Some(tick) if self.events.next_at().is_none_or(|event| tick <= event) => {
                    self.scheduler.tick(tick, actions);
                    tick
                }
                _ => {
                    let stuck = || Error::Broken(format!("{left} invocations never end"));
                    let (now, event) = self.events.pop().ok_or_else(stuck)?;
                    left -= usize::from(self.happen(now, event, actions)?);
                    now
                }
            };
            self.alive.until(now);
            self.counts.waiting_max = self.counts.waiting_max.max(self.scheduler.waiting());
            for action in actions.drain(..) {
                self.act(now, action);
            }
            self.alive.set(self.scheduler.container_count() as f64);
        }
        Ok(())
    }

    fn expect_decision(&mut self) {
        // Where nothing else can happen any more, decisions would go on without end.
        let goes_on = !self.events.is_empty() || self.scheduler.next_tick().is_some();
        if let Some(scalers) = self.scalers.as_ref().filter(|_| goes_on) {
            self.events.after(scalers.tick(), Event::Scale);
        }
    }

    fn expect_arrival(&mut self, at: usize) {
        if let Some(invocation) = self.workload.invocations.get(at) {
            self.events.at(invocation.arrival, Event::Arrival(at));
        }
    }

    /// Whether an invocation has ended with this.
    fn happen(
        &mut self,
        now: Millis,
        event: Event,
        actions: &mut Vec<Action>,
    ) -> Result<bool, Error> {
        match event {
            Event::Arrival(at) => {
                let function = FunctionIndex::new(self.workload.invocations[at].function);
                if let Some(scalers) = &mut self.scalers {
                    scalers.arrived(function);
                }
                let request = RequestId(at as u64);
                self.scheduler
                    .arrive(now, request, function, actions)
                    .map_err(|error| Error::Infeasible(self.named(&error, at)))?;
                self.expect_arrival(at + 1);
            }
            Event::Ready(container) => {
                if let Some(busy) = &mut self.busy[container.slot()]
                    && busy.container == container
                {
                    self.fates[busy.invocation].loading += now - busy.since;
                    (busy.since, busy.executes) = (now, true);
                    let invocation = busy.invocation;
                    let ends = now + self.remaining[invocation];
                    self.events.at(ends, Event::Finished(container));
                    self.executes(now, invocation, true);
                }
                self.scheduler
                    .ready(now, container, actions)
                    .map_err(|error| broken(&error))?;
            }
            Event::Finished(container) => {
                let slot = &mut self.busy[container.slot()];
                // An interrupted execution ends elsewhere.
                let Some(busy) = slot.filter(|busy| {
                    busy.container == container
                        && busy.executes
                        && busy.since + self.remaining[busy.invocation] == now
                }) else {
                    return Ok(false);
                };
                *slot = None;
                self.executes(now, busy.invocation, false);
                let arrival = self.workload.invocations[busy.invocation].arrival;
                self.fates[busy.invocation].completion = now - arrival;
                self.end = now;
                self.scheduler
                    .finished(now, container, actions)
                    .map_err(|error| broken(&error))?;
                return Ok(true);
            }
            Event::Scale => {
                if let Some(scalers) = &mut self.scalers {
                    scalers.decide(now, &mut self.scheduler, actions)?;
                }
                self.expect_decision();
            }
        }
        Ok(false)
    }

    /// An invocation begins or ends to execute.
    fn executes(&mut self, now: Millis, invocation: usize, begins: bool) {
        if let Some(scalers) = &mut self.scalers {
            scalers.executes(now, self.workload.invocations[invocation].function, begins);
        }
    }

    fn named(&self, error: &Refusal, at: usize) -> String {
        let function = self.workload.invocations[at].function;
        let name = &self.workload.functions[function].name;
        match error {
            // The scheduler does not know what its weights are measured in; here it is memory.
            Refusal::TooLarge {
                wanted, largest, ..
            } => format!(
                "function {name} wants {}, the largest worker has {}",
                MebiBytes(wanted.get()),
                MebiBytes(largest.get())
            ),
            other => format!("function {name}: {other}"),
        }
    }

    fn act(&mut self, now: Millis, action: Action) {
        match action {
            Action::StartWarm {
                request, container, ..
            } => {
                let at = self.begin(now, request, container, true);
                self.executes(now, at, true);
                self.counts.warm_starts += 1;
                self.events
                    .at(now + self.remaining[at], Event::Finished(container));
            }
            Action::StartCold {
                request,
                container,
                function,
                ..
            } => {
                let at = self.begin(now, request, container, false);
                self.counts.cold_starts += 1;
                self.fates[at].cold_starts += 1;
                self.load(now, container, function);
            }
            Action::Prewarm {
                container,
                function,
                ..
            } => {
                self.counts.prewarmed += 1;
                self.grow(container);
                self.busy[container.slot()] = None;
                self.load(now, container, function);
            }
            Action::Release { why, .. } => match why {
                ReleaseReason::Evicted => self.counts.evicted += 1,
                ReleaseReason::Expired
                | ReleaseReason::NotNeededYet
                | ReleaseReason::Shrunk
                | ReleaseReason::Retired
                | ReleaseReason::Surplus => {
                    self.counts.expired += 1;
                }
            },
            Action::Interrupt { container, .. } => {
                self.counts.interrupted += 1;
                if let Some(busy) = self.busy[container.slot()].take() {
                    let executed = now - busy.since;
                    let remaining = &mut self.remaining[busy.invocation];
                    *remaining = *remaining - executed;
                    self.executes(now, busy.invocation, false);
                }
            }
            Action::Lost { .. } => {}
        }
    }

    fn load(&mut self, now: Millis, container: ContainerId, function: FunctionIndex) {
        let profile = self.workload.functions[function.get()].profile;
        self.events
            .at(now + profile.cold_start(), Event::Ready(container));
    }

    fn grow(&mut self, container: ContainerId) {
        if container.slot() >= self.busy.len() {
            self.busy.resize(container.slot() + 1, None);
        }
    }

    fn begin(
        &mut self,
        now: Millis,
        request: RequestId,
        container: ContainerId,
        executes: bool,
    ) -> usize {
        let at = usize::try_from(request.0).expect("requests are numbered by the trace");
        let invocation = self.workload.invocations[at];
        if self.remaining[at] == invocation.execution && self.fates[at].cold_starts == 0 {
            self.fates[at].queued = now - invocation.arrival;
        }
        self.grow(container);
        self.busy[container.slot()] = Some(Busy {
            container,
            invocation: at,
            since: now,
            executes,
        });
        at
    }
}
