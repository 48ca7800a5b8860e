//! What a submitter can be set to.

use fdn_core::Millis;

/// Settings of a submitter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SubmitterSettings {
    /// For how long a task is wanted.
    pub wanted: Millis,
    /// After which time without news a task is sent again; doubled each time, up to `resend_most`. Infinite: never.
    pub resend: Millis,
    /// The longest time between two sendings.
    pub resend_most: Millis,
    /// For how long after the deadline nodes remember a task; less than their setting by the differences of clocks.
    pub memory: Millis,
    /// Open tasks, at most 2^24; one more is not accepted. Room for all is taken at the start.
    pub open: usize,
    /// Tasks on their way without an answer; further ones are held back.
    pub window: usize,
    /// After which time without an answer a task counts no longer. Infinite: it always counts.
    pub patience: Millis,
    /// Whether tasks go to the global scheduler at once.
    pub central: bool,
}

impl SubmitterSettings {
    /// The defaults for a round trip to a node.
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

/// Too many tasks are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{open} tasks are open, as many as may be")]
pub struct TooManyOpen {
    /// How many.
    pub open: usize,
}
