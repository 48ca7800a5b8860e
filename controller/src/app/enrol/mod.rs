//! Enrolment of machines, and renewal of their certificates.
//!
//! `rules` decides who may join, from what is stored and the time; this module reads, asks, and writes in one transaction. An enrolment whose
//! response was lost may be requested again with the same key: it does not consume another use of the token.

mod adopt;
mod error;
mod rules;

use std::sync::atomic::Ordering;

use fdn_core::enrol::{
    EnrolRequest, EnrolResponse, IssuedCertificate, JoinToken, RenewRequest, RenewResponse, Role,
    Seed,
};
use fdn_core::{ClusterId, Coded as _, EnrolmentId, NodeId, Revision, Timestamp};
use fdn_service::pki::PublicKey;
use sqlx::AnyConnection;
use tracing::{info, warn};

pub use adopt::adopt;
pub use error::EnrolError;

use super::access::{node_token, token_hash};
use super::actor::Actor;
use super::authority::{issue, push_fleet};
use crate::Error;
use crate::reconcile::node_registry::Hosts;
use crate::state::{State, lock};
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::cluster::{ClusterRow, cluster_get};
use crate::store::enrolment::{
    CertificateRow, EnrolmentRow, certificate_count, certificate_get, certificate_newest,
    certificate_revoke, cordon_delete, enrolment_get, enrolment_list_others, enrolment_upsert,
};
use crate::store::in_transaction;
use crate::store::join_token::{JoinTokenRow, join_token_get, join_token_use};
use crate::store::node::node_seen_at;
use crate::store::revision::{revision_lock, revision_next};
use rules::{Holder, Relation};

/// The most other nodes that a new one is told about.
const SEEDS: u32 = 64;

/// The result of a transaction that admitted a machine.
struct Admission {
    enrolment: EnrolmentRow,
    cluster: ClusterRow,
    identity: IssuedCertificate,
    seeds: Vec<Seed>,
    revision: Revision,
}

/// Admits a machine to the network.
///
/// # Errors
/// When the machine is refused, with what to do about it; or when the store fails.
pub async fn enrol(
    state: &State,
    request: &EnrolRequest,
    actor: &Actor,
    now: Timestamp,
) -> Result<EnrolResponse, Error> {
    let result = enrol_inner(state, request, actor, now).await;
    count(&state.metrics.enrolments, &result);
    match &result {
        Ok(answer) => {
            info!(node = %answer.node, role = %request.role, cluster = %answer.cluster, serial = answer.identity.serial, "a machine was let in");
        }
        Err(error) => warn!(node = %request.node, %error, "a machine was not let in"),
    }
    result
}

/// Counts the outcome.
fn count<T>(counter: &prometheus::IntCounterVec, result: &Result<T, Error>) {
    let label = match result {
        Ok(_) => "ok",
        Err(error) if error.fault() == fdn_core::Fault::Caller => "refused",
        Err(_) => "failed",
    };
    counter.with_label_values(&[label]).inc();
}

async fn enrol_inner(
    state: &State,
    request: &EnrolRequest,
    actor: &Actor,
    now: Timestamp,
) -> Result<EnrolResponse, Error> {
    let token: JoinToken = request.token.parse()?;
    request.addresses.check()?;
    // Unknown callers are turned away before they cost anything: a lock, or parsing a certificate request.
    let mut connection = state.store.read().await?;
    find_token(&mut connection, &token, request, now).await?;
    drop(connection);
    let key = PublicKey::of_request(&request.csr).map_err(EnrolError::Request)?;
    let heard = lock(&state.live).is_alive(&request.node, now);
    let admitted: Admission = in_transaction!(state.store, tx => {
        admit(state, &mut tx, (&token, request, actor), &key, heard, now).await
    })?;
    if admitted.enrolment.role == Role::Node {
        // Recorded before its first report arrives.
        let EnrolmentRow {
            node, addresses, ..
        } = &admitted.enrolment;
        let hosts = Hosts::of(addresses.gateway, addresses.admin);
        lock(&state.live).admit(node.clone(), hosts);
    }
    state.outbox_wake.notify_one();
    state.planner_wake.notify_one();
    Ok(EnrolResponse {
        node_token: node_token(&state.token, &admitted.enrolment)
            .expose()
            .to_owned(),
        node: admitted.enrolment.node,
        cluster: admitted.enrolment.cluster,
        region: admitted.cluster.region,
        location: admitted.cluster.location,
        identity: admitted.identity,
        controllers: controllers(state),
        seeds: admitted.seeds,
        revision: admitted.revision,
    })
}

