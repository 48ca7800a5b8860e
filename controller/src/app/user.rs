//! Management of users by admins, and changes that users make to their own account.

use fdn_core::account::{
    ChangePassword, CreateUser, SessionInfo, SetPassword, UpdateUser, UserInfo,
};
use fdn_core::api::LoginRequest;
use fdn_core::{SessionId, Timestamp, UserName};
use serde_json::json;
use sqlx::AnyConnection;
use tracing::info;

use super::access::Person;
use super::actor::Actor;
use super::login::{address, hash_chosen, hash_unknown, recheck, verify_credentials};
use super::precondition::{Precondition, tag};
use crate::Error;
use crate::state::State;
use crate::store::api_token::api_token_revoke;
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::in_transaction;
use crate::store::invitation::{invitation_delete, invitation_end};
use crate::store::oidc::user_invite;
use crate::store::revision::revision_lock;
use crate::store::session::{session_delete, session_delete_others, session_list};
use crate::store::user::{
    UserRow, user_count_admins, user_get, user_insert, user_list, user_set_password, user_update,
};

pub(super) fn audit(
    actor: &Actor,
    user: &UserName,
    action: &'static str,
    now: Timestamp,
) -> AuditEntry {
    AuditEntry {
        at: now,
        actor: actor.clone(),
        tenant: None,
        action,
        subject: format!("user/{user}"),
        before: None,
        after: None,
    }
}

/// The error that nobody would be left who can assign roles.
pub(super) fn last_admin() -> Error {
    Error::LastOfItsKind(
        "this is the network's last admin; make somebody else an admin first (whoever was invited counts once a password is chosen)"
            .to_owned(),
    )
}

pub(super) async fn existing(
    connection: &mut AnyConnection,
    user: &UserName,
) -> Result<UserRow, Error> {
    let found = user_get(connection, user.as_str()).await?;
    found.ok_or_else(|| Error::no_user(user))
}

/// Creates a user.
///
/// # Errors
/// When the name is taken, the password is not acceptable or comes with `oidc`, or the store fails.
pub async fn create(state: &State, actor: &Actor, request: &CreateUser) -> Result<UserInfo, Error> {
    // Whoever chooses names at the identity provider could otherwise open an account that somebody has the password of.
    if request.oidc && !request.password.is_empty() {
        return Err(Error::BadRequest(
            "a user who logs in with the identity provider has no password here; send either oidc or password"
                .to_owned(),
        ));
    }
    let now = fdn_service::now();
    let hash = match request.oidc {
        true => hash_unknown(state).await?,
        false => hash_chosen(state, request.password.clone()).await?,
    };
    let row = UserRow::new(request.name.clone(), request.network_role, hash, now);
    in_transaction!(state.store, tx => {
        if !user_insert(&mut tx, &row).await? {
            return Err(Error::Conflict(format!("there is a user {} already", request.name)));
        }
        if request.oidc {
            user_invite(&mut tx, &request.name).await?;
        }
        let after = json!({ "network_role": request.network_role, "oidc": request.oidc }).to_string();
        let entry = AuditEntry { after: Some(after), ..audit(actor, &request.name, "user.create", now) };
        Ok(audit_insert(&mut tx, &entry).await?)
    })?;
    info!(user = %request.name, %actor, "a user was made");
    Ok(row.info)
}

/// At most `limit` users, by name, after `after`.
///
/// # Errors
/// When the store fails.
pub async fn list(state: &State, after: &str, limit: u32) -> Result<Vec<UserInfo>, Error> {
    let rows = user_list(&mut *state.store.read().await?, after, limit).await?;
    Ok(rows.into_iter().map(|row| row.info).collect())
}

/// Returns a user.
///
/// # Errors
/// When there is no such user or the store fails.
pub async fn get(state: &State, user: &UserName) -> Result<UserInfo, Error> {
    let row = existing(&mut *state.store.read().await?, user).await?;
    Ok(row.info)
}

