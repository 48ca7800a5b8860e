//! Custom host names of apps: requested, proven by a DNS record, checked again from time to time, and removed.
//!
//! A claim does not reserve a name; a proof does. Nodes get the proven names as part of an app's desired state.

mod decide;
pub mod watch;

use fdn_core::domain::{self, AddDomain, DomainInfo, DomainState};
use fdn_core::{AppName, HostName, Revision, TenantId, Timestamp};
use sqlx::AnyConnection;
use tracing::info;

use super::actor::Actor;
use super::policy::{audit, existing, push};
use crate::Error;
use crate::proofs::ProofLookup;
use crate::state::State;
use crate::store::app::{AppRow, app_get};
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::domain::{
    DomainRow, domain_delete, domain_get, domain_list, domain_owner, domain_upsert,
};
use crate::store::in_transaction;
use crate::store::revision::revision_next;
use decide::{Holder, after_lookup};

/// The number of hexadecimal digits of a token.
const TOKEN: usize = 32;

/// The custom names of an app, proven or not.
///
/// # Errors
/// When there is no such app or the store fails.
pub async fn list(
    state: &State,
    tenant: TenantId,
    app: &AppName,
) -> Result<Vec<DomainInfo>, Error> {
    let mut connection = state.store.read().await?;
    let row = existing(&mut connection, tenant, app).await?;
    let rows = domain_list(&mut connection, app).await?;
    Ok(rows
        .into_iter()
        .map(|domain| to_info(state, &row, domain))
        .collect())
}

fn to_info(state: &State, app: &AppRow, row: DomainRow) -> DomainInfo {
    let grace = state.settings.domains.grace.as_millis();
    DomainInfo {
        state: match (row.proven, row.failing_since) {
            (false, _) => DomainState::Pending,
            (true, None) => DomainState::Verified,
            (true, Some(_)) => DomainState::Failing,
        },
        records: DomainInfo::records(&row.host, &app.host, &row.token),
        host: row.host,
        app: row.app,
        created_at: row.created_at,
        created_by: row.created_by,
        verified_at: row.verified_at,
        checked_at: row.checked_at,
        ends_at: row
            .failing_since
            .filter(|_| row.proven)
            .map(|at| Timestamp(at.get().saturating_add(grace))),
        problem: row.problem,
    }
}

/// Requests a name for an app. Requesting it again changes nothing.
///
/// # Errors
/// When an app cannot have the name, the app has the most names allowed, there is no such app, or the store fails.
pub async fn add(
    state: &State,
    tenant: TenantId,
    actor: &Actor,
    app: &AppName,
    request: &AddDomain,
) -> Result<DomainInfo, Error> {
    domain::check(&request.host, &state.settings.zone)?;
    let now = fdn_service::now();
    let token = proof_token(state, tenant, app, &request.host);
    let _alone = state.changes.lock().await;
    let done: Result<(AppRow, DomainRow), Error> = in_transaction!(state.store, tx => {
        let old = existing(&mut tx, tenant, app).await?;
        let rows = domain_list(&mut tx, app).await?;
        if let Some(there) = rows.iter().find(|row| row.host == request.host) {
            return Ok((old, there.clone()));
        }
        if rows.len() >= state.settings.domains.per_app {
            return Err(Error::Conflict(format!(
                "app {app} has {} domains, more are not allowed; remove one: fdn domain remove {app} HOST", rows.len()
            )));
        }
        let row = DomainRow {
            app: app.clone(),
            host: request.host.clone(),
            tenant,
            token: token.clone(),
            proven: false,
            created_at: now,
            created_by: actor.to_string(),
            verified_at: None,
            checked_at: None,
            failing_since: None,
            problem: None,
        };
        domain_upsert(&mut tx, &row).await?;
        audit_insert(&mut tx, &entry(actor, (None, &row), "domain.add", now)).await?;
        Ok((old, row))
    });
    let (old, row) = done?;
    Ok(to_info(state, &old, row))
}

/// The token that proves a name for an app. It is derived, and not random, so that a name that was removed and is added again needs the same record:
/// the one that is still there proves it. Another tenant whose app gets the same name later needs another one.
fn proof_token(state: &State, tenant: TenantId, app: &AppName, host: &HostName) -> String {
    let derived = state
        .token
        .derive(&format!("fdn-domain\n{tenant}\n{app}\n{host}"));
    let mut token = derived.expose().to_owned();
    token.truncate(TOKEN);
    token
}

/// The state of a domain in the audit log.
fn state_of(row: &DomainRow) -> String {
    serde_json::json!({ "host": row.host, "proven": row.proven }).to_string()
}

/// The audit log entry for a domain that was added or changed.
fn entry(
    actor: &Actor,
    (before, after): (Option<&DomainRow>, &DomainRow),
    action: &'static str,
    now: Timestamp,
) -> AuditEntry {
    AuditEntry {
        before: before.map(state_of),
        after: Some(state_of(after)),
        ..audit(actor, after.tenant, action, &after.app, now)
    }
}

