//! The queue of waiting invocations.
//!
//! **Problem.** Of all waiting invocations, the one with the smallest key of the [`Order`] goes first; the key changes for all
//! invocations of a function at once when its number of warm containers `W(j)` becomes zero or ceases to be.
//!
//! **Source.** The article on FuncSched, section on priorities (formula 10).
//!
//! All waiting invocations of one function share `P`, so there is one FIFO list for each function and an indexed heap over the functions
//! with waiting invocations. A function is re-keyed when `W(j)` becomes zero or ceases to be, and when its head or its profile changes.
//!
//! A function can be *parked*: it keeps its invocations but is left out of the order until an event concerns it, or enough memory for its
//! container becomes free. So skipped invocations are not examined again and again.
//!
//! **Complexity.** O(log F) for each change, F functions with waiting invocations, independent of the number of invocations; a pre-empted
//! invocation of [`Order::Srtf`] is also compared with those of its function that have less time left.
//!
//! **Bounds.** Invocations in all, and of each function; at the bound a [`Refusal`], and nothing changes. A pre-empted invocation was
//! accepted before, so it is always taken back.

use fdn_core::Millis;

use super::heap::IndexedHeap;
use super::id::{FunctionIndex, RequestId, Ticket};
use super::list::{BYTES, List, Lists, NONE, Waiting};
use super::order::{Head, Key, Order, left};
use super::profile::Profile;
use super::refusal::Refusal;

/// Bounds on waiting invocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// The bound over all functions.
    pub total: usize,
    /// The bound for each function.
    pub per_function: usize,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self {
            total: 1_000_000,
            per_function: 100_000,
        }
    }
}

/// An invocation removed from the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    /// The caller's id.
    pub request: RequestId,
    /// When it arrived.
    pub arrival: Millis,
    /// How long it has executed before it was pre-empted; zero otherwise.
    pub executed: Millis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Eligibility {
    /// Takes part in the order.
    Ready,
    /// Waits for its own containers; its age still counts.
    Parked,
    /// Larger than every worker; neither order nor age admits it.
    Stranded,
    /// At its limit of containers; neither order, age nor free memory admits it.
    Capped,
}

#[derive(Clone, Debug)]
struct FunctionQueue {
    profile: Profile,
    warm: bool,
    eligibility: Eligibility,
    list: List,
}

/// The waiting invocations in an [`Order`].
///
/// # Panics
/// Every method that takes a function panics if that function was not added to this queue.
#[derive(Clone, Debug)]
pub struct Queue {
    order: Order,
    limits: QueueLimits,
    turns: u64,
    lists: Lists,
    functions: Vec<FunctionQueue>,
    ready: IndexedHeap<Key>,
    parked: IndexedHeap<u64>,
    /// Functions by the arrival of their heads; `None` if ages do not matter.
    ages: Option<IndexedHeap<Millis>>,
}

impl Queue {
    /// The memory of each waiting invocation, in bytes.
    pub const BYTES_EACH: usize = BYTES;

    /// An empty queue. With `ages` it also orders functions by the waiting time of their heads, for a starvation guard.
    #[must_use]
    pub fn new(order: Order, limits: QueueLimits, ages: bool) -> Self {
        Self {
            order,
            limits,
            turns: 0,
            lists: Lists::default(),
            functions: Vec::new(),
            ready: IndexedHeap::default(),
            parked: IndexedHeap::default(),
            ages: ages.then(IndexedHeap::default),
        }
    }

    /// The order of the queue.
    #[must_use]
    pub const fn order(&self) -> Order {
        self.order
    }

