//! One function in virtual time: requests come, wait, run; instances start, idle and stop as the scaler says.
//!
//! Nothing but the scaler decides here. A waiting request runs on the first instance that is free or ready; every instance runs
//! one request at a time; starting takes the function's cold-start time. The scaler is asked every [`TICK`], and at once when
//! a request comes and there is no instance at all. While there is nothing to see and none wanted, ticks are left out.

use std::collections::VecDeque;

use fdn_core::Millis;
use fdn_scheduling::scale::{Decision, Keep, Load, Scaler, Size};

use super::input::Function;
use super::measure::Reversals;
use crate::Error;
use crate::events::Events;

/// How often the scaler is asked.
pub const TICK: Millis = Millis::new(2000.0);

/// What a function went through under a scaler.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// Requests that waited for an instance to start.
    pub cold: u64,
    /// How long each request waited, in ms, in the order in which they ran.
    pub waits: Vec<f64>,
    /// How long instances were there, starting ones included.
    pub alive_ms: f64,
    /// How long they worked.
    pub busy_ms: f64,
    /// How the wanted number went up and down.
    pub reversals: Reversals,
    /// The wanted number, whenever it changed, with its time in ms.
    pub sizes: Vec<(f64, u32)>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrive(usize),
    Finish,
    Ready,
    Tick,
}

struct World<'a> {
    function: &'a Function,
    scaler: &'a mut dyn Scaler,
    events: Events<Event>,
    /// Times and execution times of those that wait.
    queue: VecDeque<(f64, f64)>,
    idle: u32,
    busy: u32,
    starting: u32,
    wanted: u32,
    /// Whether a tick is scheduled.
    ticking: bool,
    since_tick: Seen,
    /// When the integrals were brought up to date.
    integrated: f64,
    course: Course,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    from: f64,
    arrivals: u64,
    busy_ms: f64,
}

/// Plays all requests of a function, until the last instance is gone.
///
/// # Errors
/// When a request was lost: a bug.
pub fn play(function: &Function, scaler: &mut dyn Scaler, window: Millis) -> Result<Course, Error> {
    let mut world = World {
        function,
        scaler,
        events: Events::default(),
        queue: VecDeque::new(),
        idle: 0,
        busy: 0,
        starting: 0,
        wanted: 0,
        ticking: false,
        since_tick: Seen::default(),
        integrated: 0.0,
        course: Course {
            reversals: Reversals::new(window),
            ..Course::default()
        },
    };
    world.arrive_at(0);
    while let Some((now, event)) = world.events.pop() {
        world.integrate(now.get());
        match event {
            Event::Arrive(at) => world.arrive(at, now),
            Event::Finish => {
                world.busy -= 1;
                world.free(now, false);
            }
            Event::Ready => {
                world.starting -= 1;
                world.free(now, true);
            }
            Event::Tick => {
                world.ticking = false;
                world.tick(now);
            }
        }
    }
    let (came, ran) = (function.requests.len(), world.course.waits.len());
    if came != ran || world.idle + world.busy + world.starting > 0 {
        return Err(Error::Broken(format!(
            "{}: of {came} requests {ran} ran, and {} instances are left",
            function.name,
            world.idle + world.busy + world.starting
        )));
    }
    Ok(world.course)
}

impl World<'_> {
    fn integrate(&mut self, now: f64) {
        let span = now - self.integrated;
        self.course.alive_ms += span * f64::from(self.idle + self.busy + self.starting);
        self.course.busy_ms += span * f64::from(self.busy);
        self.since_tick.busy_ms += span * f64::from(self.busy);
        self.integrated = now;
    }

    fn arrive_at(&mut self, at: usize) {
        if let Some(request) = self.function.requests.get(at) {
            self.events.at(Millis::new(request.at), Event::Arrive(at));
        }
    }

    fn arrive(&mut self, at: usize, now: Millis) {
        self.arrive_at(at + 1);
        self.since_tick.arrivals += 1;
        let exec = self.function.requests[at].exec;
        if self.idle > 0 {
            self.idle -= 1;
            self.run(now, now.get(), exec);
        } else {
            self.queue.push_back((now.get(), exec));
        }
        if self.busy + self.starting == 0 {
            self.tick(now);
        }
        self.keep_ticking();
    }

    fn run(&mut self, now: Millis, came: f64, exec: f64) {
        self.busy += 1;
        self.course.waits.push(now.get() - came);
        self.events.after(Millis::new(exec), Event::Finish);
    }

    /// An instance can take a request; `fresh` if it has just started.
    fn free(&mut self, now: Millis, fresh: bool) {
        match self.queue.pop_front() {
            Some((came, exec)) => {
                self.course.cold += u64::from(fresh);
                self.run(now, came, exec);
            }
            None => self.idle += 1,
        }
    }

    fn tick(&mut self, now: Millis) {
        let decision = self.ask(now);
        if decision.wanted != self.wanted {
            self.course
                .reversals
                .change(now, self.wanted, decision.wanted);
            self.course.sizes.push((now.get(), decision.wanted));
            self.wanted = decision.wanted;
        }
        for _ in 0..decision.start {
            self.starting += 1;
            self.events.after(self.function.profile.cold, Event::Ready);
        }
        self.idle -= decision.stop.min(self.idle);
        self.keep_ticking();
    }

    fn ask(&mut self, now: Millis) -> Decision {
        let span = now.get() - self.since_tick.from;
        let load = Load {
            arrivals: self.since_tick.arrivals,
            busy: if span > 0.0 {
                self.since_tick.busy_ms / span
            } else {
                f64::from(self.busy)
            },
            executing: u64::from(self.busy),
            queued: self.queue.len() as u64,
        };
        self.since_tick = Seen {
            from: now.get(),
            ..Seen::default()
        };
        let size = Size {
            running: self.idle + self.busy,
            pending: self.starting,
        };
        self.scaler.tick(now, size, Some(&load), Keep::Grace)
    }

    fn keep_ticking(&mut self) {
        let there = self.idle + self.busy + self.starting + self.wanted > 0;
        if !self.ticking && (there || !self.queue.is_empty()) {
            self.ticking = true;
            self.events.after(TICK, Event::Tick);
        }
    }
}