/// Looks for the proof of a name now.
///
/// # Errors
/// When there is no proof, another app has the name, the lookup fails, there is no such app or name, or the store fails.
pub async fn verify(
    state: &State,
    tenant: TenantId,
    actor: &Actor,
    (app, host): (&AppName, &HostName),
) -> Result<DomainInfo, Error> {
    let mut connection = state.store.read().await?;
    let old = existing(&mut connection, tenant, app).await?;
    let row = domain_get(&mut connection, app, host).await?;
    let row = row.ok_or_else(|| no_domain(app, host))?;
    drop(connection);
    let seen = state.proofs.look_up(host, &row.token).await;
    let now = fdn_service::now();
    let next = apply_lookup(state, actor, &row, &seen, now).await?;
    match (&seen, next.proven) {
        (ProofLookup::Proof, true) => Ok(to_info(state, &old, next)),
        (ProofLookup::Proof, false) => Err(Error::DomainTaken(host.clone())),
        (ProofLookup::Missing(problem), _) => Err(Error::DomainUnproven(problem.clone())),
        (ProofLookup::Unknown(problem), _) => Err(Error::Resolver(problem.clone())),
    }
}

/// Applies the result of a proof lookup, and announces changes to nodes. It counts for the claim that was looked up, `before`, and for no other.
///
/// # Errors
/// When the claim is gone, or the store fails.
pub async fn apply_lookup(
    state: &State,
    actor: &Actor,
    before: &DomainRow,
    seen: &ProofLookup,
    now: Timestamp,
) -> Result<DomainRow, Error> {
    let grace = state.settings.domains.grace;
    let _alone = state.changes.lock().await;
    let done: Result<(DomainRow, bool), Error> = in_transaction!(state.store, tx => {
        let revision = revision_next(&mut tx).await?;
        // The domain may have been removed during the lookup, or be another's by now, with a token that nobody has looked for.
        let there = domain_get(&mut tx, &before.app, &before.host).await?;
        let there = there.filter(|row| row.token == before.token);
        let row = there.ok_or_else(|| no_domain(&before.app, &before.host))?;
        let (holder, other) = holder(&mut tx, &row).await?;
        let next = after_lookup(&row, seen, holder, now, grace);
        let mut changed = next.proven != row.proven;
        if next.proven && let Some(had) = other {
            let mut other = had.clone();
            other.proven = false;
            (other.verified_at, other.failing_since) = (None, Some(now));
            other.problem = Some("another app has proven this name".to_owned());
            domain_upsert(&mut tx, &other).await?;
            announce(&mut tx, &other.app, revision, now).await?;
            audit_insert(&mut tx, &entry(actor, (Some(&had), &other), "domain.lost", now)).await?;
            changed = true;
        }
        domain_upsert(&mut tx, &next).await?;
        if next.proven != row.proven {
            announce(&mut tx, &next.app, revision, now).await?;
        }
        let asked = *actor != Actor::network();
        if next.proven && (asked || !row.proven) {
            audit_insert(&mut tx, &entry(actor, (Some(&row), &next), "domain.verify", now)).await?;
        } else if row.proven && !next.proven {
            audit_insert(&mut tx, &entry(actor, (Some(&row), &next), "domain.lost", now)).await?;
        }
        Ok((next, changed))
    });
    let (next, changed) = done?;
    if changed {
        state.outbox_wake.notify_one();
        info!(app = %next.app, host = %next.host, proven = next.proven, %actor, "a domain of an app was looked at");
    }
    Ok(next)
}

/// Whether another app has the name, and that app's row.
async fn holder(
    connection: &mut AnyConnection,
    row: &DomainRow,
) -> Result<(Holder, Option<DomainRow>), Error> {
    let owner = domain_owner(&mut *connection, &row.host).await?;
    let Some(owner) = owner.filter(|owner| *owner != row.app) else {
        return Ok((Holder::Nobody, None));
    };
    let other = domain_get(connection, &owner, &row.host).await?;
    let failing = other
        .as_ref()
        .is_some_and(|other| other.failing_since.is_some());
    Ok((
        if failing {
            Holder::Failing
        } else {
            Holder::Other
        },
        other,
    ))
}

/// Sends nodes the names of an app.
async fn announce(
    connection: &mut AnyConnection,
    app: &AppName,
    revision: Revision,
    now: Timestamp,
) -> Result<(), Error> {
    match app_get(&mut *connection, app).await? {
        Some(row) => push(connection, row, revision, now).await,
        None => Ok(()),
    }
}

fn no_domain(app: &AppName, host: &HostName) -> Error {
    Error::NotFound {
        what: format!("domain {host} of app {app}"),
        hint: "`fdn domain list APP` shows what there is",
    }
}

/// Removes a name: the app no longer answers to it.
///
/// # Errors
/// When there is no such app or name, or the store fails.
pub async fn remove(
    state: &State,
    tenant: TenantId,
    actor: &Actor,
    (app, host): (&AppName, &HostName),
    now: Timestamp,
) -> Result<(), Error> {
    let _alone = state.changes.lock().await;
    let done: Result<(), Error> = in_transaction!(state.store, tx => {
        let revision = revision_next(&mut tx).await?;
        let old = existing(&mut tx, tenant, app).await?;
        let row = domain_get(&mut tx, app, host).await?.ok_or_else(|| no_domain(app, host))?;
        domain_delete(&mut tx, app, host).await?;
        if row.proven {
            push(&mut tx, old, revision, now).await?;
        }
        let entry = AuditEntry { before: Some(state_of(&row)), ..audit(actor, tenant, "domain.remove", app, now) };
        audit_insert(&mut tx, &entry).await?;
        Ok(())
    });
    done?;
    state.outbox_wake.notify_one();
    info!(%app, %host, %actor, "a domain was removed");
    Ok(())
}