    /// The number of waiting invocations.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.lists.len()
    }

    /// Whether no invocation waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.lists.len() == 0
    }

    /// The number of waiting invocations of a function.
    #[must_use]
    pub fn len_of(&self, function: FunctionIndex) -> usize {
        self.functions[function.get()].list.len
    }

    /// The profile of a function.
    #[must_use]
    pub fn profile(&self, function: FunctionIndex) -> &Profile {
        &self.functions[function.get()].profile
    }

    /// Adds a function, with no warm containers.
    pub fn add_function(&mut self, profile: Profile) -> FunctionIndex {
        self.functions.push(FunctionQueue {
            profile,
            warm: false,
            eligibility: Eligibility::Ready,
            list: List::default(),
        });
        FunctionIndex::new(self.functions.len() - 1)
    }

    /// Replaces a function's profile.
    pub fn set_profile(&mut self, function: FunctionIndex, profile: Profile) {
        self.functions[function.get()].profile = profile;
        self.unpark(function);
    }

    /// Sets whether `W(j) > 0`.
    pub fn set_warm(&mut self, function: FunctionIndex, warm: bool) {
        let queue = &mut self.functions[function.get()];
        if queue.warm != warm {
            queue.warm = warm;
            self.unpark(function);
        }
    }

    /// Adds an invocation at the end of its function's list; the ticket cancels it.
    ///
    /// # Errors
    /// When a bound is reached.
    pub fn push(
        &mut self,
        function: FunctionIndex,
        request: RequestId,
        arrival: Millis,
    ) -> Result<Ticket, Refusal> {
        let QueueLimits {
            total,
            per_function,
        } = self.limits;
        if self.lists.len() >= total {
            return Err(Refusal::QueueFull { limit: total });
        }
        if self.functions[function.get()].list.len >= per_function {
            return Err(Refusal::FunctionQueueFull {
                function,
                limit: per_function,
            });
        }
        let queued = Queued {
            request,
            arrival,
            executed: Millis::ZERO,
        };
        Ok(self.put(function, queued))
    }

    /// Takes back a pre-empted invocation.
    pub(super) fn put(&mut self, function: FunctionIndex, queued: Queued) -> Ticket {
        let Queued {
            request,
            arrival,
            executed,
        } = queued;
        let waiting = Waiting {
            request,
            arrival,
            turn: self.turns,
            executed,
        };
        self.turns += 1;
        let queue = &mut self.functions[function.get()];
        let remaining = left(&queue.profile, executed);
        let goes_before = |other: &Waiting| {
            (remaining, arrival) < (left(&queue.profile, other.executed), other.arrival)
        };
        let sorted = matches!(self.order, Order::Srtf { .. }) && executed > Millis::ZERO;
        let slot = self.lists.insert(
            function.raw(),
            &mut queue.list,
            waiting,
            sorted.then_some(goes_before),
        );
        self.unpark(function);
        Ticket(slot)
    }

    /// The function whose head goes first; `None` if none is eligible.
    #[must_use]
    pub fn first(&self) -> Option<FunctionIndex> {
        Some(FunctionIndex::from_raw(self.ready.peek()?.1))
    }

    /// The remaining time of the first invocation, below which a pre-empted one would go first again.
    pub(super) fn least_left(&self) -> Option<Millis> {
        let queue = &self.functions[self.first()?.get()];
        let head = self.lists.waiting(queue.list.first);
        Some(left(&queue.profile, head.executed))
    }

    /// The function whose head has waited longest, with its arrival; `None` if none waits or ages are not kept.
    pub(super) fn oldest(&self) -> Option<(Millis, FunctionIndex)> {
        let (arrival, function) = self.ages.as_ref()?.peek()?;
        Some((arrival, FunctionIndex::from_raw(function)))
    }

    /// Removes the first invocation of a function; `None` if none waits.
    pub fn pop(&mut self, function: FunctionIndex) -> Option<Queued> {
        let first = self.functions[function.get()].list.first;
        (first != NONE).then(|| self.take(function, first))
    }

    /// Removes a cancelled invocation; `None` if it no longer waits.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<Queued> {
        let at = self.lists.find(ticket.0)?;
        let function = FunctionIndex::from_raw(self.lists.function(at));
        Some(self.take(function, at))
    }

    fn take(&mut self, function: FunctionIndex, at: u32) -> Queued {
        let waiting = self
            .lists
            .remove(&mut self.functions[function.get()].list, at);
        self.unpark(function);
        Queued {
            request: waiting.request,
            arrival: waiting.arrival,
            executed: waiting.executed,
        }
    }

    /// Parks a function: leaves it out of the order until it changes or its memory becomes free.
    pub(super) fn park(&mut self, function: FunctionIndex) {
        self.stand(function, Eligibility::Parked);
    }

    /// Leaves out a function that is larger than every worker, until one is large enough.
    pub(super) fn strand(&mut self, function: FunctionIndex) {
        self.stand(function, Eligibility::Stranded);
    }

    /// Leaves out a function at its limit of containers, until one turns warm or the limit rises.
    pub(super) fn cap(&mut self, function: FunctionIndex) {
        self.stand(function, Eligibility::Capped);
    }

    /// Readmits a function that was left out because of its limit.
    pub(super) fn uncap(&mut self, function: FunctionIndex) {
        if self.functions[function.get()].eligibility == Eligibility::Capped {
            self.unpark(function);
        }
    }

    /// Readmits a function with its present key.
    pub(super) fn unpark(&mut self, function: FunctionIndex) {
        self.stand(function, Eligibility::Ready);
    }

    /// Readmits the parked functions whose container fits into this much free memory.
    pub(super) fn unpark_fitting(&mut self, free: u64) {
        while let Some((memory, function)) = self.parked.peek()
            && memory <= free
        {
            self.unpark(FunctionIndex::from_raw(function));
        }
    }

    fn stand(&mut self, function: FunctionIndex, eligibility: Eligibility) {
        let row = function.raw();
        let queue = &mut self.functions[function.get()];
        queue.eligibility = eligibility;
        let head = (queue.list.first != NONE).then(|| self.lists.waiting(queue.list.first));
        match head {
            Some(head) if eligibility == Eligibility::Ready => {
                let seen = Head {
                    arrival: head.arrival,
                    turn: head.turn,
                    executed: head.executed,
                };
                self.parked.remove(row);
                let key = self.order.key(&queue.profile, queue.warm, &seen);
                self.ready.set(row, key);
            }
            Some(_) if eligibility != Eligibility::Capped => {
                self.ready.remove(row);
                self.parked.set(row, queue.profile.memory().get());
            }
            Some(_) | None => {
                self.ready.remove(row);
                self.parked.remove(row);
            }
        }
        if let Some(ages) = &mut self.ages {
            match head {
                Some(head) if matches!(eligibility, Eligibility::Ready | Eligibility::Parked) => {
                    ages.set(row, head.arrival);
                }
                _ => drop(ages.remove(row)),
            }
        }
    }

    /// Whether any function is parked.
    pub(super) const fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }
}
