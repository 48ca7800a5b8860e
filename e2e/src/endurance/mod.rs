//! Endurance: everything that happens to a network in its life, for an hour and at random, while somebody looks all the time at what must never be.
//!
//! Pure are the [`schedule`] of what happens, by a seed; the [`judge`] of what is seen, who knows from [`lives`] which process was away when; and the
//! estimate of [`growth`]. [`processes`] and [`relay`] are the processes and what stands between them, [`report`] is what is told at the end.

pub mod growth;
pub mod judge;
pub mod lives;
pub mod processes;
pub mod relay;
pub mod report;
pub mod schedule;

use std::time::Duration;

/// How long it goes on unless told otherwise.
const MINUTES: u64 = 60;

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// For how many minutes events happen.
    pub minutes: u64,
    /// What they are drawn from.
    pub seed: u64,
}

impl Asked {
    /// By the values of `FDN_ENDURANCE_MINUTES` and `FDN_ENDURANCE_SEED`; `drawn` is the seed where none was given.
    ///
    /// # Errors
    /// The value that is none.
    pub fn read(minutes: Option<&str>, seed: Option<&str>, drawn: u64) -> Result<Self, String> {
        let number = |name: &str, text: Option<&str>, otherwise: u64| match text {
            None => Ok(otherwise),
            Some(text) => text
                .parse()
                .map_err(|_| format!("{name}={text} is no number")),
        };
        let asked = Self {
            minutes: number("FDN_ENDURANCE_MINUTES", minutes, MINUTES)?,
            seed: number("FDN_ENDURANCE_SEED", seed, drawn)?,
        };
        match asked.minutes {
            // Shorter, and no fault would end before the run does.
            0 | 1 => Err("FDN_ENDURANCE_MINUTES is at least 2".to_owned()),
            _ => Ok(asked),
        }
    }

    /// For how long events happen.
    #[must_use]
    pub const fn length(&self) -> Duration {
        Duration::from_secs(self.minutes * 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_read_and_what_is_none_is_named() {
        let read = Asked::read(None, None, 7).expect("defaults");
        assert_eq!((read.minutes, read.seed), (60, 7));
        let read = Asked::read(Some("3"), Some("11"), 7).expect("both");
        assert_eq!((read.minutes, read.seed), (3, 11));
        assert_eq!(read.length(), Duration::from_secs(180));
        for (minutes, seed) in [(Some("x"), None), (None, Some("-1")), (Some("1"), None)] {
            Asked::read(minutes, seed, 7).expect_err("none");
        }
    }
}
