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
//! | [`online`] | users, clusters and failures around event-driven placement |
//! | [`paper`] | every experiment, beside the published figures |
//!
//! The same input, options and seed give the same result, byte for byte, whatever the number of threads; only figures named as
//! run times of the scheduler itself are measured.

pub mod command;
mod error;
pub mod events;
pub mod generate;
pub mod input;
pub mod online;
pub mod paper;
pub mod place;
pub mod progress;
pub mod report;
pub mod seed;

pub use error::Error;
