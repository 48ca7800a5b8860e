//! Settings of a submitter.

use fdn_core::Millis;

/// Settings of a submitter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SubmitterSettings {
    /// How long a task is wanted after its submission: its deadline.
    pub wanted: Millis,
    /// How long to wait for news before a task is sent again; doubled each time, up to `resend_most`. Infinite: never.
    pub resend: Millis,
    /// The longest interval between repetitions.
    pub resend_most: Millis,
    /// How long schedulers remember a task after its deadline, less the clock differences within the cluster.
    pub memory: Millis,
    /// The most open tasks, at most 2^24; beyond it none is accepted. Memory for all is allocated at the start.
    pub open: usize,
    /// The most unanswered tasks in flight; further ones are held back.
    pub window: usize,
    /// How long an unanswered task counts towards the window. Infinite: always.
    pub patience: Millis,
    /// Whether tasks go to the global scheduler directly.
    pub central: bool,
}

impl SubmitterSettings {
    /// Defaults derived from the round-trip time to a node.
    #[must_use]
    pub fn for_round_trip(round_trip: Millis) -> Self {
        Self {
            wanted: Millis::new(30_000.0),
            resend: round_trip * 20.0,
            resend_most: round_trip * 640.0,
            memory: Millis::new(900.0),
            open: 1 << 16,
            window: 1 << 16,
            patience: Millis::INFINITY,
            central: false,
        }
    }
}

/// The bound on open tasks is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{open} tasks are open, as many as may be")]
pub struct TooManyOpen {
    /// The number of open tasks.
    pub open: usize,
}
