//! Passwords: argon2id (RFC 9106), checked and hashed a few at a time.

use std::sync::Arc;
use std::time::Duration;

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use fdn_service::secret::{self, Secret};
use tokio::sync::OwnedSemaphorePermit;

use crate::Error;
use crate::state::State;
use crate::store::user::UserRow;

/// The longest time a login waits for its turn to have the password checked.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest user name and password, in bytes.
pub(super) const INPUT_MAX: usize = 1024;
/// Letters and digits that are not mistaken for each other, 32 of them: 5 bits each.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// The length of a generated password, in characters: 120 bits.
const PASSWORD_LEN: usize = 24;

/// The argon2id hash of a password, as a PHC string.
///
/// # Errors
/// When the password cannot be hashed, or the operating system provides no randomness.
pub fn hash_password(password: &str) -> Result<String, Error> {
    let salt: [u8; 16] = secret::random_bytes()?;
    let hash: PasswordHash = Argon2::default()
        .hash_password_with_salt(password.as_bytes(), &salt)
        .map_err(|e| Error::Internal(format!("the password cannot be hashed: {e}")))?;
    Ok(hash.to_string())
}

pub(super) fn password_fits(password: &str, hash: &str) -> bool {
    PasswordHash::new(hash).is_ok_and(|hash| {
        Argon2::default()
            .verify_password(password.as_bytes(), &hash)
            .is_ok()
    })
}

/// The hash of a password that a user chose.
///
/// # Errors
/// When it is too short or too long, too many are hashed at once, or the operating system provides no randomness.
pub async fn hash_chosen(state: &State, password: String) -> Result<String, Error> {
    let least = state.settings.accounts.password_min;
    let length = password.chars().count();
    if length < least {
        return Err(Error::Password(format!(
            "a password has at least {least} characters, this one has {length}"
        )));
    }
    if password.len() > INPUT_MAX {
        return Err(Error::Password(format!(
            "a password has {INPUT_MAX} bytes at most"
        )));
    }
    hash_with_permit(state, password).await
}

/// The hash of a random password that nobody knows, for a user who has no password.
///
/// # Errors
/// When too many are hashed at once, or the operating system provides no randomness.
pub async fn hash_unknown(state: &State) -> Result<String, Error> {
    hash_with_permit(state, random_password()?.expose().to_owned()).await
}

async fn hash_with_permit(state: &State, password: String) -> Result<String, Error> {
    let permit = hashing_permit(state).await?;
    let hashed = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        hash_password(&password)
    });
    hashed
        .await
        .map_err(|e| Error::Internal(format!("the password could not be hashed: {e}")))?
}

/// Waits for a turn to hash a password: each takes 19 MiB of memory.
pub(super) async fn hashing_permit(state: &State) -> Result<OwnedSemaphorePermit, Error> {
    let too_many = || Error::TooMany {
        what: "too many logins at once",
        after: Duration::from_secs(1),
    };
    tokio::time::timeout(
        PERMIT_TIMEOUT,
        Arc::clone(&state.logins.hashing_permits).acquire_owned(),
    )
    .await
    .map_err(|_| too_many())?
    .map_err(|_| too_many())
}

/// Checks a password in its turn, and returns the permit, too. A missing user takes the same time as an existing one.
pub(super) async fn check(
    permit: OwnedSemaphorePermit,
    user: Option<UserRow>,
    password: String,
) -> Result<(Option<UserRow>, OwnedSemaphorePermit), Error> {
    let checked = tokio::task::spawn_blocking(move || {
        let fits = match user {
            Some(user) => password_fits(&password, &user.password_hash).then_some(user),
            None => {
                // Done for the time it takes; the result is not needed.
                drop(hash_password(&password));
                None
            }
        };
        (fits, permit)
    });
    checked
        .await
        .map_err(|e| Error::Internal(format!("the password could not be checked: {e}")))
}

pub(crate) fn random_password() -> Result<Secret, Error> {
    let bytes: [u8; PASSWORD_LEN] = secret::random_bytes()?;
    Ok(Secret::new(
        bytes
            .iter()
            .map(|b| char::from(ALPHABET[usize::from(b % 32)]))
            .collect::<String>(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_password_fits_its_hash() {
        let password = random_password().expect("random");
        assert_eq!(password.expose().len(), PASSWORD_LEN);
        let hash = hash_password(password.expose()).expect("hashed");
        assert!(hash.starts_with("$argon2id$"), "{hash}");
        assert!(password_fits(password.expose(), &hash));
        assert!(!password_fits("other", &hash) && !password_fits(password.expose(), "no hash"));
    }
}
