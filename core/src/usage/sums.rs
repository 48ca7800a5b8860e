//! Sums of a node's records: what goes to the controller in the place of each of them.
//!
//! A batch is made of one sealed segment of the node's spool and of nothing else, so it is the same however often it is made. Records of one
//! call may lie in several segments, each of them handed over, lost with a receipt, sent again and overtaken by others: so a record that takes the
//! place of an earlier one ([`CallRecord::noted`]) takes away what that one counted. Then the sum of all batches is that of the last records of
//! all calls, whatever the order, and no batch needs to know of another.

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
    /// The segment's: the same for the same sums, always.
    pub batch: BatchId,
    /// The node whose calls they are of.
    pub node: NodeId,
    /// Records in the segment.
    pub records: u32,
    /// The sums, in the order of what they are of.
    pub sums: Vec<UsageSum>,
}

/// What calls of one function version used that began in one minute and ended alike. Whole numbers of the meters' smallest units; below zero
/// where more is taken away than added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageSum {
    /// The app that was called.
    pub app: AppName,
    /// The function that ran.
    pub function: FunctionName,
    /// Its version.
    pub version: VersionNumber,
    /// How the calls ended.
    pub outcome: UsageOutcome,
    /// When the first of them arrived: the others did in the same minute.
    pub first: Timestamp,
    /// How many records were added or taken away.
    pub records: u32,
    /// Calls.
    pub calls: i64,
    /// Memory times time, in MiB·µs.
    pub memory: i64,
    /// CPU time in microseconds.
    pub cpu: i64,
    /// GPU memory times time, in MiB·µs.
    pub gpu: i64,
    /// Bytes of answers.
    pub egress: i64,
}

/// What a sum is of. The minute is as fine as anything that bills ask for, and finer than whatever is kept.
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

/// A sum while it is made.
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
        // A segment is bounded far below that.
        self.records = self.records.saturating_add(1);
    }

    fn told(self, key: &Key<'_>) -> Result<UsageSum, BillingError> {
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

/// The sums of a segment's records.
///
/// # Errors
/// When a record says more than a call can use, or a sum does not fit.
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
    // Calls that were noted while they ran and have ended in the same segment leave nothing to tell.
    let told = sums
        .into_iter()
        .filter(|(_, sum)| !sum.quantities.is_zero());
    told.map(|(key, sum)| sum.told(&key)).collect()
}

#[cfg(test)]
mod tests;
