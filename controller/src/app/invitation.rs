//! Invitations: an admin creates one for a user without a password, and the user chooses the password when accepting it.
//!
//! An invited user exists at once (and is a member of tenants, if an admin adds them) but cannot log in: the password is one that nobody knows.
//! The invitation is kept, expired or not, until a password is set, so that it is known who may be invited again: a mistyped name must not hand
//! over the account of a user who has a password. Accepting counts as a login, and is throttled like one.

use fdn_core::account::UserInfo;
use fdn_core::invitation::{
    AcceptInvitation, CreatedInvitation, Invitation, InvitationInfo, InviteUser,
};
use fdn_core::{Coded, DurationMs, ErrorCode, Timestamp, UserName};
use fdn_service::secret::Secret;
use serde_json::json;
use sqlx::AnyConnection;
use tracing::info;

use super::access::token_hash;
use super::actor::Actor;
use super::authority::later;
use super::login::{
    NewSession, address, check_throttle, failed, hash_chosen, hash_unknown, keep_session,
    new_session, succeeded,
};
use super::user;
use crate::Error;
use crate::state::State;
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::in_transaction;
use crate::store::invitation::{
    InvitationRow, InvitedUser, invitation_get, invitation_put, invitation_take,
};
use crate::store::oidc::user_is_of_provider;
use crate::store::revision::revision_lock;
use crate::store::session::session_delete_others;
use crate::store::user::{UserRow, user_insert, user_set_password};

/// Why an invitation is not accepted. Each message says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvitationError {
    /// There is no such invitation, it was used or replaced by a newer one, or its user has a password, is disabled or deleted.
    #[error(
        "the invitation is not known here: it was used already, or a newer one took its place; log in with the password that was chosen, \
         or ask the network's administrator for another invitation"
    )]
    Unknown,
    /// The invitation has expired.
    #[error("the invitation ended {ago} ago; ask {by} for another one (fdn user invite {user})")]
    Expired {
        /// The time since it expired.
        ago: DurationMs,
        /// The user who created it.
        by: String,
        /// The invited user.
        user: UserName,
    },
}

impl Coded for InvitationError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Unknown => ErrorCode::InvitationUnknown,
            Self::Expired { .. } => ErrorCode::InvitationExpired,
        }
    }
}

/// Invites a user, who is created if there is none of this name. An earlier invitation is replaced.
///
/// # Errors
/// When the time to live is out of bounds, the user has a password, logs in with the identity provider, is disabled or has another role, or the
/// store fails.
pub async fn create(
    state: &State,
    actor: &Actor,
    request: &InviteUser,
) -> Result<CreatedInvitation, Error> {
    let (ttl, ttl_max) = (request.ttl, state.settings.accounts.invitation_ttl_max);
    if ttl.as_millis() < 1000 || ttl > ttl_max {
        return Err(Error::BadRequest(format!(
            "ttl: an invitation lives from 1s to {ttl_max}, not {ttl}"
        )));
    }
    let (now, name) = (fdn_service::now(), &request.name);
    let token = Invitation::new(name.clone(), Secret::random()?.expose())?;
    let fresh = UserRow::new(
        name.clone(),
        request.network_role,
        hash_unknown(state).await?,
        now,
    );
    let info = InvitationInfo {
        user: name.clone(),
        created_at: now,
        created_by: actor.to_string(),
        expires_at: later(now, ttl.as_millis()),
    };
    let row = InvitationRow {
        info: info.clone(),
        hash: token_hash(token.secret()),
    };
    in_transaction!(state.store, tx => {
        // The lock makes checking and writing one step across all controllers.
        revision_lock(&mut tx).await?;
        let made = user_insert(&mut tx, &fresh).await?;
        let role = match made {
            true => request.network_role,
            false => invited_before(&mut tx, request).await?.network_role,
        };
        invitation_put(&mut tx, &row).await?;
        let after = json!({ "network_role": role, "new_user": made, "expires_at": info.expires_at });
        let entry = AuditEntry {
            after: Some(after.to_string()),
            ..user::audit(actor, name, "invitation.create", now)
        };
        Ok::<_, Error>(audit_insert(&mut tx, &entry).await?)
    })?;
    info!(user = %name, %actor, "a user was invited");
    Ok(CreatedInvitation {
        token: token.expose(),
        info,
    })
}

/// Returns an existing user if they may be invited again.
async fn invited_before(
    connection: &mut AnyConnection,
    request: &InviteUser,
) -> Result<UserInfo, Error> {
    let name = &request.name;
    let info = user::existing(connection, name).await?.info;
    let conflict = |text: String| Err(Error::Conflict(text));
    if user_is_of_provider(connection, name).await? {
        return conflict(format!(
            "{name} logs in with the identity provider, and has no password to choose"
        ));
    }
    if info.invited_until.is_none() {
        return conflict(format!(
            "there is a user {name} already, who has a password; `fdn user password {name}` sets another one"
        ));
    }
    if info.disabled_at.is_some() {
        return conflict(format!(
            "user {name} is disabled; `fdn user enable {name}` comes first"
        ));
    }
    if request.network_role.is_some() && request.network_role != info.network_role {
        return conflict(format!(
            "user {name} is there with another role in the network; `fdn user role {name} ROLE` changes it"
        ));
    }
    Ok(info)
}

