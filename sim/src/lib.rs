//! Discrete-event simulator of the network, and the experiments that measure its schedulers.
//!
//! Everything that decides is in `fdn-scheduling`, the very code that production runs; this crate plays the world around it: one
//! queue of events in virtual time ([`events`]), seeded streams of randomness ([`seed`]), files of recorded traces ([`input`]),
//! lost nodes, late and lost messages. Results are [`report`]s: tables for a terminal, JSON, and SVG plots.
//!
//! | module | plays |
//! | --- | --- |
//! | [`command`] | the commands `fdn sim …` |
//! | [`generate`] | random jobs and clusters |
//! | [`place`] | recorded workflows on a described network |
//! | [`autoscale`] | functions of recorded traces under an autoscaler |
//! | [`devices`] | pods that want slices of devices, until the cluster is full |
//! | [`optimistic`] | pre-schedulers side by side and one committer |
//! | [`scaling`] | nodes that start instances: local check, probes, hints, the global scheduler |
//! | [`invocations`] | invocations of functions on workers: orders and keep-alive policies |
//! | [`replay`] | planning passes of a real network that were recorded |
//! | [`online`] | users, clusters and failures around event-driven placement |
//! | [`paper`] | every experiment, beside the published figures |
//!
//! The same input, options and seed give the same result, byte for byte, whatever the number of threads; only figures named as
//! run times of the scheduler itself are measured.

pub mod autoscale;
pub mod command;
pub mod devices;
mod error;
pub mod events;
pub mod generate;
pub mod input;
pub mod invocations;
pub mod online;
pub mod optimistic;
pub mod paper;
pub mod place;
pub mod progress;
pub mod replay;
pub mod report;
pub mod scaling;
pub mod seed;

pub use error::Error;
