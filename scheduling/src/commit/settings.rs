//! The bounds of a committer.

use fdn_core::{Coded, ErrorCode, Millis};

/// The bounds of a committer; each has a default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The most containers handed out to pre-schedulers, lists in transit included: `t/r` ([`Settings::in_flight`]). At the bound
    /// [`super::Committer::take`] returns `None`.
    pub in_flight_max: usize,
    /// The most known containers that are not on a node; at the bound new ones are refused.
    pub unplaced_max: usize,
    /// The most known containers in all; at the bound new ones are refused.
    pub containers_max: usize,
    /// The most nodes; at the bound new ones are refused.
    pub nodes_max: usize,
    /// After how many failed lists for one container the committer scans all nodes itself.
    pub retries_max: u32,
    /// How long a container may be handed out. After that its pre-scheduler counts as lost, and the container is pending again.
    pub lease: Millis,
    /// How many changes of records are kept, so that a view that missed no more copies only these.
    pub history: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            in_flight_max: 40,
            unplaced_max: 100_000,
            containers_max: 1_000_000,
            nodes_max: 10_000,
            retries_max: 3,
            lease: Millis::new(1000.0),
            history: 4096,
        }
    }
}

/// A setting is out of its range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} must be {expected}")]
pub struct SettingsError {
    setting: &'static str,
    expected: &'static str,
}

impl Coded for SettingsError {
    fn code(&self) -> ErrorCode {
        ErrorCode::ConfigInvalid
    }
}

impl Settings {
    /// The useful number of lists in flight: `t/r` for a pre-scheduler's time `t` per container and the committer's time `r` per
    /// list. More would only queue up at the committer and go stale. At least one.
    #[must_use]
    pub fn in_flight(scoring: Millis, committing: Millis) -> usize {
        let ratio = (scoring.get() / committing.get()).floor();
        // NaN becomes 0 here.
        (ratio as usize).max(1)
    }

    /// Checks that every bound is in its range.
    ///
    /// # Errors
    /// The first bound that is not.
    pub fn check(&self) -> Result<(), SettingsError> {
        let places = u32::MAX as usize;
        let counts = [
            ("in_flight_max", self.in_flight_max, usize::MAX),
            ("unplaced_max", self.unplaced_max, usize::MAX),
            ("containers_max", self.containers_max, places),
            ("nodes_max", self.nodes_max, places),
            ("history", self.history, places),
        ];
        for (setting, value, most) in counts {
            if value == 0 || value > most {
                return Err(SettingsError {
                    setting,
                    expected: "at least 1 and, for what is numbered, below 2^32",
                });
            }
        }
        if self.lease <= Millis::ZERO {
            return Err(SettingsError {
                setting: "lease",
                expected: "longer than nothing",
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_lists_are_in_flight_as_the_committer_handles_while_one_is_made() {
        let of = |t, r| Settings::in_flight(Millis::new(t), Millis::new(r));
        assert_eq!((of(2.0, 0.045), of(200.0, 50.0)), (44, 4));
        assert_eq!((of(1.0, 5.0), of(0.0, 0.0)), (1, 1));
    }

    #[test]
    fn every_bound_must_leave_something() {
        let good = Settings::default();
        assert_eq!(good.check(), Ok(()));
        let bad = [
            Settings {
                in_flight_max: 0,
                ..good
            },
            Settings {
                unplaced_max: 0,
                ..good
            },
            Settings {
                containers_max: 0,
                ..good
            },
            Settings {
                containers_max: usize::MAX,
                ..good
            },
            Settings {
                nodes_max: 0,
                ..good
            },
            Settings { history: 0, ..good },
            Settings {
                lease: Millis::ZERO,
                ..good
            },
        ];
        for settings in bad {
            let error = settings.check().expect_err("not usable");
            assert_eq!(error.code(), ErrorCode::ConfigInvalid, "{error}");
        }
    }
}
