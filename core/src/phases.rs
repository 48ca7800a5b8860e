//! The phases of a call at a gateway, in the order in which plans account for them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::unit::Millis;

/// The typical time of a call in each phase: moving means over calls, in which a single outlier has little weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PhaseTimes {
    /// From the call's arrival until it is admitted: the wait for its body, a slot and an instance.
    pub queue: Millis,
    /// From there until its sandbox is ready.
    pub start: Millis,
    /// The time inside the function.
    pub execution: Millis,
    /// The mean of `start` and `execution` together, with outliers at full weight, divided by their typical value; at least 1. Load is
    /// computed with means. Absent from older agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_ratio: Option<f64>,
}