/// The token's row, if the token is known and valid for this machine now. Whether it has uses left is checked when one is consumed.
async fn find_token(
    connection: &mut AnyConnection,
    token: &JoinToken,
    request: &EnrolRequest,
    now: Timestamp,
) -> Result<JoinTokenRow, Error> {
    let row = join_token_get(connection, token.id).await?;
    let row = row.filter(|row| row.hash == token_hash(token.secret()));
    let row = row.ok_or(EnrolError::Unknown)?;
    rules::token_fits(&row.info, request, now)?;
    Ok(row)
}

async fn admit(
    state: &State,
    tx: &mut AnyConnection,
    (token, request, actor): (&JoinToken, &EnrolRequest, &Actor),
    key: &PublicKey,
    heard: bool,
    now: Timestamp,
) -> Result<Admission, Error> {
    // One enrolment at a time in the whole network: names are compared with those that exist.
    let mut revision = revision_lock(tx).await?;
    let token = find_token(tx, token, request, now).await?.info;
    let cluster = cluster_get(tx, &token.cluster)
        .await?
        .ok_or_else(|| Error::no_cluster(&token.cluster))?;
    let holder = holder(tx, &request.node, key, heard, now).await?;
    let relation = rules::relate(&request.node, &token, holder.as_ref())?;
    if relation == Relation::Again {
        rules::check_reissue(certificate_count(tx, &request.node, now).await?)?;
    }
    if relation != Relation::Again && !join_token_use(tx, token.id, now).await? {
        return Err(EnrolError::UsedUp {
            uses: token.uses,
            cluster: token.cluster,
        }
        .into());
    }
    let id = match (&holder, relation) {
        (Some(holder), Relation::Again | Relation::Same) => holder.enrolment.id,
        _ => EnrolmentId::from_uuid(uuid::Uuid::now_v7()),
    };
    let enrolment = EnrolmentRow {
        node: request.node.clone(),
        id,
        role: request.role,
        cluster: token.cluster.clone(),
        token: token.id,
        addresses: request.addresses.clone(),
        enrolled_at: now,
        removed_at: None,
    };
    let revoked = match relation {
        Relation::Replace => certificate_revoke(tx, &request.node, now).await?,
        Relation::New | Relation::Again | Relation::Same => 0,
    };
    enrolment_upsert(tx, &enrolment).await?;
    // A cordon of an earlier node of this name does not apply to this one.
    let cordoned = relation == Relation::New && cordon_delete(tx, &request.node).await?;
    let identity = issue(state, tx, enrolment.machine(), &request.addresses, key, now).await?;
    let seeds = seeds(tx, &enrolment.cluster, &enrolment.node).await?;
    if revoked > 0 || cordoned {
        revision = revision_next(tx).await?;
        push_fleet(state, tx, revision, now).await?;
    }
    let actor = actor.with_name(format!("join token {}", token.id));
    let before = holder.map(|had| serde_json::json!({ "cluster": had.enrolment.cluster }));
    let after = serde_json::json!({ "cluster": enrolment.cluster, "serial": identity.serial });
    audit(
        tx,
        &actor,
        action(enrolment.role, "node.enrol", "dns.enrol"),
        &enrolment.node,
        (before, Some(after)),
        now,
    )
    .await?;
    Ok(Admission {
        enrolment,
        cluster,
        identity,
        seeds,
        revision,
    })
}

/// The machine that has the name now, if any.
async fn holder(
    tx: &mut AnyConnection,
    node: &NodeId,
    key: &PublicKey,
    heard: bool,
    now: Timestamp,
) -> Result<Option<Holder>, Error> {
    let lifetime = fdn_core::message::STATUS_LIFETIME.as_duration();
    let seen = node_seen_at(tx, node).await?;
    let alive = heard || seen.is_some_and(|at| now.since(at) < lifetime);
    let enrolment = enrolment_get(tx, node).await?;
    let Some(enrolment) = enrolment.filter(|row| row.removed_at.is_none()) else {
        return if alive {
            Err(EnrolError::NameTaken {
                node: node.clone(),
                why: "reports and was never let in".to_owned(),
            }
            .into())
        } else {
            Ok(None)
        };
    };
    let newest = certificate_newest(tx, node).await?;
    Ok(Some(Holder {
        same_key: newest.is_some_and(|row| row.public_key == key.to_text()),
        enrolment,
        alive,
    }))
}

/// Issues the next certificate for a machine's key. The signature proves that the machine holds the key.
///
/// # Errors
/// When the renewal is refused, with what to do about it; or when the store fails.
pub async fn renew(
    state: &State,
    request: &RenewRequest,
    actor: &Actor,
    now: Timestamp,
) -> Result<RenewResponse, Error> {
    let result = renew_inner(state, request, actor, now).await;
    count(&state.metrics.renewals, &result);
    result
}

