//! Usage for billing: a record of each call on its node's disk, and sums of them for the controller.
//!
//! A node writes a call's record ([`CallRecord`]) to disk before the caller has the whole response. A sealed segment of records becomes
//! one batch of sums ([`UsageSums`]), which is handed over repeatedly until the controller has confirmed it. A batch keeps its
//! [`BatchId`] and its sums however often it is sent and whatever happens to the node in between, so that the receiver counts it once.
//! The records stay on the node for some time, where they can be searched ([`CallQuery`]).

mod call;
mod sums;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::ParseError;
use crate::id::{AppName, BatchId, FunctionName, InvocationId, NodeId, VersionNumber};
use crate::unit::{MebiBytes, Timestamp};

pub use call::{
    CallFacts, CallLine, CallList, CallQuery, CallRecord, InterimUsage, PlanUse, Routed,
    StatusFilter,
};
pub use sums::{UsageSum, UsageSums, roll_up};

/// How a call ended, for billing.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum UsageOutcome {
    /// The function answered with a status below 500.
    Ok,
    /// The function answered with a status of 500 or more.
    FunctionError,
    /// The function was terminated: it trapped, exceeded a limit, or gave no response.
    FunctionEnded,
    /// The client disconnected, or sent an unusable request.
    Client,
    /// The node failed.
    Internal,
    /// The function still runs although its response has been sent, or the node failed before the end was recorded. The final record of the
    /// call, which replaces this one, has another outcome.
    Running,
}

impl UsageOutcome {
    /// All outcomes.
    pub const ALL: [Self; 6] = [
        Self::Ok,
        Self::FunctionError,
        Self::FunctionEnded,
        Self::Client,
        Self::Internal,
        Self::Running,
    ];

    /// The name used in JSON and in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::FunctionError => "function_error",
            Self::FunctionEnded => "function_ended",
            Self::Client => "client",
            Self::Internal => "internal",
            Self::Running => "running",
        }
    }
}

impl fmt::Display for UsageOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for UsageOutcome {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let found = Self::ALL.into_iter().find(|outcome| outcome.as_str() == s);
        found.ok_or_else(|| {
            ParseError::new(
                "usage outcome",
                s,
                "ok, function_error, function_ended, client, internal or running",
            )
        })
    }
}

/// The billed usage of one call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRecord {
    /// The unique id of the invocation.
    pub invocation: InvocationId,
    /// The app that was called.
    pub app: AppName,
    /// The function that ran.
    pub function: FunctionName,
    /// Its version.
    pub version: VersionNumber,
    /// When the request arrived.
    pub started_at: Timestamp,
    /// For how long the call had an instance, in microseconds.
    pub duration_us: u64,
    /// CPU time in microseconds.
    pub cpu_us: u64,
    /// Memory that the instance held for it.
    pub memory_mib: MebiBytes,
    /// GPU memory that the instance held, on all devices together.
    #[serde(default)]
    pub gpu_memory_mib: MebiBytes,
    /// Bytes of the answer's body that were sent.
    pub egress_bytes: u64,
    /// How the call ended.
    pub outcome: UsageOutcome,
}

impl UsageRecord {
    /// GPU memory integrated over time, in GiB-seconds.
    #[must_use]
    pub fn gpu_gib_seconds(&self) -> f64 {
        self.gpu_memory_mib.get() as f64 / 1024.0 * (self.duration_us as f64 / 1e6)
    }
}

/// A batch of single records, from nodes of the release before sums: also what such a node has left in its spool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageBatch {
    /// The batch's id, always the same for the same records.
    pub batch: BatchId,
    /// The node that wrote the records.
    pub node: NodeId,
    /// The records, in the order of writing.
    pub records: Vec<UsageRecord>,
}

/// The controller's answer to a batch of usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct UsageReceipt {
    /// The number of records that were new, or are covered by new sums.
    pub stored: u64,
    /// Whether the batch had been stored before.
    pub duplicate: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_survives_json_and_rates_gpu_time() {
        let record = UsageRecord {
            invocation: InvocationId::from_uuid(uuid::Uuid::from_u128(1)),
            app: "thumbs".parse().expect("app"),
            function: "thumbs".parse().expect("function"),
            version: VersionNumber::FIRST,
            started_at: Timestamp(1_000),
            duration_us: 2_000_000,
            cpu_us: 10,
            memory_mib: MebiBytes(128),
            gpu_memory_mib: MebiBytes(512),
            egress_bytes: 7,
            outcome: UsageOutcome::Running,
        };
        assert!((record.gpu_gib_seconds() - 1.0).abs() < 1e-12);
        let batch = UsageBatch {
            batch: BatchId::from_uuid(uuid::Uuid::from_u128(2)),
            node: "n-1".parse().expect("node"),
            records: vec![record],
        };
        let json = serde_json::to_string(&batch).expect("json");
        assert!(json.contains(r#""outcome":"running""#), "{json}");
        assert_eq!(
            serde_json::from_str::<UsageBatch>(&json).expect("own json"),
            batch
        );
    }

    #[test]
    fn outcomes_have_one_name_each() {
        for outcome in UsageOutcome::ALL {
            let json = serde_json::to_string(&outcome).expect("json");
            assert_eq!(json, format!("\"{outcome}\""));
            assert_eq!(
                outcome.as_str().parse::<UsageOutcome>().expect("own name"),
                outcome
            );
        }
        assert!("fine".parse::<UsageOutcome>().is_err());
    }
}
