//! Migration: values that earlier releases stored with versions, sealed under the network key, move into the vault.
//!
//! Values are copied at once, and deleted from the versions after [`SecretSettings::keep_old`](crate::settings::SecretSettings): while
//! controllers are restarted one after the other, those of the earlier release still find them. What such a controller stores meanwhile is newer
//! and is copied as well. Every version is a transaction of its own; all of this can be repeated, or be done by several controllers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fdn_core::Timestamp;
use fdn_service::CancellationToken;
use fdn_service::secret::Secret;
use tracing::{info, warn};

use super::{context, push_users, write};
use crate::Error;
use crate::app::actor::Actor;
use crate::error::chain;
use crate::state::State;
use crate::store::in_transaction;
use crate::store::revision::{revision_lock, revision_next};
use crate::store::secret::{secret_list, version_list_with_values, version_values_clear};
use crate::store::version::VersionRow;

/// The interval between rounds.
const INTERVAL: Duration = Duration::from_secs(60);
/// The most versions of one round. Those of a function are ordered by precedence of their values.
const BATCH: u32 = 10_000;

/// Runs rounds until `stop` is cancelled.
pub(crate) async fn run(state: Arc<State>, stop: CancellationToken) {
    let mut timer = tokio::time::interval(INTERVAL);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = timer.tick() => {}
        }
        match round(&state, fdn_service::now()).await {
            Ok(0) => {}
            Ok(moved) => info!(moved, "values of secrets were moved into the vault"),
            Err(error) => warn!(
                error = chain(&error),
                "values of secrets cannot be moved into the vault now"
            ),
        }
    }
}

/// Moves all values. Returns how many were copied. A value that cannot be decrypted does not keep others from being moved.
///
/// # Errors
/// With the first failure; what was moved stands.
pub async fn round(state: &State, now: Timestamp) -> Result<u64, Error> {
    let mut connection = state.store.read().await?;
    let versions = version_list_with_values(&mut connection, BATCH).await?;
    drop(connection);
    let (mut moved, mut failed) = (0, None);
    for version in versions {
        match migrate_version(state, &version, now).await {
            Ok(values) => moved += values,
            Err(error) => drop(failed.get_or_insert(error)),
        }
    }
    failed.map_or(Ok(moved), Err)
}

async fn migrate_version(
    state: &State,
    version: &VersionRow,
    now: Timestamp,
) -> Result<u64, Error> {
    let (tenant, function) = (version.tenant, &version.function);
    let actor = Actor::network();
    let keep = state.settings.secrets.keep_old.as_millis();
    let moved: Result<u64, Error> = in_transaction!(state.store, tx => {
        // A value that is set meanwhile is newer than the one here: it must not be set between reading and writing.
        revision_lock(&mut tx).await?;
        let known = secret_list(&mut tx, tenant, function).await?;
        let mut values = BTreeMap::new();
        let mut settled = true;
        for (name, sealed) in &version.secrets {
            match known.iter().find(|row| row.name == *name) {
                // It was set, or moved from a version with precedence, after this version was created.
                Some(row) if row.updated_at >= version.created_at => {
                    settled &= row.updated_at.get().saturating_add(keep) <= now.get();
                }
                _ => {
                    let value = state.key.open(&context(function, name), sealed)?;
                    values.insert(name.clone(), Secret::new(value));
                }
            }
        }
        if values.is_empty() {
            if settled {
                version_values_clear(&mut tx, version).await?;
            }
            return Ok(0);
        }
        let revision = revision_next(&mut tx).await?;
        write(state, &mut tx, (tenant, function), &values, (&actor, revision, now)).await?;
        push_users(&mut tx, (tenant, function), None, (revision, now)).await?;
        Ok(values.len() as u64)
    });
    let moved = moved?;
    if moved > 0 {
        state.outbox_wake.notify_one();
    }
    Ok(moved)
}
