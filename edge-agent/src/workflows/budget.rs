//! The bytes that one run may keep. Everything that it keeps is taken from one budget as it arrives, so that stages that run at the same time share
//! it: each could have all of it if it were only told at its start how much is left.

use std::cell::Cell;
use std::rc::Rc;

use fdn_core::ErrorCode;
use fdn_scheduling::run::{Failure, FailureKind};

/// The number of bytes that a run may still keep. A run stays on one thread.
#[derive(Clone, Debug)]
pub struct Budget(Rc<Cell<usize>>);

/// Bytes taken from a budget. Dropped, they are given back.
#[derive(Debug)]
pub struct Held {
    budget: Budget,
    bytes: usize,
}

impl Budget {
    /// A budget from which nothing was taken.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self(Rc::new(Cell::new(bytes)))
    }

    /// The number of bytes that are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.0.get()
    }

    /// Takes nothing yet.
    #[must_use]
    pub fn nothing(&self) -> Held {
        Held {
            budget: self.clone(),
            bytes: 0,
        }
    }

    /// Takes bytes; `None` if so many are not left.
    #[must_use]
    pub fn take(&self, bytes: usize) -> Option<Held> {
        let mut held = self.nothing();
        held.grow(bytes).then_some(held)
    }
}

impl Held {
    /// Takes more bytes. False if so many are not left; nothing is taken then.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        let Some(left) = self.budget.left().checked_sub(bytes) else {
            return false;
        };
        self.budget.0.set(left);
        self.bytes += bytes;
        true
    }

    /// The most bytes that this could hold now.
    #[must_use]
    pub fn most(&self) -> usize {
        self.bytes.saturating_add(self.budget.left())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let left = self.budget.left().saturating_add(self.bytes);
        self.budget.0.set(left);
    }
}

/// The failure of a stage whose output or input, `what`, is larger than the `limit` that the run may still keep.
pub(super) fn too_large(what: &str, limit: usize) -> Failure {
    let told = format!(
        "{}: its {what} is larger than the {limit} bytes that the run may still keep",
        ErrorCode::WorkflowTooLarge
    );
    Failure::new(FailureKind::Refused, told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_comes_back_when_it_is_dropped() {
        let budget = Budget::new(10);
        let first = budget.take(6).expect("there are 10");
        assert!(budget.take(5).is_none());
        assert_eq!(budget.left(), 4, "what does not fit takes nothing");
        let mut second = budget.take(1).expect("there are 4");
        assert!(!second.grow(4));
        assert_eq!((second.most(), budget.left()), (4, 3));
        assert!(second.grow(3));
        assert_eq!(budget.left(), 0);
        drop(first);
        assert_eq!((second.most(), budget.left()), (10, 6));
        drop(second);
        assert_eq!(budget.left(), 10);
    }

    #[test]
    fn those_that_collect_at_the_same_time_hold_no_more_than_there_is_together() {
        const PIECE: usize = 64 << 10;
        let budget = Budget::new(1 << 20);
        let mut stages: Vec<Held> = (0..4).map(|_| budget.nothing()).collect();
        let (mut pieces, mut refused) = (0, 0);
        // 640 KiB each.
        for _ in 0..10 {
            for held in &mut stages {
                if held.grow(PIECE) {
                    pieces += 1;
                } else {
                    refused += 1;
                }
            }
        }
        assert_eq!((pieces, refused, budget.left()), (16, 24, 0));
        let failure = too_large("output", stages[0].most());
        assert_eq!(failure.kind, FailureKind::Refused);
        let code = ErrorCode::WorkflowTooLarge.as_str();
        assert!(failure.reason.starts_with(code), "{}", failure.reason);
    }
}
