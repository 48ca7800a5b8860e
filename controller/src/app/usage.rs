//! Usage as nodes hand it over: stored once, forgotten when it is old.

use std::sync::Arc;
use std::time::Duration;

use fdn_core::Timestamp;
use fdn_core::policy::quota::Window;
use fdn_core::usage::{UsageBatch, UsageReceipt};
use fdn_service::CancellationToken;
use tracing::{info, warn};

use crate::Error;
use crate::state::State;
use crate::store::in_transaction;
use crate::store::policy::{quota_add, quota_new, quota_trim};
use crate::store::usage::{usage_store, usage_trim};

/// How often what is old is forgotten.
const TRIM: Duration = Duration::from_secs(600);

/// Stores a batch. When this returns, the node may forget it.
///
/// # Errors
/// When the batch is not one, or the database fails.
pub async fn store(state: &State, octets: &[u8]) -> Result<UsageReceipt, Error> {
    let batch: UsageBatch = serde_json::from_slice(octets)
        .map_err(|e| Error::BadRequest(format!("a batch of usage records: {e}")))?;
    let now = fdn_service::now();
    let stored: Result<UsageReceipt, Error> = in_transaction!(state.store, transaction => {
        let calls = quota_new(&mut transaction, &batch).await?;
        let receipt = usage_store(&mut transaction, &batch, now).await?;
        if !receipt.duplicate {
            quota_add(&mut transaction, &calls).await?;
        }
        Ok(receipt)
    });
    let receipt = stored?;
    let metrics = &state.metrics;
    let count = |result: &str, n: u64| metrics.usage_records.with_label_values(&[result]).inc_by(n);
    let sent = batch.records.len() as u64;
    count("stored", receipt.stored);
    count("duplicate", sent.saturating_sub(receipt.stored));
    Ok(receipt)
}

/// Forgets what is old until `stop` is cancelled.
pub(crate) async fn trim(state: Arc<State>, stop: CancellationToken) {
    let mut timer = tokio::time::interval(TRIM);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = timer.tick() => {}
        }
        match trim_once(&state, fdn_service::now()).await {
            Ok((0, 0)) => {}
            Ok((batches, records)) => info!(batches, records, "old usage was forgotten"),
            Err(failure) => warn!(%failure, "old usage cannot be forgotten now"),
        }
    }
}

async fn trim_once(state: &State, now: Timestamp) -> Result<(u64, u64), Error> {
    let usage = &state.settings.usage;
    let before = |age: fdn_core::DurationMs| Timestamp(now.get().saturating_sub(age.as_millis()));
    let mut connection = state.store.read().await?;
    quota_trim(&mut connection, Window::at(now).month_begins()).await?;
    Ok(usage_trim(&mut connection, before(usage.remember), before(usage.keep)).await?)
}
