//! The DNS settings of an app: the time to live of its answers.
//!
//! The time to live goes to every DNS server with the app's bindings, which are sent again. A cluster that clients are moved away from keeps the
//! app loaded longer, by as much as the app's time to live exceeds the network's.

use fdn_core::app::{AppDns, PutAppDns, app_ttl_problem};
use fdn_core::{AppName, Coded, ErrorCode, TenantId, Timestamp};
use tracing::info;

use super::actor::Actor;
use super::policy::{audit, existing};
use crate::Error;
use crate::reconcile::desired::announce_to_dns;
use crate::state::State;
use crate::store::app::{AppRow, app_upsert};
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::binding::binding_list;
use crate::store::in_transaction;
use crate::store::revision::revision_next;

/// A time to live is not allowed; the text says why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TtlError(String);

impl Coded for TtlError {
    fn code(&self) -> ErrorCode {
        ErrorCode::RecordInvalid
    }
}

fn to_info(state: &State, row: AppRow) -> AppDns {
    AppDns {
        default: row.ttl.is_none(),
        ttl: row.ttl.unwrap_or(state.settings.planner.ttl),
        revision: row.bindings_revision,
        app: row.name,
    }
}

/// The DNS settings of an app.
///
/// # Errors
/// When there is no such app or the store fails.
pub async fn get(state: &State, tenant: TenantId, app: &AppName) -> Result<AppDns, Error> {
    let row = existing(&mut *state.store.read().await?, tenant, app).await?;
    Ok(to_info(state, row))
}

/// Sets the DNS settings of an app. Setting the same again changes nothing.
///
/// # Errors
/// When the time to live is not allowed, there is no such app, or the store fails.
pub async fn set(
    state: &State,
    (tenant, actor): (TenantId, &Actor),
    app: &AppName,
    request: PutAppDns,
    now: Timestamp,
) -> Result<AppDns, Error> {
    if let Some(problem) = request.ttl.and_then(app_ttl_problem) {
        return Err(TtlError(problem).into());
    }
    let network = state.ttl_s();
    let _alone = state.changes.lock().await;
    let (row, changed): (AppRow, bool) = in_transaction!(state.store, tx => {
        let revision = revision_next(&mut tx).await?;
        let old = existing(&mut tx, tenant, app).await?;
        if old.ttl == request.ttl {
            return Ok((old, false));
        }
        let state = |ttl| serde_json::to_string(&PutAppDns { ttl }).ok();
        let entry = AuditEntry {
            before: state(old.ttl),
            after: state(request.ttl),
            ..audit(actor, tenant, "dns.set", app, now)
        };
        let row = AppRow {
            ttl: request.ttl,
            bindings_revision: revision,
            ..old
        };
        app_upsert(&mut tx, &row).await?;
        let bindings = binding_list(&mut tx, app).await?;
        announce_to_dns(&mut tx, &row, &bindings, network, now).await?;
        audit_insert(&mut tx, &entry).await?;
        Ok::<_, Error>((row, true))
    })?;
    if changed {
        state.outbox_wake.notify_one();
        info!(%app, %actor, "how DNS answers for an app was set");
    }
    Ok(to_info(state, row))
}
