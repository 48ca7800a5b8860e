//! The phases of a call at a gateway, in the order in which plans account for them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::unit::Millis;

/// What a call typically takes in each phase: moving means over calls, in which a single outlier weighs little.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PhaseTimes {
    /// From its arrival until it was let in: for the body, for a slot, for an instance.
    pub queue: Millis,
    /// Until a sandbox was made for it.
    pub start: Millis,
    /// Inside the function.
    pub execution: Millis,
    /// The mean of start and execution together as a multiple of what is typical, outliers in full: load is counted with means. Absent of an
    /// older agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_ratio: Option<f64>,
}