/// Accepts an invitation: sets the user's password, and starts a session.
///
/// # Errors
/// When the invitation is not valid, there were too many failures, the password is not acceptable (the invitation stays valid then), or the store
/// fails.
pub async fn accept(
    state: &State,
    request: AcceptInvitation,
    actor: &Actor,
) -> Result<NewSession, Error> {
    let AcceptInvitation {
        token,
        password,
        kind,
    } = request;
    let token: Invitation = token.parse()?;
    let (now, from, user) = (fdn_service::now(), address(actor), token.user());
    check_throttle(state, user.as_str(), from, now)?;
    let hash = token_hash(token.secret());
    let found = invitation_get(&mut *state.store.read().await?, user).await?;
    if let Err(error) = check(found.as_ref(), &hash, now) {
        if error == InvitationError::Unknown {
            failed(state, user.as_str(), from, now);
        }
        return Err(error.into());
    }
    let password = hash_chosen(state, password).await?;
    let begun = new_session(state, user, kind, actor, now)?;
    let session = &begun.session;
    let after =
        json!({ "session": session.id, "kind": kind, "session_expires_at": session.expires_at });
    let entry = AuditEntry {
        after: Some(after.to_string()),
        ..user::audit(
            &actor.with_name(user.as_str()),
            user,
            "invitation.accept",
            now,
        )
    };
    in_transaction!(state.store, tx => {
        // The same lock as for inviting: no invitation is accepted while it is being replaced.
        revision_lock(&mut tx).await?;
        if !invitation_take(&mut tx, user, &hash, now).await? {
            return Err(InvitationError::Unknown.into());
        }
        user_set_password(&mut tx, user, &password, now).await?;
        session_delete_others(&mut tx, user, None).await?;
        keep_session(state, &mut tx, session, None).await?;
        Ok::<_, Error>(audit_insert(&mut tx, &entry).await?)
    })?;
    succeeded(state, user.as_str(), from);
    info!(%user, "an invitation was accepted");
    Ok(begun)
}

/// Checks an invitation against the hash of the secret shown. Only a holder of the secret learns that it has expired.
fn check(found: Option<&InvitedUser>, hash: &str, now: Timestamp) -> Result<(), InvitationError> {
    // Both are hashes: the time of the comparison reveals nothing about the secret.
    let known = found.filter(|one| one.row.hash == hash && one.disabled_at.is_none());
    let Some(InvitedUser { row, .. }) = known else {
        return Err(InvitationError::Unknown);
    };
    if now < row.info.expires_at {
        return Ok(());
    }
    Err(InvitationError::Expired {
        ago: rounded(now.since(row.info.expires_at).as_secs()),
        by: row.info.created_by.clone(),
        user: row.info.user.clone(),
    })
}

/// Rounds a duration down to the largest unit of which it has at least two.
const fn rounded(seconds: u64) -> DurationMs {
    let unit = match seconds {
        0..120 => 1,
        120..7200 => 60,
        _ => 3600,
    };
    DurationMs::from_secs(seconds / unit * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000_000);

    fn invited(expires_at: u64, disabled_at: Option<Timestamp>) -> InvitedUser {
        InvitedUser {
            row: InvitationRow {
                info: InvitationInfo {
                    user: "ann".parse().expect("a name"),
                    created_at: Timestamp(1),
                    created_by: "admin".to_owned(),
                    expires_at: Timestamp(expires_at),
                },
                hash: "right".to_owned(),
            },
            disabled_at,
        }
    }

    #[test]
    fn an_invitation_is_good_until_it_ends() {
        let open = invited(NOW.get() + 1, None);
        assert_eq!(check(Some(&open), "right", NOW), Ok(()));
        let over = invited(NOW.get() - 7_300_000, None);
        let error = check(Some(&over), "right", NOW).expect_err("over");
        assert_eq!(error.code(), ErrorCode::InvitationExpired);
        let text = error.to_string();
        assert!(
            text.contains("ended 2h ago") && text.contains("ask admin"),
            "{text}"
        );
    }

    #[test]
    fn nobody_without_the_secret_learns_how_an_invitation_stands() {
        let open = invited(NOW.get() + 1, None);
        let over = invited(NOW.get(), None);
        let disabled = invited(NOW.get() + 1, Some(Timestamp(2)));
        for (found, hash) in [
            (Some(&open), "wrong"),
            (Some(&over), "wrong"),
            (Some(&disabled), "right"),
            (None, "right"),
        ] {
            assert_eq!(check(found, hash, NOW), Err(InvitationError::Unknown));
        }
    }

    #[test]
    fn spans_are_told_in_a_unit_that_people_use() {
        for (seconds, words) in [(0, "0s"), (119, "119s"), (121, "2m"), (90_061, "25h")] {
            assert_eq!(rounded(seconds).to_string(), words);
        }
    }
}
