//! The schedulers' clock: milliseconds since 1970, monotonic and without jumps.
//!
//! Deadlines of tasks pass from node to node, so the nodes' clocks must agree within `timing.memory` ([`crate::settings`]). A step of
//! the system clock after the start is ignored: within one process time never runs backwards.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fdn_core::Millis;

/// A clock that was set once, at the start of the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started: Instant,
    epoch: f64,
}

impl Default for Clock {
    fn default() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            started: Instant::now(),
            epoch: since.unwrap_or(Duration::ZERO).as_secs_f64() * 1000.0,
        }
    }
}

impl Clock {
    /// The present time, with a resolution of less than a microsecond.
    #[must_use]
    pub(crate) fn now(&self) -> Millis {
        Millis::new(self.epoch + self.started.elapsed().as_secs_f64() * 1000.0)
    }

    /// The instant at which this clock will show that time.
    #[must_use]
    pub(crate) fn instant(&self, at: Millis) -> Instant {
        let after = (at.get() - self.epoch).clamp(0.0, 1e12);
        self.started + Duration::from_secs_f64(after / 1000.0)
    }
}

/// A duration in milliseconds.
pub(crate) fn millis(duration: Duration) -> Millis {
    Millis::new(duration.as_secs_f64() * 1000.0)
}
