//! Selects the next controller to try: a random one that was not tried since the connection broke, so that the machines of a dead controller spread
//! over all the others.

/// The controllers, by their index in the list.
#[derive(Clone, Debug)]
pub(crate) struct ControllerRotation {
    all: usize,
    untried: Vec<usize>,
    current: usize,
}

impl ControllerRotation {
    /// The state before any controller was tried.
    pub(crate) fn new(all: usize) -> Self {
        Self {
            all,
            untried: (0..all).collect(),
            current: 0,
        }
    }

    /// Selects the next controller; `random` is from 0 to 1. Once all were tried, all are tried again, but the last one not immediately.
    pub(crate) fn next(&mut self, random: f64) -> usize {
        if self.untried.is_empty() {
            let last = self.current;
            let all = 0..self.all;
            self.untried = all.filter(|one| self.all < 2 || *one != last).collect();
        }
        if let Some(most) = self.untried.len().checked_sub(1) {
            self.current = self
                .untried
                .swap_remove(index_at(self.untried.len(), random).min(most));
        }
        self.current
    }

    /// Notes that the present controller was connected: if it fails, all others are equally good.
    pub(crate) fn connected(&mut self) {
        let current = self.current;
        self.untried = (0..self.all).filter(|one| *one != current).collect();
    }

    /// The index of the present controller.
    pub(crate) const fn current(&self) -> usize {
        self.current
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a place in a short list"
)]
fn index_at(among: usize, random: f64) -> usize {
    (random.clamp(0.0, 1.0) * among as f64) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_is_tried_before_one_is_tried_again() {
        let mut rotation = ControllerRotation::new(3);
        for random in [0.0, 0.5, 1.0] {
            let tried: BTreeSet<usize> = (0..3).map(|_| rotation.next(random)).collect();
            assert_eq!(tried.len(), 3, "{random}");
            rotation = ControllerRotation::new(3);
        }
        let last = (0..3).map(|_| rotation.next(0.3)).last();
        assert_ne!(Some(rotation.next(0.3)), last);
        let mut alone = ControllerRotation::new(1);
        assert_eq!([alone.next(0.9), alone.next(0.1)], [0, 0]);
    }

    #[test]
    fn the_machines_of_a_controller_go_to_all_the_others() {
        let after = |random| {
            let mut rotation = ControllerRotation::new(3);
            while rotation.current() != 1 || rotation.untried.len() == 3 {
                rotation.next(0.0);
            }
            rotation.connected();
            (
                rotation.next(random),
                rotation.next(random),
                rotation.next(random),
            )
        };
        let (low, high) = (after(0.1), after(0.9));
        assert_eq!((low.0, low.1), (0, 2));
        assert_eq!((high.0, high.1), (2, 0));
        // After both others, the one whose connection broke is tried as well.
        assert!(low.2 != 2 && high.2 != 0);
    }
}
