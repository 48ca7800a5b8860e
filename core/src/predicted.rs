//! Predictions of plans, compared with what calls actually took.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::{ClusterId, StageName};
use crate::unit::Millis;

/// One term of a plan and what it really was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Compared {
    /// What the plan counts with now, corrections included.
    pub predicted: Millis,
    /// What calls typically took lately; absent while nothing was measured.
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

/// A stage where it runs: predicted and actual.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StageCompared {
    /// The stage.
    pub stage: StageName,
    /// Where it runs.
    pub cluster: ClusterId,
    /// Calls there since the agents started.
    pub calls: u64,
    /// From the client to the cluster and back; only of the stage that calls come to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way: Option<Compared>,
    /// Until a call is let in.
    pub queue: Compared,
    /// Until its sandbox is there, and inside the function.
    pub execution: Compared,
    /// By what the execution was multiplied because of what calls took before.
    pub correction: f64,
    /// The moving mean of how far predictions of the execution were off, as a share; absent while nothing was learnt.
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