/// Disables or enables a user, or changes the network role. A disabled user's sessions, API tokens and invitation end in the same transaction.
///
/// # Errors
/// When there is no such user, the precondition fails, no admin would be left, or the store fails.
pub async fn update(
    state: &State,
    actor: &Actor,
    user: &UserName,
    request: &UpdateUser,
    expected: &Precondition,
) -> Result<UserInfo, Error> {
    let now = fdn_service::now();
    let updated: UserInfo = in_transaction!(state.store, tx => {
        // The lock makes counting and changing admins one step across all controllers.
        revision_lock(&mut tx).await?;
        let old = existing(&mut tx, user).await?.info;
        expected.holds(&tag(old.generation))?;
        let disabled_at = match request.disabled {
            Some(true) => old.disabled_at.or(Some(now)),
            Some(false) => None,
            None => old.disabled_at,
        };
        let network_role = request.network_role.map_or(old.network_role, |role| role.role());
        let new = UserInfo { disabled_at, network_role, ..old.clone() };
        if new == old {
            return Ok(old);
        }
        user_update(&mut tx, &new).await?;
        if user_count_admins(&mut tx).await? == 0 {
            return Err(last_admin());
        }
        if disabled_at.is_some() {
            session_delete_others(&mut tx, user, None).await?;
            api_token_revoke(&mut tx, user, None, now).await?;
            invitation_end(&mut tx, user, now).await?;
        }
        let state = |info: &UserInfo| {
            json!({ "network_role": info.network_role, "disabled_at": info.disabled_at }).to_string()
        };
        let entry = AuditEntry {
            before: Some(state(&old)),
            after: Some(state(&new)),
            ..audit(actor, user, "user.update", now)
        };
        audit_insert(&mut tx, &entry).await?;
        Ok(existing(&mut tx, user).await?.info)
    })?;
    info!(%user, disabled = updated.disabled_at.is_some(), %actor, "a user was changed");
    Ok(updated)
}

/// Sets a user's password. The user's sessions and invitation end; API tokens stay valid.
///
/// # Errors
/// When there is no such user, the password is not acceptable, or the store fails.
pub async fn set_password(
    state: &State,
    actor: &Actor,
    user: &UserName,
    request: SetPassword,
) -> Result<(), Error> {
    write_password(state, actor, user, request.password, (None, None)).await
}

/// Changes the caller's own password. The caller's other sessions end.
///
/// # Errors
/// When the present password is wrong, the new one is not acceptable, there were too many failures, or the store fails.
pub async fn change_password(
    state: &State,
    actor: &Actor,
    person: &Person,
    change: ChangePassword,
) -> Result<(), Error> {
    let request = LoginRequest {
        user: person.name.to_string(),
        password: change.current,
    };
    let now = fdn_service::now();
    let (user, permit) = verify_credentials(state, request, address(actor), now).await?;
    // The new password needs one of its own.
    drop(permit);
    let session = person.credential.session();
    let shown = (session, Some(user.password_hash.as_str()));
    write_password(state, actor, &person.name, change.password, shown).await
}

/// Sets a password. The session `stays` does not end. If the user has shown the present password, whose hash was `verified`, it must not have been
/// changed since.
async fn write_password(
    state: &State,
    actor: &Actor,
    user: &UserName,
    password: String,
    (stays, verified): (Option<SessionId>, Option<&str>),
) -> Result<(), Error> {
    let now = fdn_service::now();
    let hash = hash_chosen(state, password).await?;
    in_transaction!(state.store, tx => {
        // Serializes this with creating and accepting an invitation, including what each does to sessions.
        revision_lock(&mut tx).await?;
        existing(&mut tx, user).await?;
        if verified.is_some() {
            recheck(&mut tx, user, verified).await?;
        }
        user_set_password(&mut tx, user, &hash, now).await?;
        session_delete_others(&mut tx, user, stays).await?;
        invitation_delete(&mut tx, user).await?;
        Ok::<_, Error>(audit_insert(&mut tx, &audit(actor, user, "user.password", now)).await?)
    })?;
    info!(%user, %actor, "a password was set");
    Ok(())
}

/// The person's own sessions, the last used first.
///
/// # Errors
/// When the store fails.
pub async fn sessions(state: &State, person: &Person) -> Result<Vec<SessionInfo>, Error> {
    let now = fdn_service::now();
    let rows = session_list(&mut *state.store.read().await?, &person.name, now).await?;
    let own = person.credential.session();
    let info = |row: crate::store::session::SessionRow| SessionInfo {
        id: row.id,
        kind: row.kind,
        created_at: row.created_at,
        expires_at: row.expires_at,
        last_used_at: row.last_used_at,
        address: row.address,
        current: own == Some(row.id),
    };
    Ok(rows.into_iter().map(info).collect())
}

/// Ends one of the person's own sessions.
///
/// # Errors
/// When there is no such session or the store fails.
pub async fn end_session(
    state: &State,
    actor: &Actor,
    person: &Person,
    id: SessionId,
) -> Result<(), Error> {
    let now = fdn_service::now();
    in_transaction!(state.store, tx => {
        let rows = session_list(&mut tx, &person.name, now).await?;
        let old = rows.iter().find(|row| row.id == id);
        if !session_delete(&mut tx, &person.name, id).await? {
            return Err(Error::NotFound {
                what: format!("session {id}"),
                hint: "GET /v1/sessions shows yours",
            });
        }
        let entry = AuditEntry {
            subject: format!("session/{id}"),
            before: old.map(|row| json!({ "kind": row.kind, "expires_at": row.expires_at }).to_string()),
            ..audit(actor, &person.name, "logout", now)
        };
        Ok(audit_insert(&mut tx, &entry).await?)
    })
}
