//! Login with a password, sessions, and the first user.

mod password;
mod throttle;

use std::net::IpAddr;

use fdn_core::account::SessionKind;
use fdn_core::api::LoginRequest;
use fdn_core::{NetworkRole, SessionId, TenantRole, Timestamp, UserName};
use fdn_service::secret::{self, Secret};
use sqlx::AnyConnection;
use tokio::sync::OwnedSemaphorePermit;
use tracing::{info, warn};

pub use password::{hash_chosen, hash_password, hash_unknown};
pub use throttle::Logins;

use super::access::token_hash;
use super::actor::Actor;
use super::authority::later;
use crate::Error;
use crate::state::State;
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::revision::revision_lock;
use crate::store::session::{SessionRow, session_insert, session_trim};
use crate::store::tenant::member_upsert;
use crate::store::user::{UserRow, user_count, user_get, user_insert};
use crate::store::{DEFAULT_TENANT, in_transaction};
use password::{INPUT_MAX, check, hashing_permit, random_password};

/// The error of a login. It does not tell what is wrong.
fn wrong() -> Error {
    Error::Unauthenticated("user or password is wrong")
}

/// A new session.
pub struct NewSession {
    /// The secret by which the client authenticates.
    pub secret: Secret,
    /// The row to be stored.
    pub session: SessionRow,
}

/// Checks name and password, and counts failures. Returns the permit with which the password was hashed as well.
///
/// # Errors
/// When they are wrong, there were too many failures, or the store fails.
pub(super) async fn verify_credentials(
    state: &State,
    request: LoginRequest,
    address: IpAddr,
    now: Timestamp,
) -> Result<(UserRow, OwnedSemaphorePermit), Error> {
    let LoginRequest {
        user: name,
        password,
    } = request;
    if name.len() > INPUT_MAX || password.len() > INPUT_MAX {
        return Err(Error::BadRequest(format!(
            "user and password have {INPUT_MAX} bytes at most"
        )));
    }
    check_throttle(state, &name, address, now)?;
    let mut connection = state.store.read().await?;
    let found = user_get(&mut connection, &name).await?;
    drop(connection);
    // Nobody learns whether the password of a disabled user was right.
    let found = found.filter(|user| user.info.disabled_at.is_none());
    let permit = hashing_permit(state).await?;
    // Those who had their turn meanwhile may have failed. The permit is kept until this one is counted: of any number of guesses at once, no more
    // than there are permits get by.
    check_throttle(state, &name, address, fdn_service::now())?;
    let (user, permit) = check(permit, found, password).await?;
    let Some(user) = user else {
        failed(state, &name, address, fdn_service::now());
        return Err(wrong());
    };
    succeeded(state, &name, address);
    Ok((user, permit))
}

fn count(state: &State, result: &str) {
    state.metrics.logins.with_label_values(&[result]).inc();
}

/// Checks that a login as this user may be tried now, by a password or an invitation.
///
/// # Errors
/// With the time to wait, when there were too many failures.
pub(super) fn check_throttle(
    state: &State,
    user: &str,
    address: IpAddr,
    now: Timestamp,
) -> Result<(), Error> {
    let after = state.logins.wait(user, address, now);
    if after.is_zero() {
        return Ok(());
    }
    count(state, "throttled");
    let what = "too many failed logins";
    Err(Error::TooMany { what, after })
}

/// Counts a failed login.
pub(super) fn failed(state: &State, user: &str, address: IpAddr, now: Timestamp) {
    state.logins.failed(user, address, now);
    count(state, "wrong");
    warn!(%address, "a login failed");
}

/// Counts a successful login, and resets the failures of its user, there and elsewhere.
pub(super) fn succeeded(state: &State, user: &str, address: IpAddr) {
    state.logins.succeeded(user, address);
    count(state, "ok");
}

/// The client address of a login. A connection without an address comes from this process itself.
pub(super) fn address(actor: &Actor) -> IpAddr {
    actor.address.unwrap_or(IpAddr::from([127, 0, 0, 1]))
}

/// Exchanges name and password for a session.
///
/// # Errors
/// When they are wrong, there were too many failures, or the store fails.
pub async fn login(
    state: &State,
    request: LoginRequest,
    kind: SessionKind,
    actor: &Actor,
) -> Result<NewSession, Error> {
    let now = fdn_service::now();
    // Kept until the session is stored: of any number of logins, no more than there are permits wait for the store with a connection each.
    let (user, _permit) = verify_credentials(state, request, address(actor), now).await?;
    let who = (&user.info.name, Some(user.password_hash.as_str()));
    begin_session(state, who, kind, actor, now).await
}

