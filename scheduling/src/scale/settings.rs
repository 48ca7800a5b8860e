//! The settings of the autoscaler, validated once.

use fdn_core::{Coded, ErrorCode, Millis};

/// The most buckets per window.
pub const BUCKETS_MAX: usize = 1024;

/// The settings are invalid.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ScaleError {
    /// A setting is out of its range.
    #[error("{setting} is {given}, but must be {expected}")]
    Range {
        /// The setting's name.
        setting: &'static str,
        /// The given value.
        given: f64,
        /// The range, for the message.
        expected: &'static str,
    },
}

impl Coded for ScaleError {
    fn code(&self) -> ErrorCode {
        ErrorCode::ConfigInvalid
    }
}

/// How quickly the number of instances may change within [`Settings::rate_period`]: by this factor or by this number, whichever is more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// The factor by which it may grow, or shrink.
    pub factor: f64,
    /// The number of instances by which it may grow, or shrink, in any case.
    pub instances: u32,
}

/// The settings of a function's autoscaler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// How many requests an instance runs concurrently.
    pub concurrency: f64,
    /// Instances beyond the mean load `L`, in units of `sqrt(L)`, against its fluctuation (square-root staffing).
    pub headroom: f64,
    /// The window over which the load is averaged, and within which needed instances are not scaled down.
    pub stable: Millis,
    /// The short window that detects sudden load.
    pub panic: Millis,
    /// The length of the buckets that both windows consist of.
    pub bucket: Millis,
    /// Panic mode begins when the short window demands this many times the running instances.
    pub panic_factor: f64,
    /// While no request waits, the number of instances is raised only if the demand exceeds it by more than this share.
    pub tolerance: f64,
    /// After this long without any load the function is scaled to zero, unless a keep-alive policy decides that.
    pub idle_grace: Millis,
    /// The fewest instances.
    pub min: u32,
    /// The most instances.
    pub max: u32,
    /// The span in which [`Self::up`] and [`Self::down`] bound the change.
    pub rate_period: Millis,
    /// The rate limit for growing.
    pub up: Rate,
    /// The rate limit for shrinking.
    pub down: Rate,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrency: 1.0,
            headroom: 1.0,
            stable: Millis::new(60_000.0),
            panic: Millis::new(6_000.0),
            bucket: Millis::new(1_000.0),
            panic_factor: 2.0,
            tolerance: 0.2,
            idle_grace: Millis::new(60_000.0),
            min: 0,
            max: 1_000,
            rate_period: Millis::new(6_000.0),
            up: Rate {
                factor: 10.0,
                instances: 10,
            },
            down: Rate {
                factor: 2.0,
                instances: 1,
            },
        }
    }
}

impl Settings {
    /// Checks every setting, and that they are consistent.
    ///
    /// # Errors
    /// [`ScaleError::Range`] with the first setting that is not.
    pub fn validate(&self) -> Result<(), ScaleError> {
        let bucket = self.bucket.get();
        let ranges = [
            ("concurrency", self.concurrency, 1.0, 1e6, "1 to 1000000"),
            ("headroom", self.headroom, 0.0, 100.0, "0 to 100"),
            ("bucket (ms)", bucket, 1.0, 3.6e6, "1 ms to 1 h"),
            (
                "panic window (ms)",
                self.panic.get(),
                bucket,
                self.stable.get(),
                "at least a bucket and at most the stable window",
            ),
            (
                "stable window (ms)",
                self.stable.get(),
                bucket,
                bucket * BUCKETS_MAX as f64,
                "1 to 1024 buckets",
            ),
            ("panic factor", self.panic_factor, 1.0, 1e6, "1 to 1000000"),
            ("tolerance", self.tolerance, 0.0, 1.0, "0 to 1"),
            (
                "idle grace (ms)",
                self.idle_grace.get(),
                self.stable.get(),
                1e12,
                "at least the stable window",
            ),
            (
                "rate period (ms)",
                self.rate_period.get(),
                bucket,
                self.stable.get(),
                "at least a bucket and at most the stable window",
            ),
            ("up factor", self.up.factor, 1.0, 1e9, "1 to 1000000000"),
            ("down factor", self.down.factor, 1.0, 1e9, "1 to 1000000000"),
            (
                "up instances",
                f64::from(self.up.instances),
                1.0,
                1e9,
                "at least 1",
            ),
            (
                "down instances",
                f64::from(self.down.instances),
                1.0,
                1e9,
                "at least 1",
            ),
            (
                "min",
                f64::from(self.min),
                0.0,
                f64::from(self.max),
                "at most max",
            ),
        ];
        for (setting, given, least, most, expected) in ranges {
            // A NaN is in no range.
            if !(least..=most).contains(&given) {
                return Err(ScaleError::Range {
                    setting,
                    given,
                    expected,
                });
            }
        }
        Ok(())
    }
}

/// What is known of a function beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The run time of a request.
    pub exec: Millis,
    /// The time an instance takes to start (cold start).
    pub cold: Millis,
}
