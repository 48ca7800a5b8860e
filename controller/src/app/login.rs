//! Passwords (argon2id, RFC 9106) and logins, throttled by user and by address.
//!
//! After `login_attempts` failures each further one doubles the wait. An address may be kept out for the whole window; a user no longer than
//! half a minute, so that nobody can lock somebody else out for long. The memory of failures is bounded.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use fdn_core::Timestamp;
use fdn_core::api::{LoginRequest, LoginResponse};
use fdn_service::secret::{self, Secret};
use tokio::sync::Semaphore;
use tracing::{info, warn};

use super::access::{Role, token_hash};
use crate::Error;
use crate::settings::AccountSettings;
use crate::state::{State, lock};
use crate::store::account::{User, token_insert, token_trim, user_count, user_get, user_insert};
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::in_transaction;

/// The longest wait for a user, whatever the address.
const USER_WAIT_MAX: Duration = Duration::from_secs(30);
/// How long a login may wait for its turn to have the password checked.
const TURN: Duration = Duration::from_secs(5);
/// Longer names and passwords are nobody's.
const INPUT_MAX: usize = 1024;
/// Letters and digits that are not mistaken for each other, 32 of them: 5 bits each.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// Characters of a password made here: 120 bits.
const PASSWORD_LEN: usize = 24;

/// Failed logins.
pub struct Logins {
    failures: Mutex<BTreeMap<Key, Failures>>,
    settings: AccountSettings,
    turns: Arc<Semaphore>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Address(IpAddr),
    User(String),
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last: Timestamp,
}

impl Logins {
    /// With nothing remembered.
    #[must_use]
    pub fn new(settings: &AccountSettings) -> Self {
        Self {
            failures: Mutex::new(BTreeMap::new()),
            settings: settings.clone(),
            turns: Arc::new(Semaphore::new(settings.login_parallel)),
        }
    }

    fn keys(user: &str, address: IpAddr) -> [Key; 2] {
        [Key::Address(address), Key::User(user.to_owned())]
    }

    /// How long this one must wait; zero if not at all.
    fn wait(&self, user: &str, address: IpAddr, now: Timestamp) -> Duration {
        let failures = lock(&self.failures);
        Self::keys(user, address)
            .iter()
            .filter_map(|key| Some((key, failures.get(key)?)))
            .map(|(key, failure)| {
                self.penalty(key, *failure)
                    .saturating_sub(now.since(failure.last))
            })
            .max()
            .unwrap_or_default()
    }

    fn penalty(&self, key: &Key, failure: Failures) -> Duration {
        let Some(beyond) = failure.count.checked_sub(self.settings.login_attempts) else {
            return Duration::ZERO;
        };
        let window = self.settings.login_window.as_duration();
        let most = match key {
            Key::Address(_) => window,
            Key::User(_) => window.min(USER_WAIT_MAX),
        };
        Duration::from_secs(1 << beyond.min(20)).min(most)
    }

    fn failed(&self, user: &str, address: IpAddr, now: Timestamp) {
        let mut failures = lock(&self.failures);
        let window = self.settings.login_window.as_duration();
        for key in Self::keys(user, address) {
            if !failures.contains_key(&key) && failures.len() >= self.settings.login_tracked.max(2)
            {
                let oldest = failures
                    .iter()
                    .min_by_key(|(_, f)| f.last)
                    .map(|(key, _)| key.clone());
                oldest.map(|key| failures.remove(&key));
            }
            let entry = failures.entry(key).or_insert(Failures {
                count: 0,
                last: now,
            });
            let count = if now.since(entry.last) > window {
                0
            } else {
                entry.count
            };
            *entry = Failures {
                count: count.saturating_add(1),
                last: now,
            };
        }
    }

    fn succeeded(&self, user: &str, address: IpAddr) {
        let mut failures = lock(&self.failures);
        for key in Self::keys(user, address) {
            failures.remove(&key);
        }
    }
}

/// The argon2id hash of a password, as a PHC string.
///
/// # Errors
/// When the operating system gives no randomness.
pub fn hash_password(password: &str) -> Result<String, Error> {
    let salt: [u8; 16] = secret::random_bytes()?;
    let hash: PasswordHash = Argon2::default()
        .hash_password_with_salt(password.as_bytes(), &salt)
        .map_err(|e| Error::Internal(format!("the password cannot be hashed: {e}")))?;
    Ok(hash.to_string())
}

fn password_fits(password: &str, hash: &str) -> bool {
    PasswordHash::new(hash).is_ok_and(|hash| {
        Argon2::default()
            .verify_password(password.as_bytes(), &hash)
            .is_ok()
    })
}

/// Checks a password in its turn. A user that does not exist costs the same time as one that does.
async fn check(state: &State, user: Option<User>, password: String) -> Result<Option<User>, Error> {
    let too_many = || Error::TooMany {
        what: "too many logins at once",
        after: Duration::from_secs(1),
    };
    let turn = tokio::time::timeout(TURN, Arc::clone(&state.logins.turns).acquire_owned())
        .await
        .map_err(|_| too_many())?;
    let checked = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        match user {
            Some(user) => password_fits(&password, &user.password_hash).then_some(user),
            None => {
                // The result does not matter, the time does.
                drop(hash_password(&password));
                None
            }
        }
    });
    checked
        .await
        .map_err(|e| Error::Internal(format!("the password could not be checked: {e}")))
}

