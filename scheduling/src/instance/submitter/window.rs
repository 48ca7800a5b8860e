//! The window of a submitter: how many of its tasks are in flight at a time; the others are held back, shortest first.

use fdn_core::Millis;
use rand::Rng;

use super::super::demand::Demand;
use super::super::message::{Action, TaskId};
use super::super::order::ShortestFirst;
use super::super::slab::Slab;
use super::{Phase, Submitter};

/// Stored instead of a slot: the task does not count towards the window.
const UNCOUNTED: u32 = u32::MAX;
/// Stored instead of a slot: the task has not been sent.
pub(super) const HELD: u32 = u32::MAX - 1;

/// A task in flight, and since when.
#[derive(Clone, Copy, Debug)]
struct InFlightTask {
    id: TaskId,
    since: Millis,
}

/// The window: see the module.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// The held tasks, and some that were held until they expired.
    queue: ShortestFirst<TaskId>,
    /// The number of held tasks.
    held: usize,
    /// In the order of sending.
    in_flight: Slab<InFlightTask>,
    /// The most held tasks; when the queue has grown to twice as many, expired ones are removed.
    limit: usize,
}

impl Window {
    pub(super) fn new(window: usize, limit: usize) -> Self {
        Self {
            queue: ShortestFirst::with_capacity(0),
            held: 0,
            in_flight: Slab::new(window.clamp(1, limit.max(1))),
            limit,
        }
    }

    /// Notes a task that is sent for the first time, and returns its slot.
    pub(super) fn sent(&mut self, now: Millis, id: TaskId) -> u32 {
        let in_flight = InFlightTask { id, since: now };
        self.in_flight.push(in_flight).unwrap_or(UNCOUNTED)
    }

    /// Frees the slot of a settled task.
    pub(super) fn settled(&mut self, place: u32) {
        if place == HELD {
            self.held -= 1;
        } else {
            self.in_flight.remove(place);
        }
    }

    /// When the first task in flight ceases to count; `None` if no task is held back.
    pub(super) fn next_timer(&self, patience: Millis) -> Option<Millis> {
        let (_, first) = self.in_flight.first().filter(|_| self.held > 0)?;
        Some(first.since + patience).filter(|at| at.is_finite())
    }
}

impl<D: Demand> Submitter<D> {
    /// The number of held tasks.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.window.held
    }

    /// Whether the window allows one more task in flight.
    pub(super) fn may_send(&mut self, now: Millis) -> bool {
        self.expire_in_flight(now);
        !self.window.in_flight.is_full()
    }

    /// Holds a task back; its timer is its deadline.
    pub(super) fn hold(&mut self, id: TaskId, slot: u32, remaining: Millis) {
        if self.window.queue.len() >= self.window.limit * 2 {
            let mut window = std::mem::replace(&mut self.window, Window::new(1, 1));
            window.queue.retain(|id| self.is_held(*id));
            self.window = window;
        }
        self.window.queue.push(remaining, id);
        self.window.held += 1;
        if let Some(open) = &mut self.open[slot as usize] {
            let deadline = open.task.deadline;
            open.due = deadline;
            self.set_timer(deadline, id);
        }
    }

    fn is_held(&self, id: TaskId) -> bool {
        self.find(id)
            .is_some_and(|open| matches!(open.phase, Phase::Held))
    }

    /// Sends held tasks as far as the window allows.
    pub(super) fn send_held(
        &mut self,
        now: Millis,
        rng: &mut impl Rng,
        actions: &mut Vec<Action<D>>,
    ) {
        while self.window.held > 0
            && self.may_send(now)
            && let Some((_, id)) = self.window.queue.pop()
        {
            // It may be settled; and if its deadline has passed, its timer settles it.
            if let Ok(slot) = self.slot(id)
                && let Some(open) = &self.open[slot as usize]
                && matches!(open.phase, Phase::Held)
                && now < open.task.deadline
            {
                self.window.held -= 1;
                self.send(now, slot, rng, actions);
            }
        }
    }

    /// Stops counting tasks that have been unanswered for longer than `patience`.
    fn expire_in_flight(&mut self, now: Millis) {
        while let Some((place, first)) = self.window.in_flight.first()
            && first.since + self.settings.patience <= now
        {
            let id = first.id;
            self.window.in_flight.remove(place);
            if let Ok(slot) = self.slot(id)
                && let Some(open) = &mut self.open[slot as usize]
            {
                open.in_flight = UNCOUNTED;
            }
        }
    }
}
