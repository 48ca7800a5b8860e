//! What an operator sets, validated once.

use fdn_core::{Coded, ErrorCode, Millis};

/// The most buckets of a window.
pub const BUCKETS_MAX: usize = 1024;

/// Why settings cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ScaleError {
    /// A number is outside its range.
    #[error("{setting} is {given}, but must be {expected}")]
    Range {
        /// The setting.
        setting: &'static str,
        /// What it was set to.
        given: f64,
        /// What is possible.
        expected: &'static str,
    },
}

impl Coded for ScaleError {
    fn code(&self) -> ErrorCode {
        ErrorCode::ConfigInvalid
    }
}

/// How quickly the number of instances may change within [`Settings::rate_period`]: by this factor, or by this many where that
/// is more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Times as many (or as few).
    pub factor: f64,
    /// At least this many more (or fewer).
    pub instances: u32,
}

/// How a function is scaled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// How many requests an instance runs at once.
    pub concurrency: f64,
    /// Instances kept beyond the mean load `L`, in units of `sqrt(L)`, against its fluctuation.
    pub headroom: f64,
    /// The window over which the load is averaged, and in which instances are not taken away that it needed.
    pub stable: Millis,
    /// The short window that shows sudden load.
    pub panic: Millis,
    /// Both windows consist of buckets of this length.
    pub bucket: Millis,
    /// Panic begins when the short window wants this many times the instances that run.
    pub panic_factor: f64,
    /// While no request waits, the number of instances is not raised for up to this share more than they should take.
    pub tolerance: f64,
    /// Without any load for this long the function is scaled to zero, unless a keep-alive policy decides that.
    pub idle_grace: Millis,
    /// Never fewer.
    pub min: u32,
    /// Never more.
    pub max: u32,
    /// The span in which [`Self::up`] and [`Self::down`] bound the change.
    pub rate_period: Millis,
    /// How quickly up.
    pub up: Rate,
    /// How quickly down.
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
    /// Checks that the numbers go together.
    ///
    /// # Errors
    /// [`ScaleError::Range`] with the first setting that does not.
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
    /// How long a request runs.
    pub exec: Millis,
    /// How long an instance takes to start.
    pub cold: Millis,
}
