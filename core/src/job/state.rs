//! The states of a job, and its priority.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ParseError;

/// The state of a job.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Stored, but not accepted yet: the broker has not confirmed it.
    Submitted,
    /// Accepted, and waiting for its first or next attempt.
    Queued,
    /// An attempt is running.
    Running,
    /// Ended: the app answered successfully.
    Succeeded,
    /// Ended: the app refused it, or an attempt was cut short and must not be repeated.
    Failed,
    /// Ended: cancelled by its owner.
    Cancelled,
    /// Ended: it became too old, or its deadline passed, before an attempt could begin.
    Dropped,
    /// Ended: all attempts failed. The job is a dead letter, which can be redriven.
    Dead,
}

impl JobState {
    /// All states.
    pub const ALL: &'static [Self] = &[
        Self::Submitted,
        Self::Queued,
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
        Self::Dropped,
        Self::Dead,
    ];

    /// The name, as used in JSON, the store and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Dropped => "dropped",
            Self::Dead => "dead",
        }
    }

    /// Whether the job has ended. Only a redrive leaves such a state.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Submitted | Self::Queued | Self::Running => false,
            Self::Succeeded | Self::Failed | Self::Cancelled | Self::Dropped | Self::Dead => true,
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for JobState {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let found = Self::ALL.iter().copied().find(|state| state.as_str() == s);
        found.ok_or_else(|| {
            ParseError::new(
                "job state",
                s,
                "submitted, queued, running, succeeded, failed, cancelled, dropped or dead",
            )
        })
    }
}

/// The priority of a job among those of its tenant, from 0 to 9; higher is more urgent.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(try_from = "u8", into = "u8")]
#[schema(value_type = u8)]
pub struct JobPriority(u8);

impl JobPriority {
    /// The highest priority.
    pub const HIGHEST: Self = Self(9);

    /// The priority, from 0 to 9; higher is more urgent.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl Default for JobPriority {
    fn default() -> Self {
        Self(5)
    }
}

impl TryFrom<u8> for JobPriority {
    type Error = ParseError;

    fn try_from(value: u8) -> Result<Self, ParseError> {
        if value <= Self::HIGHEST.0 {
            Ok(Self(value))
        } else {
            Err(ParseError::new("priority", value.to_string(), "0 to 9"))
        }
    }
}

impl From<JobPriority> for u8 {
    fn from(value: JobPriority) -> Self {
        value.0
    }
}

impl FromStr for JobPriority {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let number = s.parse::<u8>();
        number
            .map_err(|_| ParseError::new("priority", s, "0 to 9"))
            .and_then(Self::try_from)
    }
}

impl fmt::Display for JobPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_agree_with_json() {
        for state in JobState::ALL {
            assert_eq!(
                state.as_str().parse::<JobState>().expect("own name"),
                *state
            );
            let json = serde_json::to_string(state).expect("json");
            assert_eq!(json, format!("\"{state}\""));
        }
        assert!("".parse::<JobState>().is_err());
    }

    #[test]
    fn a_priority_is_one_digit() {
        assert_eq!(
            "9".parse::<JobPriority>().expect("valid"),
            JobPriority::HIGHEST
        );
        for bad in ["10", "-1", "", "high"] {
            assert!(bad.parse::<JobPriority>().is_err(), "{bad}");
        }
        assert!(JobPriority::HIGHEST > JobPriority::default());
    }
}
