//! How many instances a function should have.
//!
//! At every tick a [`Scaler`] gets the load observed since the last one ([`Load`]), the number of instances ([`Size`]) and what the
//! keep-alive policy keeps ([`Keep`]); it returns how many instances are wanted, how many scaling tasks to send and how many instances to
//! stop ([`Decision`]). Ticks may come at any time, and come at once when a request finds no instance at all.
//!
//! [`Autoscaler`] is used in production; [`Proportional`] is its baseline.
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

/// The load observed since the last tick.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// The number of requests that arrived.
    pub arrivals: u64,
    /// The number of requests in execution, averaged over the time.
    pub busy: f64,
    /// The number of requests in execution now.
    pub executing: u64,
    /// The number of requests waiting now.
    pub queued: u64,
}

impl Load {
    /// Whether no request arrived, ran or waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.arrivals == 0 && self.executing == 0 && self.queued == 0 && self.busy <= 0.0
    }
}

/// The number of instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Ready instances, idle or not.
    pub running: u32,
    /// Instances requested and not ready yet.
    pub pending: u32,
}

/// What decides how long an idle instance is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// The scaler, by its idle grace.
    #[default]
    Grace,
    /// A keep-alive policy that keeps this many now: 0 releases the last idle instance; 1 also starts one ahead of a request.
    Warm(u32),
}

/// The decision of a tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The target number of instances.
    pub wanted: u32,
    /// How many scaling tasks to send.
    pub start: u32,
    /// How many idle instances to stop; busy ones are never stopped. What cannot be stopped now is included in the next decision.
    pub stop: u32,
}

impl Decision {
    /// The decision that leads from `size` to `wanted`.
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

/// A rule for the number of instances of one function.
pub trait Scaler {
    /// The name by which users and experiments select it.
    fn name(&self) -> &'static str;

    /// Decides at time `now`. `load` is `None` if nothing could be observed since the last tick.
    fn tick(&mut self, now: Millis, size: Size, load: Option<&Load>, keep: Keep) -> Decision;
}
