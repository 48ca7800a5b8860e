//! How long idle containers are kept, and which one goes when room is needed.
//!
//! A [`KeepAlive`] policy gives every container a standing when it is used (the smallest is evicted first, ties: the least
//! recently used), and says for each container that becomes idle how long it is kept. Busy containers are never released,
//! whatever a policy says.
//!
//! | policy | evicts | keeps | source |
//! | --- | --- | --- | --- |
//! | [`Fixed`] | the least recently used | for a set time | the usual practice |
//! | [`Lru`] | the least recently used | for ever | |
//! | [`Gdsf`] | small benefit for its memory | for ever | Fuerst, Sharma: FaasCache (ASPLOS 2021) |
//! | [`Histogram`] | the one that would be released first anyway | by the function's idle times | Shahrad et al.: Serverless in the Wild (USENIX ATC 2020) |
//!
//! A container's *use* is the moment an invocation takes it; a container loaded ahead is used when it becomes ready.

mod gdsf;
mod histogram;

use std::fmt;

use fdn_core::Millis;

use super::id::FunctionIndex;
use super::profile::Profile;

pub use gdsf::Gdsf;
pub use histogram::{Histogram, HistogramSettings};

/// What becomes of a container that turns idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Keep it until then; [`Millis::INFINITY`] for as long as there is room.
    Until(Millis),
    /// Release it at once and load one again at `at`, if memory is free then, to be kept until `until`.
    Reload {
        /// When to load.
        at: Millis,
        /// Until when it is kept.
        until: Millis,
    },
}

/// A keep-alive policy. It sees what happens to containers, and is asked about nothing else.
pub trait KeepAlive: fmt::Debug + Send {
    /// Its name.
    fn name(&self) -> &'static str;

    /// A function was registered, or its row is used for another one now.
    fn registered(&mut self, _function: FunctionIndex) {}

    /// An invocation takes or loads a container: the container's standing. The smallest is evicted first.
    fn used(&mut self, _now: Millis, _function: FunctionIndex, _profile: &Profile) -> f64 {
        0.0
    }

    /// The standing of a container that turned idle and is kept until then; by default that of its use.
    fn standing(&self, rank: f64, _until: Millis) -> f64 {
        rank
    }

    /// A container of this standing was evicted.
    fn evicted(&mut self, _rank: f64) {}

    /// A container that was loaded because more are wanted is ready, unused: until when it is kept.
    fn loaded_ahead(&mut self, _now: Millis, _function: FunctionIndex) -> Millis {
        Millis::INFINITY
    }

    /// A container turned idle after an invocation.
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
    /// Keeps idle containers for this time.
    #[must_use]
    pub const fn new(time: Millis) -> Self {
        Self { time }
    }
}

/// How long an idle container is kept where nothing better is known: the common practice of ten minutes.
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

/// Keeps idle containers as long as there is room; the least recently used goes first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lru;

impl KeepAlive for Lru {
    fn name(&self) -> &'static str {
        "lru"
    }
}
