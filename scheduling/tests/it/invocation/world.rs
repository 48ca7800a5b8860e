//! A small world around the scheduler: containers load as long as profiles say, executions take what is given.

use fdn_core::{MebiBytes, Millis};
use fdn_scheduling::invocation::{
    Action, ContainerId, FunctionIndex, KeepAlive, Profile, RequestId, Scheduler, Settings,
    WorkerIndex,
};
use fdn_scheduling::scale::Decision;

pub(crate) fn ms(value: f64) -> Millis {
    Millis::new(value)
}

pub(crate) fn profile(execution: f64, cold: f64, memory: u64) -> Profile {
    Profile::new(ms(execution), ms(cold), MebiBytes(memory)).expect("a valid profile")
}

/// What was seen of an invocation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) request: u64,
    pub(crate) start: f64,
    pub(crate) end: f64,
    pub(crate) cold: bool,
}

/// What happened, in order, for a checker that knows nothing of the scheduler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Trail {
    Ordered(Action),
    Ready(ContainerId),
    Finished(ContainerId),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Ready(ContainerId, Option<u64>),
    Finished(ContainerId),
}

/// The world; every invocation executes for as long as its profile says.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) scheduler: Scheduler,
    pub(crate) now: f64,
    pub(crate) log: Vec<Action>,
    pub(crate) trail: Vec<Trail>,
    pub(crate) seen: Vec<Seen>,
    events: Vec<(f64, usize, Event)>,
    count: usize,
    /// What is left of each invocation, by request.
    left: Vec<f64>,
    function_of: Vec<FunctionIndex>,
    actions: Vec<Action>,
}

impl World {
    pub(crate) fn new(
        settings: Settings,
        keep_alive: Box<dyn KeepAlive>,
        workers: &[u64],
        profiles: &[Profile],
    ) -> Self {
        let mut scheduler = Scheduler::new(settings, keep_alive).expect("valid settings");
        let mut actions = Vec::new();
        for &memory in workers {
            scheduler
                .add_worker(Millis::ZERO, MebiBytes(memory), &mut actions)
                .expect("room for a worker");
        }
        for &profile in profiles {
            scheduler.register(profile).expect("room for a function");
        }
        Self {
            scheduler,
            now: 0.0,
            log: Vec::new(),
            trail: Vec::new(),
            seen: Vec::new(),
            events: Vec::new(),
            count: 0,
            left: Vec::new(),
            function_of: Vec::new(),
            actions,
        }
    }

    /// Invocations of these functions come together.
    pub(crate) fn come(&mut self, functions: &[usize]) {
        for &function in functions {
            let function = FunctionIndex::new(function);
            let request = RequestId(self.left.len() as u64);
            let profile = self.scheduler.profile(function).expect("registered");
            self.left.push(profile.execution().get());
            self.function_of.push(function);
            self.seen.push(Seen {
                request: request.0,
                start: f64::NAN,
                end: f64::NAN,
                cold: false,
            });
            self.scheduler
                .enqueue(ms(self.now), request, function)
                .expect("taken");
        }
        self.tick();
    }

    pub(crate) fn tick(&mut self) {
        self.scheduler.tick(ms(self.now), &mut self.actions);
        self.act();
    }

    /// A scaler decides; how many containers are loaded for it.
    pub(crate) fn scale(&mut self, function: usize, decision: Decision) -> u32 {
        let function = FunctionIndex::new(function);
        let loaded = self
            .scheduler
            .scale(ms(self.now), function, decision, &mut self.actions)
            .expect("registered");
        self.act();
        loaded
    }

    /// Lets time pass until then, with everything that happens.
    pub(crate) fn run_until(&mut self, until: f64) {
        loop {
            let tick = self.scheduler.next_tick().map(Millis::get);
            let next = self
                .events
                .iter()
                .map(|&(at, number, _)| (at, number))
                .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            match (tick, next) {
                (Some(tick), _) if tick <= until && next.is_none_or(|(at, _)| tick <= at) => {
                    self.now = tick;
                    self.tick();
                }
                (_, Some((at, number))) if at <= until => {
                    let place = self.events.iter().position(|event| event.1 == number);
                    let (_, _, event) = self.events.remove(place.expect("just seen"));
                    self.now = at;
                    self.happen(event);
                }
                _ => break,
            }
        }
        self.now = until;
    }

    fn happen(&mut self, event: Event) {
        let (now, actions) = (ms(self.now), &mut self.actions);
        match event {
            Event::Ready(container, request) => {
                self.trail.push(Trail::Ready(container));
                self.scheduler
                    .ready(now, container, actions)
                    .expect("it loads");
                if let Some(request) = request {
                    let end = self.now + self.left[request as usize];
                    self.finish_at(end, container, request);
                }
            }
            Event::Finished(container) => {
                self.trail.push(Trail::Finished(container));
                self.scheduler
                    .finished(now, container, actions)
                    .expect("it runs");
            }
        }
        self.act();
    }

    fn finish_at(&mut self, end: f64, container: ContainerId, request: u64) {
        self.seen[request as usize].end = end;
        self.at(end, Event::Finished(container));
    }

    fn at(&mut self, at: f64, event: Event) {
        self.count += 1;
        self.events.push((at, self.count, event));
    }

    fn act(&mut self) {
        for action in std::mem::take(&mut self.actions) {
            self.log.push(action);
            self.trail.push(Trail::Ordered(action));
            match action {
                Action::StartWarm {
                    request, container, ..
                } => {
                    self.begin(request, false);
                    let end = self.now + self.left[request.0 as usize];
                    self.finish_at(end, container, request.0);
                }
                Action::StartCold {
                    request,
                    container,
                    function,
                    ..
                } => {
                    self.begin(request, true);
                    self.load(container, function, Some(request.0));
                }
                Action::Prewarm {
                    container,
                    function,
                    ..
                } => self.load(container, function, None),
                Action::Interrupt { request, container } => self.interrupt(request, container),
                Action::Release { .. } => {}
                Action::Lost { request } => self.seen[request.0 as usize].end = f64::INFINITY,
            }
        }
    }

    fn begin(&mut self, request: RequestId, cold: bool) {
        let seen = &mut self.seen[request.0 as usize];
        seen.cold |= cold;
        if seen.start.is_nan() {
            seen.start = self.now;
        }
    }

    fn load(&mut self, container: ContainerId, function: FunctionIndex, request: Option<u64>) {
        let profile = self.scheduler.profile(function).expect("registered");
        let ready = self.now + profile.cold_start().get();
        self.at(ready, Event::Ready(container, request));
    }

    fn interrupt(&mut self, request: RequestId, container: ContainerId) {
        let stopped = Event::Finished(container);
        let place = self
            .events
            .iter()
            .position(|&(_, _, event)| event == stopped);
        let (end, _, _) = self.events.remove(place.expect("it ran"));
        self.left[request.0 as usize] = end - self.now;
    }

    /// Loses a worker, and what would have happened on it.
    pub(crate) fn lose(&mut self, worker: usize) {
        let worker = WorkerIndex::new(worker);
        let there: Vec<ContainerId> = self
            .scheduler
            .containers()
            .filter(|container| container.worker == worker)
            .map(|container| container.id)
            .collect();
        self.events.retain(|(_, _, event)| {
            let (Event::Ready(container, _) | Event::Finished(container)) = event;
            !there.contains(container)
        });
        self.scheduler
            .worker_lost(ms(self.now), worker, &mut self.actions)
            .expect("it was there");
        self.act();
    }
}
