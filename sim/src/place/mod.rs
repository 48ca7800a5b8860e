//! Placement of recorded workflows on a described network.
//!
//! A [`Workflow`] is read from a file in WfFormat, a [`NetworkModel`] from a file of the network's own form or by the name of a model
//! that is built in; [`run`] places the one on the other by any [`Policy`](fdn_scheduling::policy::Policy), has the plan checked,
//! and says how long the placing took.

mod network;
mod network_file;
mod reference;
mod run;
mod workflow;

pub use network::NetworkModel;
pub use reference::{REFERENCE, Reference};
pub use run::{Run, run};
pub use workflow::Workflow;
