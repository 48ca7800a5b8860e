//! The order in which waiting invocations are admitted where running takes a place and memory, but no container has to be loaded.
//!
//! **Problem.** A sandbox that is created for each invocation within microseconds needs no container that is kept: an invocation takes
//! memory `R` and a place for as long as it runs. While both are available nothing waits, and this queue is not used. On a full node,
//! waiting invocations are admitted by the [`Order`]; the head blocks those behind it (formula (9) of the article on FuncSched), so that
//! small invocations that always fit cannot overtake a large one for ever.
//!
//! **Readings.** `D` of formula (10) is the time to create a sandbox, paid where `W(j) = 0`. The guard against starvation is that of
//! [`super::Scheduler`]. The caller owns memory and places, and asks for the [`Candidate`] whenever something becomes free.
//!
//! **Complexity.** O(log F) for each change, F functions with waiting invocations. **Bounds.** Those of the queue, and the number of
//! functions. **Invariant.** Every accepted invocation is started, cancelled or waits.

use fdn_core::Millis;

use super::id::{FunctionIndex, RequestId, Ticket};
use super::order::left;
use super::profile::Profile;
use super::queue::{Queue, Queued};
use super::refusal::Refusal;
use super::settings::Settings;
use super::starvation::Starvation;

/// The invocation that runs next, once there is capacity for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The function whose first waiting invocation is meant.
    pub function: FunctionIndex,
    /// Whether it goes first because it has waited too long ([`super::Guard`]).
    pub for_its_age: bool,
}

/// The admission queue: see the module.
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
    /// An empty admission queue. Of the settings, it uses the order, the guard, the bounds of the queue and the number of functions.
    ///
    /// # Errors
    /// When a setting is out of its range, or the order pre-empts invocations.
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

    /// Registers a function.
    ///
    /// # Errors
    /// When the bound on functions is reached.
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

    /// Removes a function; its index may be reused for another one.
    ///
    /// # Errors
    /// When invocations of it are waiting.
    pub fn retire(&mut self, function: FunctionIndex) -> Result<(), Refusal> {
        if self.queue.len_of(function) > 0 {
            return Err(Refusal::InUse { function });
        }
        self.retired.push(function);
        Ok(())
    }

    /// Updates a function's profile, and whether a sandbox of it is kept for reuse (`W(j) > 0`).
    pub fn know(&mut self, function: FunctionIndex, profile: Profile, warm: bool) {
        if *self.queue.profile(function) != profile {
            self.queue.set_profile(function, profile);
        }
        self.queue.set_warm(function, warm);
    }

    /// Adds an invocation; the ticket cancels it.
    ///
    /// # Errors
    /// When a bound of the queue is reached.
    pub fn enqueue(
        &mut self,
        now: Millis,
        request: RequestId,
        function: FunctionIndex,
    ) -> Result<Ticket, Refusal> {
        self.now = self.now.max(now);
        self.queue.push(function, request, self.now)
    }

    /// Removes a waiting invocation and returns its id; `None` if it no longer waits.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<RequestId> {
        Some(self.queue.cancel(ticket)?.request)
    }

    /// The number of waiting invocations.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// The profile of the candidate's function, and so what it needs.
    #[must_use]
    pub fn profile(&self, candidate: Candidate) -> &Profile {
        self.queue.profile(candidate.function)
    }

    /// The invocation that runs next; `None` if none waits.
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

    /// Removes the candidate from the queue to run it and returns its id; `None` if no invocation of its function waits any more.
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
