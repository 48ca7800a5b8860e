//! Invocations of functions on a few workers, as recorded: which order, which keep-alive policy.
//!
//! A [`Workload`] is read from files; a [`Policy`] names the order and what keeps containers; [`simulate`] plays the world
//! around the scheduler of invocations that the gateway of an edge node runs, and gives a [`Run`]. [`lower_bound`] says below
//! which mean completion no order can come.

mod bound;
mod policy;
mod result;
mod scaled;
mod trace;
mod world;

pub use bound::lower_bound;
pub use policy::{KeepAliveName, Policy, PolicyName};
pub use result::{FunctionFigures, Run};
pub use scaled::Scaling;
pub use trace::{Durations, Function, Invocation, Scale, Workload};
pub use world::{Machines, Scaled, simulate, simulate_scaled};
