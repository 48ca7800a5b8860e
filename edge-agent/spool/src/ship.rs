//! Hands sealed segments over: the oldest first, one at a time, each until it is confirmed.
//!
//! What goes is the sums of a segment's records. They are made anew for each time it is sent, of the segment alone, so they are always the same. A
//! segment that an agent of the revision before has left goes as that one would have sent it, record by record, because its records do not say what they take
//! the place of.

use std::time::Duration;

use async_trait::async_trait;
use fdn_core::billing::{BillingError, Quantities};
use fdn_core::usage::{CallRecord, UsageBatch, UsageSums, roll_up};
use fdn_core::{BatchId, NodeId};
use rand::RngExt;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::spool::Spool;

/// How often what is old is removed.
const FORGET: Duration = Duration::from_secs(600);

/// Why a batch was not taken.
#[derive(Debug, thiserror::Error)]
pub enum DeliverError {
    /// It may be taken later, as it is.
    #[error("{0}")]
    Later(String),
    /// It will never be taken as it is.
    #[error("{0}")]
    Never(String),
}

/// What is handed over of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Batch {
    /// Its sums.
    Sums(UsageSums),
    /// Its records, which the revision before has written.
    Records(UsageBatch),
}

impl Batch {
    /// What goes of these records, all of one segment.
    ///
    /// # Errors
    /// When a record says more than a call can use.
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
            // A segment is bounded far below that.
            records: u32::try_from(records.len()).unwrap_or(u32::MAX),
            sums,
        }))
    }

    /// How many records it is of.
    #[must_use]
    pub const fn records(&self) -> usize {
        match self {
            Self::Sums(sums) => sums.records as usize,
            Self::Records(batch) => batch.records.len(),
        }
    }
}

/// Takes batches, and counts each once however often it is handed over.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// Returns once the batch is stored.
    ///
    /// # Errors
    /// When it may not be stored: it comes again.
    async fn deliver(&self, batch: &Batch) -> Result<(), DeliverError>;
}

/// Hands a spool's records over.
pub struct Shipper<S> {
    /// The spool.
    pub spool: Spool,
    /// Who takes them.
    pub sink: S,
    /// The node that they are of.
    pub node: NodeId,
}

impl<S: Sink> Shipper<S> {
    /// Hands over until `stop` is cancelled. A batch that is on its way then comes again after the next start, under the same id.
    pub async fn run(self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.ship() => {}
            () = self.forget() => {}
        }
    }

    /// Removes what is old, also while nobody calls and no segment comes that would push it out.
    async fn forget(&self) {
        let mut timer = tokio::time::interval(FORGET);
        loop {
            timer.tick().await;
            let spool = self.spool.clone();
            blocking(move || spool.forget()).await;
        }
    }

    async fn ship(&self) {
        let settings = self.spool.settings();
        let first = settings.retry_first.as_duration();
        let most = settings.retry_max.as_duration();
        let mut pause = Duration::ZERO;
        loop {
            tokio::time::sleep(pause).await;
            let id = self.spool.oldest().await;
            pause = if self.hand_over(id, pause.is_zero()).await {
                Duration::ZERO
            } else {
                // From half to the whole of it, so that nodes do not come back all at once.
                let doubled = (pause * 2).clamp(first, most);
                doubled
                    .mul_f64(rand::rng().random_range(0.5..=1.0))
                    .max(first / 2)
            };
        }
    }

    /// Hands one segment over; says whether the next one can be tried at once.
    async fn hand_over(&self, id: BatchId, first_failure: bool) -> bool {
        let Some((batch, whole)) = self.load(id).await else {
            return false;
        };
        let (records, result) = match batch {
            Ok(batch) if batch.records() == 0 => (0, Ok(())),
            Ok(batch) => (batch.records(), self.sink.deliver(&batch).await),
            Err(failure) => (0, Err(DeliverError::Never(failure.to_string()))),
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
                self.put_away(id, true).await;
                true
            }
            Ok(()) => {
                count("taken");
                error!(batch = %id, records, "a segment of the usage spool is damaged; what could be read was handed over");
                self.put_away(id, false).await;
                true
            }
            Err(DeliverError::Later(reason)) => {
                count("later");
                if first_failure {
                    warn!(batch = %id, reason, "usage cannot be handed over now; it is kept");
                } else {
                    info!(batch = %id, reason, "usage still cannot be handed over");
                }
                false
            }
            Err(DeliverError::Never(reason)) => {
                count("refused");
                error!(batch = %id, reason, "usage was refused for good; the segment is set aside for a person");
                self.put_away(id, false).await;
                true
            }
        }
    }

    /// Puts a segment away for good, as confirmed or aside. The next one waits for it, whatever the disk says meanwhile: the receiver remembers the newest batch
    /// of a node, so only that one may come again.
    async fn put_away(&self, id: BatchId, is_whole: bool) {
        if !is_whole {
            self.spool.metrics().set_aside.inc();
        }
        loop {
            let spool = self.spool.clone();
            let away = move || {
                if is_whole {
                    spool.confirmed(id)
                } else {
                    spool.set_aside(id)
                }
            };
            match blocking(away).await {
                Some(Ok(())) => return,
                failed => {
                    warn!(batch = %id, ?failed, "a segment that was handed over cannot be put away yet");
                }
            }
            tokio::time::sleep(self.spool.settings().retry_first.as_duration()).await;
        }
    }

    /// What goes of a segment, and whether all of the segment could be read. Nothing if none of it can be read now.
    async fn load(&self, id: BatchId) -> Option<(Result<Batch, BillingError>, bool)> {
        let (spool, node) = (self.spool.clone(), self.node.clone());
        let loaded = blocking(move || {
            let (payloads, mut whole) = spool.read(id)?;
            let mut records: Vec<CallRecord> = Vec::with_capacity(payloads.len());
            for payload in payloads {
                match serde_json::from_slice(&payload) {
                    Ok(record) if is_possible(&record) => records.push(record),
                    // Whole by its checksum, but of a form that this version does not know, or more than a call can use.
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

fn is_possible(record: &CallRecord) -> bool {
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
