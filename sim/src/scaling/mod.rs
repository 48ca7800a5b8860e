//! A cluster of nodes on which instances are started, at rates up to a million tasks per second.
//!
//! N nodes of S unit slots; instances run for exponential times of mean L = U·N·S/λ; tasks arrive in a Poisson stream at a
//! uniformly random node each. A message is under way for a fixed time and costs a node some work, as a decision does the global
//! scheduler; both work on one thing at a time. The latency of a task runs from its arrival at the cluster, one message away
//! from the node, until its instance starts.

mod clock;
mod handle;
mod optimistic;
mod outcome;
mod setup;
mod sustain;
mod tasks;
mod world;

use crate::Error;

pub use outcome::{Latency, Outcome, Recorder, Stage, Stages};
pub use setup::{Scheduler, Setup};
pub use sustain::{full_share, sustainable};

/// Runs the world.
///
/// # Errors
/// When the setup cannot be used, or a rule was broken: a task started twice, a node over its capacity.
pub fn simulate(setup: &Setup) -> Result<Outcome, Error> {
    setup.validate()?;
    if setup.scheduler == Scheduler::Optimistic {
        return optimistic::World::new(setup)?.run();
    }
    world::World::new(setup)?.run()
}
