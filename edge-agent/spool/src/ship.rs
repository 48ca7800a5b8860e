//! Hands sealed segments over: the oldest first, one at a time, each until it is confirmed.

use std::time::Duration;

use async_trait::async_trait;
use fdn_core::usage::{UsageBatch, UsageRecord};
use fdn_core::{BatchId, NodeId};
use rand::RngExt;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::spool::Spool;

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

/// Takes batches, and counts each once however often it is handed over.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// Returns once the batch is stored.
    ///
    /// # Errors
    /// When it may not be stored: it comes again.
    async fn deliver(&self, batch: &UsageBatch) -> Result<(), DeliverError>;
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
    /// Hands over until `stop` is cancelled.
    pub async fn run(self, stop: CancellationToken) {
        let settings = self.spool.settings();
        let first = settings.retry_first.as_duration();
        let most = settings.retry_max.as_duration();
        let mut pause = Duration::ZERO;
        loop {
            let next = async {
                tokio::time::sleep(pause).await;
                self.spool.oldest().await
            };
            let id = tokio::select! {
                () = stop.cancelled() => return,
                id = next => id,
            };
            let went_well = tokio::select! {
                // A batch that was on its way comes again after the next start, under the same id.
                () = stop.cancelled() => return,
                went_well = self.hand_over(id, pause.is_zero()) => went_well,
            };
            pause = if went_well {
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
        let result = if batch.records.is_empty() {
            Ok(())
        } else {
            self.sink.deliver(&batch).await
        };
        let spool = self.spool.clone();
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
                blocking(move || spool.confirmed(id)).await;
                true
            }
            Ok(()) => {
                count("taken");
                error!(batch = %id, records = batch.records.len(), "a segment of the usage spool is damaged; what could be read was handed over");
                blocking(move || spool.set_aside(id)).await;
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
                blocking(move || spool.set_aside(id)).await;
                true
            }
        }
    }

    /// The batch of a segment, and whether all of the segment could be read.
    async fn load(&self, id: BatchId) -> Option<(UsageBatch, bool)> {
        let spool = self.spool.clone();
        let (payloads, mut whole) = match blocking(move || spool.read(id)).await? {
            Ok(read) => read,
            Err(failure) => {
                error!(batch = %id, %failure, "a segment of the usage spool cannot be read");
                return None;
            }
        };
        let mut records: Vec<UsageRecord> = Vec::with_capacity(payloads.len());
        for payload in payloads {
            match serde_json::from_slice(&payload) {
                Ok(record) => records.push(record),
                // Whole by its checksum, but of a form that this version does not know.
                Err(_) => whole = false,
            }
        }
        let batch = UsageBatch {
            batch: id,
            node: self.node.clone(),
            records,
        };
        Some((batch, whole))
    }
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
