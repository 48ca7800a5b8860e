//! Usage delivered by nodes: counted once, and deleted when it is old.

use std::sync::Arc;
use std::time::Duration;

use fdn_core::Timestamp;
use fdn_core::policy::quota::Window;
use fdn_core::usage::{UsageBatch, UsageReceipt, UsageSums};
use fdn_service::CancellationToken;
use tracing::{info, warn};

use crate::Error;
use crate::state::State;
use crate::store::in_transaction;
use crate::store::policy::{quota_add, quota_new, quota_of, quota_trim};
use crate::store::usage::{usage_store, usage_trim};
use crate::store::usage_sums::{batch_trim, usage_add};

/// How often old usage is deleted.
const TRIM: Duration = Duration::from_secs(600);

/// Adds a batch of sums. Once this returns, the node need not send it again.
///
/// # Errors
/// When the batch cannot be parsed, or the database fails.
pub async fn add(state: &State, bytes: &[u8]) -> Result<UsageReceipt, Error> {
    let batch: UsageSums = serde_json::from_slice(bytes)
        .map_err(|e| Error::BadRequest(format!("a batch of sums of usage: {e}")))?;
    let now = fdn_service::now();
    let added: Result<UsageReceipt, Error> = in_transaction!(state.store, transaction => {
        let receipt = usage_add(&mut transaction, &batch, now).await?;
        if !receipt.duplicate {
            let calls = quota_of(&mut transaction, &batch).await?;
            quota_add(&mut transaction, &calls).await?;
        }
        Ok(receipt)
    });
    let receipt = added?;
    count(state, u64::from(batch.records), receipt);
    Ok(receipt)
}

fn count(state: &State, sent: u64, receipt: UsageReceipt) {
    let records = &state.metrics.usage_records;
    let count = |result: &str, n: u64| records.with_label_values(&[result]).inc_by(n);
    count("stored", receipt.stored);
    count("duplicate", sent.saturating_sub(receipt.stored));
}

/// Stores a batch of records from a node of the previous release. Once this returns, the node may delete it.
///
/// # Errors
/// When the batch cannot be parsed, or the database fails.
pub async fn store(state: &State, bytes: &[u8]) -> Result<UsageReceipt, Error> {
    let batch: UsageBatch = serde_json::from_slice(bytes)
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
    count(state, batch.records.len() as u64, receipt);
    Ok(receipt)
}

/// Deletes old usage until `stop` is cancelled.
pub(crate) async fn trim(state: Arc<State>, stop: CancellationToken) {
    let mut timer = tokio::time::interval(TRIM);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = timer.tick() => {}
        }
        match trim_once(&state, fdn_service::now()).await {
            Ok((0, 0)) => {}
            Ok((batches, rows)) => info!(batches, rows, "old usage was forgotten"),
            Err(failure) => warn!(%failure, "old usage cannot be forgotten now"),
        }
    }
}

async fn trim_once(state: &State, now: Timestamp) -> Result<(u64, u64), Error> {
    let usage = &state.settings.usage;
    let before = |age: fdn_core::DurationMs| Timestamp(now.get().saturating_sub(age.as_millis()));
    let mut connection = state.store.read().await?;
    quota_trim(&mut connection, Window::at(now).month_begins()).await?;
    // If one fails, the other is still done: each may have much to do after a change of the settings.
    let rows = usage_trim(&mut connection, before(usage.keep)).await;
    let batches = batch_trim(&mut connection, before(usage.remember)).await?;
    Ok((batches, rows?))
}
