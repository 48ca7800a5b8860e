//! How many instances of a function there are, by what they do.

use super::lifecycle::State;

/// Instances of a function by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Asked for, on no node yet.
    pub pending: u32,
    /// On a node, not ready.
    pub starting: u32,
    /// Warm, running nothing: `W(j)`.
    pub idle: u32,
    /// Running a call.
    pub busy: u32,
    /// Taking no further call.
    pub draining: u32,
}

impl Counts {
    /// Those that run or could: the autoscaler's `running`.
    #[must_use]
    pub const fn running(&self) -> u32 {
        self.idle + self.busy
    }

    /// Those that are still to come: the autoscaler's `pending`.
    #[must_use]
    pub const fn coming(&self) -> u32 {
        self.pending + self.starting
    }

    /// All of them.
    #[must_use]
    pub const fn all(&self) -> u32 {
        self.running() + self.coming() + self.draining
    }

    /// The number in a state; none are gone.
    pub(super) fn of(&mut self, state: State) -> Option<&mut u32> {
        match state {
            State::Pending => Some(&mut self.pending),
            State::Starting => Some(&mut self.starting),
            State::Idle => Some(&mut self.idle),
            State::Busy => Some(&mut self.busy),
            State::Draining => Some(&mut self.draining),
            State::Gone => None,
        }
    }
}
