//! Predictions of plans, compared with what calls actually took.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::{ClusterId, StageName};
use crate::unit::Millis;

/// A predicted time, and the measured one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Compared {
    /// The time that the plan assumes now, corrections included.
    pub predicted: Millis,
    /// The recently measured typical time; absent while nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actual: Option<Millis>,
}

impl Compared {
    /// The relative deviation of the prediction from the measurement; negative if the prediction was too short. `None` without a measurement.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        let actual = self.actual?.get();
        let error = (self.predicted.get() - actual) / actual;
        (actual > 0.0 && error.is_finite()).then_some(error)
    }
}

/// The predicted and measured times of a stage where it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StageCompared {
    /// The stage's name.
    pub stage: StageName,
    /// The cluster in which it runs.
    pub cluster: ClusterId,
    /// The number of calls of the stage there since the agents started.
    pub calls: u64,
    /// The round trip between client and cluster; only for the entry stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way: Option<Compared>,
    /// The wait of a call until it is admitted.
    pub queue: Compared,
    /// The time until the call's sandbox is ready, plus the time inside the function.
    pub execution: Compared,
    /// The factor by which the predicted execution time was corrected, learned from measured calls.
    pub correction: f64,
    /// The moving mean of the relative error of predicted execution times; absent while nothing was learned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_a_share_of_what_was() {
        let compared = |predicted: f64, actual: Option<f64>| Compared {
            predicted: Millis::new(predicted),
            actual: actual.map(Millis::new),
        };
        assert_eq!(compared(15.0, Some(10.0)).error(), Some(0.5));
        assert_eq!(compared(5.0, Some(10.0)).error(), Some(-0.5));
        assert_eq!(compared(5.0, None).error(), None);
        assert_eq!(compared(5.0, Some(0.0)).error(), None);
    }
}
