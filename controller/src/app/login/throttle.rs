//! Throttling of logins and tokens: failed ones make the next ones wait.
//!
//! After `login_attempts` failures each further one doubles the wait. An address may be blocked for the whole window; a user, or the tokens from
//! one address, for at most half a minute, so that nobody can lock somebody else out for long. The number of failures kept in memory is bounded.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fdn_core::Timestamp;
use tokio::sync::Semaphore;

use crate::Error;
use crate::settings::AccountSettings;
use crate::state::lock;

/// The longest wait for a user, whatever the address, and for the tokens from an address.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Failed logins, by user and by address.
pub struct Logins {
    failures: Mutex<BTreeMap<Key, Failures>>,
    settings: AccountSettings,
    pub(super) hashing_permits: Arc<Semaphore>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Address(IpAddr),
    User(String),
    /// A user's failures from an address: what a login of this user takes off those of the address.
    Both(IpAddr, String),
    /// Unknown tokens and cookies from an address. They are counted separately: a tool that keeps using an old token must keep nobody from
    /// logging in.
    Tokens(IpAddr),
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last: Timestamp,
}

impl Logins {
    /// Without any failures.
    #[must_use]
    pub fn new(settings: &AccountSettings) -> Self {
        Self {
            failures: Mutex::new(BTreeMap::new()),
            settings: settings.clone(),
            hashing_permits: Arc::new(Semaphore::new(settings.login_parallel)),
        }
    }

    fn keys(user: &str, address: IpAddr) -> [Key; 2] {
        [Key::Address(address), Key::User(user.to_owned())]
    }

    /// The time that a login must wait; zero if not at all.
    pub(super) fn wait(&self, user: &str, address: IpAddr, now: Timestamp) -> Duration {
        self.longest(&Self::keys(user, address), now)
    }

    fn longest(&self, keys: &[Key], now: Timestamp) -> Duration {
        let failures = lock(&self.failures);
        keys.iter()
            .filter_map(|key| Some((key, failures.get(key)?)))
            .map(|(key, failure)| {
                self.penalty(key, *failure)
                    .saturating_sub(now.since(failure.last))
            })
            .max()
            .unwrap_or_default()
    }

    fn penalty(&self, key: &Key, failure: Failures) -> Duration {
        let window = self.settings.login_window.as_duration();
        let (attempts, most) = match key {
            Key::Address(_) => (self.settings.login_attempts, window),
            Key::User(_) => (self.settings.login_attempts, window.min(WAIT_MAX)),
            Key::Tokens(_) => (self.settings.token_attempts, window.min(WAIT_MAX)),
            Key::Both(..) => return Duration::ZERO,
        };
        let Some(beyond) = failure.count.checked_sub(attempts) else {
            return Duration::ZERO;
        };
        Duration::from_secs(1 << beyond.min(20)).min(most)
    }

    pub(super) fn failed(&self, user: &str, address: IpAddr, now: Timestamp) {
        let both = Key::Both(address, user.to_owned());
        self.count_failure(Self::keys(user, address).into_iter().chain([both]), now);
    }

    /// Checks that a token from this address may be looked up now.
    ///
    /// # Errors
    /// With the time to wait, when too many unknown ones came from there.
    pub(crate) fn check_token_throttle(
        &self,
        address: Option<IpAddr>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let after = address.map_or(Duration::ZERO, |address| {
            self.longest(&[Key::Tokens(address)], now)
        });
        if after.is_zero() {
            return Ok(());
        }
        let what = "too many unknown tokens came from this address";
        Err(Error::TooMany { what, after })
    }

    /// Counts an unknown token.
    pub(crate) fn token_failed(&self, address: Option<IpAddr>, now: Timestamp) {
        self.count_failure(address.map(Key::Tokens), now);
    }

    fn count_failure(&self, keys: impl IntoIterator<Item = Key>, now: Timestamp) {
        let mut failures = lock(&self.failures);
        let window = self.settings.login_window.as_duration();
        for key in keys {
            if !failures.contains_key(&key) && failures.len() >= self.settings.login_tracked.max(3)
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

    /// Forgets the failures of a user who logged in, also those that count for the address. Other failures of the address stay: whoever guesses
    /// the passwords of others must not get rid of them by logging in as themselves.
    pub(super) fn succeeded(&self, user: &str, address: IpAddr) {
        let mut failures = lock(&self.failures);
        failures.remove(&Key::User(user.to_owned()));
        let own = failures.remove(&Key::Both(address, user.to_owned()));
        if let (Some(own), Some(all)) = (own, failures.get_mut(&Key::Address(address))) {
            all.count = all.count.saturating_sub(own.count);
        }
    }
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
        logins.failed("other", address(1), NOW);
        logins.succeeded("other", address(1));
        assert_eq!(
            logins.wait("other", address(1), NOW),
            Duration::from_secs(2),
            "who logs in takes only what is theirs off the address"
        );
        logins.succeeded("admin", address(1));
        for n in [1, 2] {
            assert_eq!(logins.wait("admin", address(n), NOW), Duration::ZERO);
        }
    }

    #[test]
    fn nobody_can_lock_a_user_out_for_long() {
        let logins = logins(100);
        for _ in 0..30 {
            logins.failed("admin", address(1), NOW);
        }
        assert_eq!(logins.wait("admin", address(2), NOW), WAIT_MAX);
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
    fn unknown_tokens_make_their_address_wait_and_keep_nobody_from_logging_in() {
        let logins = Logins::new(&AccountSettings {
            token_attempts: 2,
            ..AccountSettings::default()
        });
        let from = |n| Some(address(n));
        for _ in 0..40 {
            logins.token_failed(from(1), NOW);
        }
        let error = logins
            .check_token_throttle(from(1), NOW)
            .expect_err("too many");
        assert!(
            matches!(error, Error::TooMany { after, .. } if after == WAIT_MAX),
            "{error}"
        );
        assert!(logins.check_token_throttle(from(2), NOW).is_ok());
        assert!(logins.check_token_throttle(from(1), later(31)).is_ok());
        assert_eq!(logins.wait("ann", address(1), NOW), Duration::ZERO);
    }
}