async fn renew_inner(
    state: &State,
    request: &RenewRequest,
    actor: &Actor,
    now: Timestamp,
) -> Result<RenewResponse, Error> {
    request.addresses.check()?;
    let mut connection = state.store.read().await?;
    let present = certificate_get(&mut connection, &request.serial).await?;
    let present = present.ok_or(EnrolError::Certificate("the certificate is not known here"))?;
    let row = enrolment_get(&mut connection, &present.node).await?;
    let row = rules::renewable(
        &present,
        row,
        request,
        state.settings.enrolment.renew_grace,
        now,
    )?;
    let key = PublicKey::from_text(&present.public_key)?;
    let text = RenewRequest::signed_text(&request.serial, request.at, &request.addresses);
    if !key.verifies(&text, &request.signature) {
        return Err(
            EnrolError::Certificate("the signature is not of the certificate's key").into(),
        );
    }
    let row = EnrolmentRow {
        addresses: rules::updated_addresses(&row.addresses, &request.addresses)?,
        ..row
    };
    // Checked before taking the lock, to save it, and again while holding it.
    due(&mut connection, &present, now).await?;
    drop(connection);
    let (identity, seeds) = in_transaction!(state.store, tx => {
        // The machine may have been removed meanwhile.
        revision_lock(&mut tx).await?;
        let still = enrolment_get(&mut tx, &row.node).await?;
        if still.is_none_or(|still| still.removed_at.is_some() || still.id != row.id) {
            return Err(EnrolError::Certificate("the node was removed").into());
        }
        due(&mut tx, &present, now).await?;
        enrolment_upsert(&mut tx, &row).await?;
        let identity = issue(state, &mut tx, row.machine(), &row.addresses, &key, now).await?;
        let seeds = seeds(&mut tx, &row.cluster, &row.node).await?;
        let state_of = |serial: &str| Some(serde_json::json!({ "serial": serial }));
        let states = (state_of(&present.serial), state_of(&identity.serial));
        let node = actor.with_name(format!("{} {}", row.role.noun(), row.node));
        audit(&mut tx, &node, action(row.role, "node.renew", "dns.renew"), &row.node, states, now).await?;
        Ok::<_, Error>((identity, seeds))
    })?;
    info!(node = %row.node, serial = identity.serial, "a certificate was renewed");
    Ok(RenewResponse {
        identity,
        node_token: node_token(&state.token, &row).expose().to_owned(),
        seeds,
    })
}

/// Fails unless the machine's next certificate is due.
async fn due(
    connection: &mut AnyConnection,
    present: &CertificateRow,
    now: Timestamp,
) -> Result<(), Error> {
    let live = certificate_count(connection, &present.node, now).await?;
    let newest = certificate_newest(connection, &present.node).await?;
    Ok(rules::due(present, newest.as_ref(), live, now)?)
}

/// The addresses at which machines reach the controllers: those of the settings, else the port of this one, on the host that the machine has
/// used.
fn controllers(state: &State) -> Vec<String> {
    let edge = &state.settings.edge;
    if edge.controllers.is_empty() {
        let port = state.edge.port.load(Ordering::Relaxed);
        return vec![format!(":{port}")];
    }
    edge.controllers.clone()
}

/// The audit log's name of an action, by the machine's role.
const fn action(role: Role, node: &'static str, dns: &'static str) -> &'static str {
    match role {
        Role::Node => node,
        Role::Dns => dns,
    }
}

/// Other nodes of the cluster, by name.
async fn seeds(
    connection: &mut AnyConnection,
    cluster: &ClusterId,
    but: &NodeId,
) -> Result<Vec<Seed>, Error> {
    let others = enrolment_list_others(connection, cluster, but, SEEDS).await?;
    let seed = |row: EnrolmentRow| Seed {
        node: row.node,
        addresses: row.addresses,
    };
    Ok(others.into_iter().map(seed).collect())
}

/// Writes an audit log entry about a machine.
pub(super) async fn audit(
    connection: &mut AnyConnection,
    actor: &Actor,
    action: &'static str,
    node: &NodeId,
    (before, after): (Option<serde_json::Value>, Option<serde_json::Value>),
    now: Timestamp,
) -> Result<(), Error> {
    let entry = AuditEntry {
        at: now,
        actor: actor.clone(),
        tenant: None,
        action,
        subject: format!("node/{node}"),
        before: before.map(|before| before.to_string()),
        after: after.map(|after| after.to_string()),
    };
    Ok(audit_insert(connection, &entry).await?)
}
