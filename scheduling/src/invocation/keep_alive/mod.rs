//! How long idle containers are kept, and which one is evicted when memory is needed.
//!
//! A [`KeepAlive`] policy gives every container an eviction priority when it is used (the smallest is evicted first, ties: the least
//! recently used), and decides for each container that becomes idle how long it is kept. Busy containers are never released, whatever the
//! policy.
//!
//! | policy | evicts | keeps | source |
//! | --- | --- | --- | --- |
//! | [`Fixed`] | the least recently used | for a set time | the usual practice |
//! | [`Lru`] | the least recently used | for ever | |
//! | [`Gdsf`] | small benefit for its memory | for ever | Fuerst, Sharma: FaasCache (ASPLOS 2021) |
//! | [`Histogram`] | the one that would be released first anyway | by the function's idle times | Shahrad et al.: Serverless in the Wild (USENIX ATC 2020) |
//!
//! A container is *used* when an invocation takes it; a container loaded ahead is used when it becomes ready.

mod gdsf;
mod histogram;

use std::fmt;

use fdn_core::Millis;

use super::id::FunctionIndex;
use super::profile::Profile;

pub use gdsf::Gdsf;
pub use histogram::{Histogram, HistogramSettings};

/// The decision about a container that turned idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Keep it until this time; [`Millis::INFINITY`] until it is evicted.
    Until(Millis),
    /// Release it now and load one again at `at`, if memory is free then, to be kept until `until`.
    Reload {
        /// When to load.
        at: Millis,
        /// Until when it is kept.
        until: Millis,
    },
}

/// A keep-alive policy. The methods report events to it; their results are its decisions.
pub trait KeepAlive: fmt::Debug + Send {
    /// The name by which users and experiments select it.
    fn name(&self) -> &'static str;

    /// A function was registered; its row may have belonged to another one before.
    fn registered(&mut self, _function: FunctionIndex) {}

    /// An invocation takes or loads a container. Returns the container's eviction priority; the smallest is evicted first.
    fn used(&mut self, _now: Millis, _function: FunctionIndex, _profile: &Profile) -> f64 {
        0.0
    }

    /// The eviction priority of a container that turned idle and is kept until `until`; by default that of its last use, `rank`.
    fn standing(&self, rank: f64, _until: Millis) -> f64 {
        rank
    }

    /// A container with this eviction priority was evicted.
    fn evicted(&mut self, _rank: f64) {}

    /// A container that was loaded without an invocation is ready. Returns until when it is kept.
    fn loaded_ahead(&mut self, _now: Millis, _function: FunctionIndex) -> Millis {
        Millis::INFINITY
    }

    /// A container turned idle after an invocation. Returns what to do with it.
    fn turned_idle(&mut self, _now: Millis, _function: FunctionIndex) -> Keep {
        Keep::Until(Millis::INFINITY)
    }
}

/// Keeps every idle container for the same time.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    time: Millis,
}

impl Fixed {
    /// Keeps idle containers for `time`.
    #[must_use]
    pub const fn new(time: Millis) -> Self {
        Self { time }
    }
}

/// The default keep-alive time, where nothing better is known: the common practice of ten minutes.
pub const KEEP_DEFAULT: Millis = Millis::new(600_000.0);

impl Default for Fixed {
    fn default() -> Self {
        Self::new(KEEP_DEFAULT)
    }
}

impl KeepAlive for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn turned_idle(&mut self, now: Millis, _: FunctionIndex) -> Keep {
        Keep::Until(now + self.time)
    }

    fn loaded_ahead(&mut self, now: Millis, _: FunctionIndex) -> Millis {
        now + self.time
    }
}

/// Keeps idle containers until memory is needed; the least recently used is evicted first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lru;

impl KeepAlive for Lru {
    fn name(&self) -> &'static str {
        "lru"
    }
}
