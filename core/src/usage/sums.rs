//! Sums of a node's records, which are sent to the controller instead of each record.
//!
//! A batch is made from one sealed segment of the node's spool and nothing else, so it is the same however often it is made. The records
//! of one call may be in several segments, each of which may be handed over, lose its receipt, be sent again and be overtaken by others.
//! Therefore a record that replaces an earlier one ([`CallRecord::noted`]) subtracts what that one counted. The sum of all batches then
//! equals that of the final records of all calls, whatever the order, and no batch depends on another.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{CallRecord, UsageOutcome, UsageRecord};
use crate::billing::{BillingError, Meter, Quantities};
use crate::id::{AppName, BatchId, FunctionName, NodeId, VersionNumber};
use crate::unit::Timestamp;

const MINUTE_MS: u64 = 60_000;

/// Sums that are handed over together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageSums {
    /// The batch's id, derived from the segment: always the same for the same sums.
    pub batch: BatchId,
    /// The node that served the calls.
    pub node: NodeId,
    /// The number of records in the segment.
    pub records: u32,
    /// The sums, sorted by what they are of.
    pub sums: Vec<UsageSum>,
}

/// The usage of calls of one function version that began in the same minute and had the same outcome. Integers in the meters' smallest
/// units; negative where more is subtracted than added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageSum {
    /// The app that was called.
    pub app: AppName,
    /// The function that ran.
    pub function: FunctionName,
    /// Its version.
    pub version: VersionNumber,
    /// The outcome of the calls.
    pub outcome: UsageOutcome,
    /// When the first of them arrived; the others arrived in the same minute.
    pub first: Timestamp,
    /// The number of records that were added or subtracted.
    pub records: u32,
    /// The number of calls.
    pub calls: i64,
    /// Memory integrated over time, in MiB·µs.
    pub memory: i64,
    /// CPU time in microseconds.
    pub cpu: i64,
    /// GPU memory integrated over time, in MiB·µs.
    pub gpu: i64,
    /// Bytes of responses.
    pub egress: i64,
}

/// The key of a sum. A minute is as fine as any bill needs, and finer than what is stored.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key<'a> {
    app: &'a AppName,
    function: &'a FunctionName,
    version: VersionNumber,
    outcome: UsageOutcome,
    minute: u64,
}

impl<'a> Key<'a> {
    fn of(record: &'a UsageRecord, outcome: UsageOutcome) -> Self {
        Self {
            app: &record.app,
            function: &record.function,
            version: record.version,
            outcome,
            minute: record.started_at.get() / MINUTE_MS,
        }
    }
}

/// A sum in progress.
struct Sum {
    first: Timestamp,
    records: u32,
    quantities: Quantities,
}

impl Sum {
    const fn note(&mut self, at: Timestamp) {
        if at.get() < self.first.get() {
            self.first = at;
        }
        // The number of records in a segment is bounded far below that.
        self.records = self.records.saturating_add(1);
    }

    fn into_usage_sum(self, key: &Key<'_>) -> Result<UsageSum, BillingError> {
        let whole = |meter: Meter| {
            i64::try_from(self.quantities.get(meter))
                .map_err(|_| BillingError::Overflow("a sum of usage"))
        };
        Ok(UsageSum {
            app: key.app.clone(),
            function: key.function.clone(),
            version: key.version,
            outcome: key.outcome,
            first: self.first,
            records: self.records,
            calls: whole(Meter::Invocations)?,
            memory: whole(Meter::GibSeconds)?,
            cpu: whole(Meter::VcpuSeconds)?,
            gpu: whole(Meter::GpuGibSeconds)?,
            egress: whole(Meter::EgressGib)?,
        })
    }
}

/// Sums up the records of a segment.
///
/// # Errors
/// When a record claims more than a call can use, or a sum overflows.
pub fn roll_up(records: &[CallRecord]) -> Result<Vec<UsageSum>, BillingError> {
    let mut sums: BTreeMap<Key<'_>, Sum> = BTreeMap::new();
    for record in records {
        let used = &record.used;
        let at = used.started_at;
        let new = || Sum {
            first: at,
            records: 0,
            quantities: Quantities::default(),
        };
        let sum = sums.entry(Key::of(used, used.outcome)).or_insert_with(new);
        sum.note(at);
        sum.quantities.add(&Quantities::of(used)?)?;
        if let Some(noted) = &record.noted {
            let before = Quantities::of(&noted.record(used))?;
            let sum = sums
                .entry(Key::of(used, UsageOutcome::Running))
                .or_insert_with(new);
            sum.note(at);
            sum.quantities.sub(&before)?;
        }
    }
    // Calls that were noted while running and ended within the same segment cancel out.
    let nonzero = sums
        .into_iter()
        .filter(|(_, sum)| !sum.quantities.is_zero());
    nonzero.map(|(key, sum)| sum.into_usage_sum(&key)).collect()
}

#[cfg(test)]
mod tests;
