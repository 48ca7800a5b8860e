//! API tokens, which users create for their tools.

use fdn_core::account::{ApiTokenInfo, CreateApiToken, CreatedApiToken};
use fdn_core::{ApiTokenId, Right, TenantId, Timestamp, UserName};
use fdn_service::secret::Secret;
use tracing::info;

use super::access::{Person, token_hash};
use super::actor::Actor;
use super::authority::later;
use crate::Error;
use crate::state::State;
use crate::store::api_token::{
    ApiTokenRow, api_token_count, api_token_insert, api_token_list, api_token_revoke,
    api_token_trim,
};
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::in_transaction;
use crate::store::revision::revision_lock;
use crate::store::user::user_get;

/// How long a token is still listed after its end: 30 days.
const REMEMBERED_MS: u64 = 30 * 86_400_000;

/// Creates a token. `tenant` is the only one in which it is valid, if given; the caller of this function has checked it.
///
/// # Errors
/// When a limit is exceeded, a scope is not available to tokens, the person was disabled meanwhile, or the store fails.
pub async fn create(
    state: &State,
    actor: &Actor,
    person: &Person,
    request: &CreateApiToken,
    tenant: Option<TenantId>,
) -> Result<CreatedApiToken, Error> {
    check(state, request)?;
    let now = fdn_service::now();
    let most = state.settings.accounts.api_tokens_per_user;
    let secret = Secret::random()?;
    let info = ApiTokenInfo {
        id: ApiTokenId::from_uuid(uuid::Uuid::now_v7()),
        name: request.name.clone(),
        user: person.name.clone(),
        scopes: request.scopes.clone(),
        tenant,
        created_at: now,
        expires_at: later(now, request.ttl.as_millis()),
        last_used_at: None,
        revoked_at: None,
    };
    let row = ApiTokenRow {
        info: info.clone(),
        hash: token_hash(secret.expose()),
    };
    in_transaction!(state.store, tx => {
        // The lock makes counting and inserting one step across all controllers. Disabling a user takes it too: a token that was left behind would
        // count again as soon as the user does.
        revision_lock(&mut tx).await?;
        let user = user_get(&mut tx, person.name.as_str()).await?;
        if user.is_none_or(|user| user.info.disabled_at.is_some()) {
            return Err(Error::Unauthenticated("the user is disabled"));
        }
        api_token_trim(&mut tx, Timestamp(now.get().saturating_sub(REMEMBERED_MS))).await?;
        if api_token_count(&mut tx, &person.name, now).await? >= most {
            return Err(Error::Conflict(format!(
                "you have {most} API tokens that count; revoke some: fdn token list, fdn token revoke"
            )));
        }
        api_token_insert(&mut tx, &row).await?;
        Ok(audit_insert(&mut tx, &audit(actor, "token.create", &info, now)).await?)
    })?;
    info!(id = %info.id, %actor, "an API token was made");
    Ok(CreatedApiToken {
        token: format!("{}_{}", info.id, secret.expose()),
        info,
    })
}

fn check(state: &State, request: &CreateApiToken) -> Result<(), Error> {
    let ttl_max = state.settings.accounts.api_token_ttl_max;
    let bad = |text: String| Err(Error::BadRequest(text));
    let length = request.name.chars().count();
    if !(1..=63).contains(&length) || request.name.chars().any(char::is_control) {
        return bad("name: 1 to 63 characters that can be printed".to_owned());
    }
    if request.ttl.as_millis() < 1000 || request.ttl > ttl_max {
        return bad(format!(
            "ttl: an API token lives from 1s to {ttl_max}, not {}",
            request.ttl
        ));
    }
    if request.scopes.is_empty() {
        return bad("scopes: name what the token may do, such as look or deploy".to_owned());
    }
    match request.scopes.iter().find(|right| !right.for_tokens()) {
        Some(right) => bad(format!("scopes: no API token can have the right {right}")),
        None => Ok(()),
    }
}

/// A person's own tokens, newest first, after `after`.
///
/// # Errors
/// When the store fails.
pub async fn list(
    state: &State,
    person: &Person,
    after: &str,
    limit: u32,
) -> Result<Vec<ApiTokenInfo>, Error> {
    let rows = api_token_list(&mut *state.store.read().await?, &person.name, after, limit).await?;
    Ok(rows.into_iter().map(|row| row.info).collect())
}

/// Revokes one of a person's own tokens. Revoking it again changes nothing.
///
/// # Errors
/// When there is no such token or the store fails.
pub async fn revoke(
    state: &State,
    actor: &Actor,
    person: &Person,
    id: ApiTokenId,
) -> Result<(), Error> {
    let now = fdn_service::now();
    in_transaction!(state.store, tx => {
        let info = own(&mut tx, &person.name, id).await?;
        if api_token_revoke(&mut tx, &person.name, Some(id), now).await? > 0 {
            audit_insert(&mut tx, &audit(actor, "token.revoke", &info, now)).await?;
        }
        Ok::<_, Error>(())
    })
}

async fn own(
    connection: &mut sqlx::AnyConnection,
    user: &UserName,
    id: ApiTokenId,
) -> Result<ApiTokenInfo, Error> {
    let found = crate::store::api_token::api_token_find(connection, id).await?;
    found
        .map(|(row, _)| row.info)
        .filter(|info| info.user == *user)
        .ok_or_else(|| Error::NotFound {
            what: format!("API token {id}"),
            hint: "`fdn token list` shows yours",
        })
}

fn audit(actor: &Actor, action: &'static str, info: &ApiTokenInfo, now: Timestamp) -> AuditEntry {
    let scopes: Vec<Right> = info.scopes.iter().copied().collect();
    let state = serde_json::json!({
        "name": info.name, "scopes": scopes, "expires_at": info.expires_at,
    });
    let made = action == "token.create";
    AuditEntry {
        at: now,
        actor: actor.clone(),
        tenant: info.tenant,
        action,
        subject: format!("token/{}", info.id),
        before: (!made).then(|| state.to_string()),
        after: made.then(|| state.to_string()),
    }
}
