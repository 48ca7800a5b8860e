//! Pre-schedulers side by side and one committer, in virtual time.
//!
//! K pre-schedulers never run out of containers and never wait for a commit: each takes the next container, reads the nodes, and
//! names the best of them a time `t` later. Lists queue for the committer, which takes `r` for each, more for changed entries.
//! Containers run for exponential times of such a mean that a chosen share of all slots is in use.
//!
//! What decides is [`fdn_scheduling::commit`]; here are only the clock, the queue and the end of containers.

mod grid;
mod outcome;
pub(crate) mod scheduler_pool;
mod setup;
mod world;

pub use grid::{Way, means, serial_means};
pub use outcome::Outcome;
pub use setup::{Load, Setup, Start};

use crate::Error;

/// Runs a setup.
///
/// # Errors
/// When a value cannot be used, or a rule is broken.
pub fn run(setup: &Setup) -> Result<Outcome, Error> {
    world::World::new(setup)?.run()
}

/// Runs a serial scheduler on the same containers, at the same rate.
///
/// # Errors
/// As [`run`].
pub fn run_serially(setup: &Setup) -> Result<Outcome, Error> {
    world::World::new(setup)?.run_serially()
}
