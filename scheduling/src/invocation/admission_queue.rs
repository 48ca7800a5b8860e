//! Which waiting invocation runs next, where running takes a place and memory, and nothing has to be loaded.
//!
//! **Problem.** A sandbox that is made for each invocation within microseconds needs no container that is kept: an invocation takes
//! memory `R` and a place for as long as it runs. While both are free nothing waits, and nobody asks here. Once the node is
//! full, those that wait are let in by the [`Order`], the head blocking those behind it (formula (9) of the article on FuncSched),
//! so that a large invocation is not passed for ever by small ones that always fit.
//!
//! **Readings.** `D` of formula (10) is the time to make a sandbox, paid where `W(j) = 0`. The guard against starvation is that of the
//! scheduler of containers. The caller owns memory and places, and asks for the [`Candidate`] whenever something became free.
//!
//! **Complexity.** O(log F) for each change, F functions with waiting invocations. **Bounds.** Those of the queue, and the number of
//! functions. **Invariant.** Every invocation that was taken is started, given up or waits.

use fdn_core::Millis;

use super::id::{FunctionIndex, RequestId, Ticket};
use super::order::left;
use super::profile::Profile;
use super::queue::{Queue, Queued};
use super::refusal::Refusal;
use super::settings::Settings;
use super::starvation::Starvation;

/// The invocation that runs next, once there is room for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its function.
    pub function: FunctionIndex,
    /// Whether it goes first for its age.
    pub for_its_age: bool,
}

/// The order of those who wait for a place.
#[derive(Debug)]
pub struct AdmissionQueue {
    queue: Queue,
    starvation: Starvation,
    functions: usize,
    limit: usize,
    retired: Vec<FunctionIndex>,
    now: Millis,
}

impl AdmissionQueue {
    /// An admission queue at which nobody waits. Of the settings, order, guard, bounds of the queue and the number of functions count.
    ///
    /// # Errors
    /// When a setting cannot be used, or the order interrupts invocations.
    pub fn new(settings: &Settings) -> Result<Self, Refusal> {
        settings.check()?;
        if settings.order.quantum().is_some() {
            let what = "an order that interrupts invocations needs containers";
            return Err(Refusal::InvalidSetting { what });
        }
        Ok(Self {
            queue: Queue::new(
                settings.order,
                settings.queue,
                settings.starvation.is_some(),
            ),
            starvation: Starvation::new(settings.starvation),
            functions: 0,
            limit: settings.tables.functions,
            retired: Vec::new(),
            now: Millis::ZERO,
        })
    }

    /// Makes a function known.
    ///
    /// # Errors
    /// When as many are known as may.
    pub fn register(&mut self, profile: Profile) -> Result<FunctionIndex, Refusal> {
        if let Some(function) = self.retired.pop() {
            self.queue.set_profile(function, profile);
            return Ok(function);
        }
        if self.functions >= self.limit {
            let (what, limit) = ("functions", self.limit);
            return Err(Refusal::TableFull { what, limit });
        }
        self.functions += 1;
        Ok(self.queue.add_function(profile))
    }

    /// Forgets a function; its index may be given to another one.
    ///
    /// # Errors
    /// When invocations of it wait.
    pub fn retire(&mut self, function: FunctionIndex) -> Result<(), Refusal> {
        if self.queue.len_of(function) > 0 {
            return Err(Refusal::InUse { function });
        }
        self.retired.push(function);
        Ok(())
    }

    /// What is known of a function now: its times, and whether a sandbox of it is kept for reuse.
    pub fn know(&mut self, function: FunctionIndex, profile: Profile, warm: bool) {
        if *self.queue.profile(function) != profile {
            self.queue.set_profile(function, profile);
        }
        self.queue.set_warm(function, warm);
    }

    /// An invocation waits.
    ///
    /// # Errors
    /// When as many wait as may.
    pub fn enqueue(
        &mut self,
        now: Millis,
        request: RequestId,
        function: FunctionIndex,
    ) -> Result<Ticket, Refusal> {
        self.now = self.now.max(now);
        self.queue.push(function, request, self.now)
    }

    /// A waiting invocation is given up; `None` if it no longer waits.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<RequestId> {
        Some(self.queue.cancel(ticket)?.request)
    }

    /// How many wait.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// What the invocation that runs next needs.
    #[must_use]
    pub fn profile(&self, candidate: Candidate) -> &Profile {
        self.queue.profile(candidate.function)
    }

    /// Which invocation runs next.
    pub fn next(&mut self, now: Millis) -> Option<Candidate> {
        self.now = self.now.max(now);
        let starved = self.queue.oldest().and_then(|(arrival, function)| {
            let starves = self.starvation.starves_at(arrival)? <= self.now;
            (starves && self.starvation.is_admitting()).then_some(function)
        });
        let function = starved.or_else(|| self.queue.first())?;
        Some(Candidate {
            function,
            for_its_age: starved.is_some(),
        })
    }

    /// The candidate runs; `None` if nobody of its function waits any more.
    pub fn start(&mut self, candidate: Candidate) -> Option<RequestId> {
        let Queued {
            request, executed, ..
        } = self.queue.pop(candidate.function)?;
        let profile = self.queue.profile(candidate.function);
        let cost = left(profile, executed).get() * profile.memory().get() as f64;
        self.starvation.started(cost, candidate.for_its_age);
        Some(request)
    }
}