/// Exchanges name and password for a token.
///
/// # Errors
/// When they do not fit, there were too many failures, or the store fails.
pub async fn login(
    state: &State,
    request: LoginRequest,
    address: IpAddr,
) -> Result<LoginResponse, Error> {
    let LoginRequest {
        user: name,
        password,
    } = request;
    let now = fdn_service::now();
    let count = |result| state.metrics.logins.with_label_values(&[result]).inc();
    if name.len() > INPUT_MAX || password.len() > INPUT_MAX {
        return Err(Error::BadRequest(format!(
            "user and password have {INPUT_MAX} octets at most"
        )));
    }
    let wait = state.logins.wait(&name, address, now);
    if !wait.is_zero() {
        count("throttled");
        return Err(Error::TooMany {
            what: "too many failed logins",
            after: wait,
        });
    }
    let mut connection = state.store.read().await?;
    let found = user_get(&mut connection, &name).await?;
    drop(connection);
    let Some(user) = check(state, found, password).await? else {
        state.logins.failed(&name, address, now);
        count("wrong");
        warn!(%address, "a login failed");
        return Err(Error::Unauthenticated("user or password is wrong"));
    };
    let token = Secret::random()?;
    let expires_at = Timestamp(
        now.get()
            .saturating_add(state.settings.accounts.token_lifetime.as_millis()),
    );
    let entry = AuditEntry {
        at: now,
        actor: user.name.clone(),
        action: "login",
        subject: user.name.clone(),
        before: None,
        after: None,
    };
    let keep = state.settings.accounts.tokens_per_user.saturating_sub(1);
    in_transaction!(state.store, tx => {
        token_trim(&mut tx, &user.name, keep, now).await?;
        token_insert(&mut tx, &token_hash(token.expose()), &user.name, now, expires_at).await?;
        audit_insert(&mut tx, &entry).await
    })?;
    state.logins.succeeded(&name, address);
    count("ok");
    Ok(LoginResponse {
        token: token.expose().to_owned(),
        expires_at,
    })
}

/// Makes the first user if there is none. Returns the password if it was made here.
///
/// # Errors
/// When the store or the password's file fails.
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
    let user = User {
        name: settings.admin.clone(),
        role: Role::Admin,
        password_hash: hash,
    };
    let now = fdn_service::now();
    let inserted: bool =
        in_transaction!(state.store, tx => user_insert(&mut tx, &user, now).await)?;
    info!(user = settings.admin, "the first user was made");
    // Another controller may have been faster; then this password is nobody's.
    Ok((inserted && !given).then_some(password))
}

fn random_password() -> Result<Secret, Error> {
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

    const NOW: Timestamp = Timestamp(1_000_000);

    fn logins(login_tracked: usize) -> Logins {
        Logins::new(&AccountSettings {
            login_attempts: 3,
            login_tracked,
            ..AccountSettings::default()
        })
    }

    fn later(seconds: u64) -> Timestamp {
        Timestamp(NOW.get() + seconds * 1000)
    }

    fn address(n: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, n])
    }

    #[test]
    fn failures_make_the_next_login_wait() {
        let logins = logins(100);
        for _ in 0..2 {
            logins.failed("admin", address(1), NOW);
            assert_eq!(logins.wait("admin", address(1), NOW), Duration::ZERO);
        }
        logins.failed("admin", address(1), NOW);
        assert_eq!(
            logins.wait("admin", address(1), NOW),
            Duration::from_secs(1)
        );
        logins.failed("admin", address(1), NOW);
        assert_eq!(
            logins.wait("admin", address(1), NOW),
            Duration::from_secs(2)
        );
        assert_eq!(logins.wait("admin", address(1), later(2)), Duration::ZERO);
        assert_eq!(
            logins.wait("other", address(1), NOW),
            Duration::from_secs(2),
            "the address counts"
        );
        assert_eq!(
            logins.wait("admin", address(2), NOW),
            Duration::from_secs(2),
            "the user counts"
        );
        assert_eq!(logins.wait("other", address(2), NOW), Duration::ZERO);
        logins.succeeded("admin", address(1));
        assert_eq!(logins.wait("admin", address(1), NOW), Duration::ZERO);
    }

    #[test]
    fn nobody_can_lock_a_user_out_for_long() {
        let logins = logins(100);
        for _ in 0..30 {
            logins.failed("admin", address(1), NOW);
        }
        assert_eq!(logins.wait("admin", address(2), NOW), USER_WAIT_MAX);
        assert_eq!(
            logins.wait("admin", address(1), NOW),
            Duration::from_secs(15 * 60)
        );
        logins.failed("admin", address(1), later(16 * 60));
        assert_eq!(
            logins.wait("admin", address(1), later(16 * 60)),
            Duration::ZERO,
            "old failures no longer count"
        );
    }

    #[test]
    fn the_memory_of_failures_is_bounded() {
        let logins = logins(4);
        for n in 0..100 {
            logins.failed(&format!("user-{n}"), address(n), later(u64::from(n)));
        }
        assert_eq!(lock(&logins.failures).len(), 4);
    }

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
