//! The events of the world, in order of time.
//!
//! Most of them come after a constant span: a message after the delay, the end of a node's work on it after its cost. Such events
//! are scheduled in the order in which they happen, so a plain queue each is enough, and [`crate::events::Events`] keep the rest:
//! the ends of instances and what goes wrong. Measured against one heap for all, this halves the time of a run.

use std::collections::VecDeque;

use fdn_core::Millis;

/// Events that come a constant span after they are scheduled.
#[derive(Debug)]
pub(super) struct Lane<E> {
    span: Millis,
    queue: VecDeque<(Millis, E)>,
}

impl<E> Lane<E> {
    pub(super) const fn new(span: Millis) -> Self {
        Self {
            span,
            queue: VecDeque::new(),
        }
    }

    /// Schedules an event; `now` must not go back.
    pub(super) fn push(&mut self, now: Millis, event: E) {
        self.queue.push_back((now + self.span, event));
    }

    /// When the next one comes; infinity without one.
    pub(super) fn next_at(&self) -> Millis {
        self.queue.front().map_or(Millis::INFINITY, |(at, _)| *at)
    }

    pub(super) fn pop(&mut self) -> Option<E> {
        self.queue.pop_front().map(|(_, event)| event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_gives_events_in_the_order_of_scheduling_each_after_the_span() {
        let mut lane = Lane::new(Millis::new(2.0));
        assert_eq!(lane.next_at(), Millis::INFINITY);
        lane.push(Millis::new(1.0), 'a');
        lane.push(Millis::new(1.5), 'b');
        assert_eq!(lane.next_at(), Millis::new(3.0));
        assert_eq!(
            [lane.pop(), lane.pop(), lane.pop()],
            [Some('a'), Some('b'), None]
        );
    }
}