/// A session of an authenticated user. It is valid once it is stored.
pub(super) fn new_session(
    state: &State,
    user: &UserName,
    kind: SessionKind,
    actor: &Actor,
    now: Timestamp,
) -> Result<NewSession, Error> {
    let settings = &state.settings.accounts;
    let lifetime = match kind {
        SessionKind::Bearer => settings.token_lifetime,
        SessionKind::Cookie => settings.console_lifetime,
    };
    let secret = Secret::random()?;
    let session = SessionRow {
        id: SessionId::from_uuid(uuid::Uuid::now_v7()),
        hash: token_hash(secret.expose()),
        user: user.clone(),
        kind,
        created_at: now,
        expires_at: later(now, lifetime.as_millis()),
        last_used_at: now,
        address: actor.address.map(|address| address.to_string()),
    };
    Ok(NewSession { secret, session })
}

/// Checks a user again who was authenticated a while ago: the user may have been disabled, or the password whose hash was `verified` changed. The
/// caller holds the lock of [`revision_lock`], which those changes take as well.
///
/// # Errors
/// When the user or the password does not count any more, or the store fails.
pub(super) async fn recheck(
    connection: &mut AnyConnection,
    user: &UserName,
    verified: Option<&str>,
) -> Result<(), Error> {
    let found = user_get(connection, user.as_str()).await?;
    let counts = found.is_some_and(|user| {
        user.info.disabled_at.is_none() && verified.is_none_or(|hash| hash == user.password_hash)
    });
    if counts { Ok(()) } else { Err(wrong()) }
}

/// Stores a new session of a user who is checked again ([`recheck`]); the least recently used ones of its user make room.
///
/// # Errors
/// When the user or the password does not count any more, or the store fails.
pub(super) async fn keep_session(
    state: &State,
    connection: &mut AnyConnection,
    session: &SessionRow,
    verified: Option<&str>,
) -> Result<(), Error> {
    recheck(&mut *connection, &session.user, verified).await?;
    let keep = state.settings.accounts.tokens_per_user.saturating_sub(1);
    session_trim(connection, &session.user, keep, session.created_at).await?;
    Ok(session_insert(connection, session).await?)
}

/// Creates and stores a session of a user who was authenticated: by the password that has the hash given, if by one.
///
/// # Errors
/// When the user was disabled or the password changed meanwhile, or the store fails.
pub(super) async fn begin_session(
    state: &State,
    (user, verified): (&UserName, Option<&str>),
    kind: SessionKind,
    actor: &Actor,
    now: Timestamp,
) -> Result<NewSession, Error> {
    let begun = new_session(state, user, kind, actor, now)?;
    let session = &begun.session;
    let entry = AuditEntry {
        at: now,
        actor: actor.with_name(session.user.as_str()),
        tenant: None,
        action: "login",
        subject: format!("session/{}", session.id),
        before: None,
        after: Some(
            serde_json::json!({ "kind": kind, "expires_at": session.expires_at }).to_string(),
        ),
    };
    in_transaction!(state.store, tx => {
        // The lock of whatever ends all sessions of a user: this one begins before that, and is ended too, or does not begin.
        revision_lock(&mut tx).await?;
        keep_session(state, &mut tx, session, verified).await?;
        Ok::<_, Error>(audit_insert(&mut tx, &entry).await?)
    })?;
    Ok(begun)
}

/// Creates the first user if there is none: an admin of the network who owns the default tenant. Returns the password if it was generated here
/// and is in no file.
///
/// # Errors
/// When the store or the password file fails.
pub async fn first_user(state: &State) -> Result<Option<Secret>, Error> {
    let mut connection = state.store.read().await?;
    if user_count(&mut connection).await? > 0 {
        return Ok(None);
    }
    drop(connection);
    let settings = &state.settings.accounts;
    let made = random_password()?;
    let (password, given) = match &settings.initial_password_file {
        Some(path) if !secret::write_new(path, &made)? => (secret::read(path)?, true),
        _ => (made, false),
    };
    let hash = hash_password(password.expose())?;
    let now = fdn_service::now();
    let user = UserRow::new(settings.admin.parse()?, Some(NetworkRole::Admin), hash, now);
    let name = &user.info.name;
    let actor = Actor::network();
    let entry = AuditEntry {
        at: now,
        actor: actor.clone(),
        tenant: None,
        action: "user.create",
        subject: format!("user/{name}"),
        before: None,
        after: Some(serde_json::json!({ "network_role": NetworkRole::Admin }).to_string()),
    };
    let inserted: bool = in_transaction!(state.store, tx => {
        let inserted = user_insert(&mut tx, &user).await?;
        if inserted {
            member_upsert(&mut tx, DEFAULT_TENANT, name, TenantRole::Owner, (&actor.name, now)).await?;
            audit_insert(&mut tx, &entry).await?;
        }
        Ok::<_, Error>(inserted)
    })?;
    info!(user = %name, "the first user was made");
    // Another controller may have been faster; then this password is not used.
    Ok((inserted && !given).then_some(password))
}
