//! Join tokens, by which machines join a cluster.

use fdn_core::enrol::JoinToken;
use fdn_core::fleet::{CreateJoinToken, CreatedJoinToken, JoinTokenInfo};
use fdn_core::{JoinTokenId, Timestamp};
use fdn_service::secret::Secret;
use tracing::info;

use super::access::token_hash;
use super::actor::Actor;
use super::authority::later;
use crate::Error;
use crate::state::State;
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::cluster::{ClusterRow, cluster_create, cluster_get};
use crate::store::in_transaction;
use crate::store::join_token::{
    JoinTokenRow, join_token_count, join_token_insert, join_token_list, join_token_revoke,
};
use crate::store::revision::revision_lock;

/// Creates a token. A cluster that was known only from reports of its nodes is kept permanently from now on.
///
/// # Errors
/// When there is no such cluster, a limit is exceeded, or the store fails.
pub async fn create(
    state: &State,
    actor: &Actor,
    request: &CreateJoinToken,
    now: Timestamp,
) -> Result<CreatedJoinToken, Error> {
    let bounds = &state.settings.enrolment;
    let (ttl, ttl_max) = (request.ttl, bounds.token_ttl_max);
    if ttl.as_millis() < 1000 || ttl > ttl_max {
        return Err(Error::BadRequest(format!(
            "ttl: a join token lives from 1s to {ttl_max}, not {ttl}"
        )));
    }
    if request.uses == 0 || request.uses > bounds.token_uses_max {
        return Err(Error::BadRequest(format!(
            "uses: a join token lets in from 1 to {} machines, not {}",
            bounds.token_uses_max, request.uses
        )));
    }
    let id = JoinTokenId::from_uuid(uuid::Uuid::now_v7());
    let token = JoinToken::new(id, Secret::random()?.expose())?.with_authority(state.authority);
    let info: JoinTokenInfo = in_transaction!(state.store, tx => {
        // The lock makes counting and inserting one step across all controllers.
        revision_lock(&mut tx).await?;
        let cluster = cluster_get(&mut tx, &request.cluster)
            .await?
            .ok_or_else(|| Error::no_cluster(&request.cluster))?;
        if join_token_count(&mut tx, now).await? >= bounds.tokens_max {
            return Err(Error::Conflict(format!(
                "there are {} join tokens that can be used; revoke some: fdn node token --list", bounds.tokens_max
            )));
        }
        let info = JoinTokenInfo {
            id,
            role: request.role,
            cluster: cluster.id.clone(),
            region: cluster.region.clone(),
            uses: request.uses,
            uses_left: request.uses,
            created_at: now,
            created_by: actor.to_string(),
            expires_at: later(now, ttl.as_millis()),
            revoked_at: None,
        };
        cluster_create(&mut tx, &ClusterRow { created_by: Some(actor.to_string()), ..cluster }, now).await?;
        let row = JoinTokenRow { info: info.clone(), hash: token_hash(token.secret()) };
        join_token_insert(&mut tx, &row).await?;
        audit_insert(&mut tx, &audit(actor, "join-token.create", &info, now)).await?;
        Ok(info)
    })?;
    info!(id = %info.id, cluster = %info.cluster, uses = info.uses, %actor, "a join token was made");
    Ok(CreatedJoinToken {
        token: token.expose(),
        info,
    })
}

/// All tokens, newest first.
///
/// # Errors
/// When the store fails.
pub async fn list(state: &State) -> Result<Vec<JoinTokenInfo>, Error> {
    let rows = join_token_list(&mut *state.store.read().await?).await?;
    Ok(rows.into_iter().map(|row| row.info).collect())
}

/// Revokes a token. Revoking it again changes nothing.
///
/// # Errors
/// When there is no such token or the store fails.
pub async fn revoke(
    state: &State,
    actor: &Actor,
    id: JoinTokenId,
    now: Timestamp,
) -> Result<(), Error> {
    let done: bool = in_transaction!(state.store, tx => {
        let rows = join_token_list(&mut tx).await?;
        let row = rows.into_iter().find(|row| row.info.id == id);
        let info = row.map(|row| row.info).ok_or_else(|| Error::NotFound {
            what: format!("join token {id}"),
            hint: "`fdn node token --list` shows what exists",
        })?;
        let done = join_token_revoke(&mut tx, id, now).await?;
        if done {
            audit_insert(&mut tx, &audit(actor, "join-token.revoke", &info, now)).await?;
        }
        Ok::<_, Error>(done)
    })?;
    if done {
        info!(%id, %actor, "a join token was taken back");
    }
    Ok(())
}

fn audit(actor: &Actor, action: &'static str, info: &JoinTokenInfo, now: Timestamp) -> AuditEntry {
    let state = serde_json::json!({
        "role": info.role, "cluster": info.cluster, "uses": info.uses, "expires_at": info.expires_at,
    });
    let made = action == "join-token.create";
    AuditEntry {
        at: now,
        actor: actor.clone(),
        tenant: None,
        action,
        subject: format!("join-token/{}", info.id),
        before: (!made).then(|| state.to_string()),
        after: made.then(|| state.to_string()),
    }
}
