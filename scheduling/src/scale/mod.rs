//! How many instances a function should have.
//!
//! A [`Scaler`] is told at every tick what was seen since the last one ([`Load`]), how many instances there are ([`Size`]) and what
//! the keep-alive policy keeps ([`Keep`]); it answers how many are wanted, how many scaling tasks to send and how many instances
//! to stop ([`Decision`]). Ticks may come at any time, and at once when a request finds no instance at all.
//!
//! [`Autoscaler`] is the one that production runs; [`Proportional`] is what it is compared with.
//!
//! ```
//! use fdn_core::Millis;
//! use fdn_scheduling::scale::{Autoscaler, Keep, Load, Profile, Scaler, Settings, Size};
//!
//! # fn main() -> Result<(), fdn_scheduling::scale::ScaleError> {
//! let profile = Profile { exec: Millis::new(200.0), cold: Millis::new(2000.0) };
//! let mut scaler = Autoscaler::new(Settings::default(), profile)?;
//!
//! // The first request waits: an instance is started at once.
//! let load = Load { arrivals: 1, queued: 1, ..Load::default() };
//! let decision = scaler.tick(Millis::new(0.0), Size::default(), Some(&load), Keep::Grace);
//! assert_eq!((decision.wanted, decision.start), (1, 1));
//!
//! // While it starts, nothing more is asked for.
//! let starting = Size { running: 0, pending: 1 };
//! let load = Load { queued: 1, ..Load::default() };
//! assert_eq!(scaler.tick(Millis::new(1000.0), starting, Some(&load), Keep::Grace).start, 0);
//! # Ok(())
//! # }
//! ```

mod autoscaler;
mod proportional;
mod settings;
mod window;

use fdn_core::Millis;

pub use autoscaler::Autoscaler;
pub use proportional::Proportional;
pub use settings::{BUCKETS_MAX, Profile, Rate, ScaleError, Settings};

/// What was seen since the last tick.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// How many requests came.
    pub arrivals: u64,
    /// How many were in execution, on average over the time.
    pub busy: f64,
    /// How many are in execution now.
    pub executing: u64,
    /// How many wait now.
    pub queued: u64,
}

impl Load {
    /// Whether nothing came, ran or waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.arrivals == 0 && self.executing == 0 && self.queued == 0 && self.busy <= 0.0
    }
}

/// How many instances there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Ready, idle or not.
    pub running: u32,
    /// Asked for, and not ready yet.
    pub pending: u32,
}

/// Who decides how long an idle instance is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// The scaler itself, by its idle grace.
    #[default]
    Grace,
    /// A keep-alive policy, which keeps this many now: 0 releases the last idle instance, 1 also starts one beforehand.
    Warm(u32),
}

/// What is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// How many instances there should be.
    pub wanted: u32,
    /// How many scaling tasks to send.
    pub start: u32,
    /// How many to stop, of those that are idle; a busy one is never stopped. What is not stopped now is said again next time.
    pub stop: u32,
}

impl Decision {
    /// What leads from `size` to `wanted`.
    #[must_use]
    pub const fn of(wanted: u32, size: Size) -> Self {
        let there = size.running.saturating_add(size.pending);
        Self {
            wanted,
            start: wanted.saturating_sub(there),
            stop: there.saturating_sub(wanted),
        }
    }
}

/// Decides on the number of instances of one function.
pub trait Scaler {
    /// The name under which it is chosen.
    fn name(&self) -> &'static str;

    /// What to do now. `load` is `None` when nothing could be observed since the last tick.
    fn tick(&mut self, now: Millis, size: Size, load: Option<&Load>, keep: Keep) -> Decision;
}
