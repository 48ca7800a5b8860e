//! Hands over sealed segments: the oldest first, one at a time, each until it is confirmed.
//!
//! What is sent are the sums of a segment's records. They are computed again for every attempt, from the segment alone, so they are always the
//! same. A segment written by an agent of the previous release is sent as that agent would have done, record by record, because its records do
//! not say what they replace.

use std::time::Duration;

use async_trait::async_trait;
use fdn_core::billing::{BillingError, Quantities};
use fdn_core::usage::{CallRecord, UsageBatch, UsageSums, roll_up};
use fdn_core::{BatchId, NodeId};
use rand::RngExt;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::spool::Spool;

/// How often old records are removed.
const PRUNE_INTERVAL: Duration = Duration::from_secs(600);

/// Why a batch was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum DeliverError {
    /// It may be accepted later, unchanged.
    #[error("{0}")]
    Retryable(String),
    /// It will never be accepted unchanged.
    #[error("{0}")]
    Rejected(String),
}

/// What is sent of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Batch {
    /// Its sums.
    Sums(UsageSums),
    /// Its records, written by the previous release.
    Records(UsageBatch),
}

impl Batch {
    /// The batch for these records, which are all records of one segment.
    ///
    /// # Errors
    /// When a record claims more than a call can use.
    pub fn of(
        batch: BatchId,
        node: NodeId,
        records: Vec<CallRecord>,
    ) -> Result<Self, BillingError> {
        if records.iter().any(|record| record.call.is_none()) {
            let records = records.into_iter().map(|record| record.used).collect();
            return Ok(Self::Records(UsageBatch {
                batch,
                node,
                records,
            }));
        }
        let sums = roll_up(&records)?;
        Ok(Self::Sums(UsageSums {
            batch,
            node,
            // The size of a segment keeps the number far below that.
            records: u32::try_from(records.len()).unwrap_or(u32::MAX),
            sums,
        }))
    }

    /// The number of records in it.
    #[must_use]
    pub const fn records(&self) -> usize {
        match self {
            Self::Sums(sums) => sums.records as usize,
            Self::Records(batch) => batch.records.len(),
        }
    }
}

/// The receiver of batches, which counts each batch once, however often it is delivered.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// Returns once the batch is stored.
    ///
    /// # Errors
    /// When it may not be stored; the batch will be sent again.
    async fn deliver(&self, batch: &Batch) -> Result<(), DeliverError>;
}

/// Hands over a spool's records.
pub struct Shipper<S> {
    /// The spool.
    pub spool: Spool,
    /// The receiver.
    pub sink: S,
    /// The node whose records these are.
    pub node: NodeId,
}

impl<S: Sink> Shipper<S> {
    /// Hands over until `stop` is cancelled. An unconfirmed batch is sent again after the next start, under the same id.
    pub async fn run(self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.ship_all() => {}
            () = self.prune_periodically() => {}
        }
    }

    /// Removes old records, also while there are no calls and so no new segments that would displace them.
    async fn prune_periodically(&self) {
        let mut timer = tokio::time::interval(PRUNE_INTERVAL);
        loop {
            timer.tick().await;
            let spool = self.spool.clone();
            blocking(move || spool.prune()).await;
        }
    }

    async fn ship_all(&self) {
        let settings = self.spool.settings();
        let first = settings.retry_first.as_duration();
        let most = settings.retry_max.as_duration();
        let mut pause = Duration::ZERO;
        loop {
            tokio::time::sleep(pause).await;
            let id = self.spool.oldest().await;
            pause = if self.ship_segment(id, pause.is_zero()).await {
                Duration::ZERO
            } else {
                // A random pause between half and the whole, so that not all nodes come back at once.
                let doubled = (pause * 2).clamp(first, most);
                doubled
                    .mul_f64(rand::rng().random_range(0.5..=1.0))
                    .max(first / 2)
            };
        }
    }

    /// Hands over one segment; returns whether the next one can be tried at once.
    async fn ship_segment(&self, id: BatchId, first_failure: bool) -> bool {
        let Some((batch, whole)) = self.load(id).await else {
            return false;
        };
        let (records, result) = match batch {
            Ok(batch) if batch.records() == 0 => (0, Ok(())),
            Ok(batch) => (batch.records(), self.sink.deliver(&batch).await),
            Err(failure) => (0, Err(DeliverError::Rejected(failure.to_string()))),
        };
        let count = |result| {
            self.spool
                .metrics()
                .batches
                .with_label_values(&[result])
                .inc()
        };
        match result {
            Ok(()) if whole => {
                count("taken");
                self.finish_segment(id, true).await;
                true
            }
            Ok(()) => {
                count("taken");
                error!(batch = %id, records, "a segment of the usage spool is damaged; what could be read was handed over");
                self.finish_segment(id, false).await;
                true
            }
            Err(DeliverError::Retryable(reason)) => {
                count("later");
                if first_failure {
                    warn!(batch = %id, reason, "usage cannot be handed over now; it is kept");
                } else {
                    info!(batch = %id, reason, "usage still cannot be handed over");
                }
                false
            }
            Err(DeliverError::Rejected(reason)) => {
                count("refused");
                error!(batch = %id, reason, "usage was refused for good; the segment is set aside for a person");
                self.finish_segment(id, false).await;
                true
            }
        }
    }

    /// Puts a segment away for good, as confirmed or set aside. The next one waits for this, however long the disk fails: the receiver remembers
    /// only the newest batch of a node, so only that one may be sent again.
    async fn finish_segment(&self, id: BatchId, is_whole: bool) {
        if !is_whole {
            self.spool.metrics().set_aside.inc();
        }
        loop {
            let spool = self.spool.clone();
            let finish = move || {
                if is_whole {
                    spool.confirm(id)
                } else {
                    spool.set_aside(id)
                }
            };
            match blocking(finish).await {
                Some(Ok(())) => return,
                failed => {
                    warn!(batch = %id, ?failed, "a segment that was handed over cannot be put away yet");
                }
            }
            tokio::time::sleep(self.spool.settings().retry_first.as_duration()).await;
        }
    }

    /// The batch of a segment, and whether the whole segment was valid. `None` if it cannot be read now.
    async fn load(&self, id: BatchId) -> Option<(Result<Batch, BillingError>, bool)> {
        let (spool, node) = (self.spool.clone(), self.node.clone());
        let loaded = blocking(move || {
            let (payloads, mut whole) = spool.read(id)?;
            let mut records: Vec<CallRecord> = Vec::with_capacity(payloads.len());
            for payload in payloads {
                match serde_json::from_slice(&payload) {
                    Ok(record) if is_plausible(&record) => records.push(record),
                    // The checksum is right, but this version does not know the format, or the record claims more than a call can use.
                    _ => whole = false,
                }
            }
            Ok::<_, std::io::Error>((Batch::of(id, node, records), whole))
        });
        match loaded.await? {
            Ok(loaded) => Some(loaded),
            Err(failure) => {
                error!(batch = %id, %failure, "a segment of the usage spool cannot be read");
                None
            }
        }
    }
}

fn is_plausible(record: &CallRecord) -> bool {
    let used = &record.used;
    let noted = record.noted.as_ref().map(|noted| noted.record(used));
    Quantities::of(used).is_ok() && noted.is_none_or(|noted| Quantities::of(&noted).is_ok())
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => Some(value),
        Err(failure) => {
            error!(%failure, "a step of the usage spool ended badly");
            None
        }
    }
}
