//! Throttling of logins and tokens: failed ones make the next ones wait.
//!
//! After `login_attempts` failures each further one doubles the wait. An address may be blocked for the whole window; a user, or the unknown tokens
//! from one address, for at most half a minute, so that nobody can lock somebody else out for long. Tokens that are known are never throttled.
//!
//! An address of IPv6 counts as its /64, which is what one line is given: otherwise whoever has one would have as many addresses as they like. The
//! number of failures kept in memory is bounded, of logins and of tokens each for itself.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fdn_core::Timestamp;
use tokio::sync::Semaphore;

use crate::Error;
use crate::settings::AccountSettings;
use crate::state::lock;

/// The longest wait for a user, whatever the address, and for the tokens from an address.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The part of an IPv6 address that counts: its first 64 bits.
const PREFIX: u128 = !(u64::MAX as u128);

/// Failed logins, by user and by address.
pub struct Logins {
    failures: Mutex<BTreeMap<Key, Failures>>,
    /// Unknown tokens and cookies, by address. They are counted separately, because a tool that keeps using an old token must keep nobody from logging
    /// in; and kept separately, because tokens cost nothing to send: in one memory enough of them would push out the guesses at a password.
    tokens: Mutex<BTreeMap<IpAddr, Failures>>,
    settings: AccountSettings,
    pub(super) hashing_permits: Arc<Semaphore>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Address(IpAddr),
    User(String),
    /// A user's failures from an address: what a login of this user takes off those of the address.
    Both(IpAddr, String),
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last: Timestamp,
}

/// What an address counts as: IPv6 as its /64, an IPv4 address that is written as one of IPv6 as what it is.
fn counted_as(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from(u128::from(address) & PREFIX)),
        address @ IpAddr::V4(_) => address,
    }
}

impl Failures {
    /// The time that the next try must wait, if from `attempts` failures on each one doubles it, up to `most`.
    fn wait(self, (attempts, most): (u32, Duration), now: Timestamp) -> Duration {
        let Some(beyond) = self.count.checked_sub(attempts) else {
            return Duration::ZERO;
        };
        let penalty = Duration::from_secs(1 << beyond.min(20)).min(most);
        penalty.saturating_sub(now.since(self.last))
    }
}

impl Logins {
    /// Without any failures.
    #[must_use]
    pub fn new(settings: &AccountSettings) -> Self {
        Self {
            failures: Mutex::new(BTreeMap::new()),
            tokens: Mutex::new(BTreeMap::new()),
            settings: settings.clone(),
            hashing_permits: Arc::new(Semaphore::new(settings.login_parallel)),
        }
    }

    fn keys(user: &str, address: IpAddr) -> [Key; 2] {
        [
            Key::Address(counted_as(address)),
            Key::User(user.to_owned()),
        ]
    }

    /// The time that a login must wait; zero if not at all.
    pub(super) fn wait(&self, user: &str, address: IpAddr, now: Timestamp) -> Duration {
        let failures = lock(&self.failures);
        Self::keys(user, address)
            .iter()
            .filter_map(|key| Some(failures.get(key)?.wait(self.limit(key), now)))
            .max()
            .unwrap_or_default()
    }

    /// The number of failures from which on the next try must wait, and the longest wait.
    fn limit(&self, key: &Key) -> (u32, Duration) {
        let window = self.settings.login_window.as_duration();
        let most = match key {
            Key::Address(_) => window,
            Key::User(_) => window.min(WAIT_MAX),
            Key::Both(..) => Duration::ZERO,
        };
        (self.settings.login_attempts, most)
    }

    pub(super) fn failed(&self, user: &str, address: IpAddr, now: Timestamp) {
        let both = Key::Both(counted_as(address), user.to_owned());
        let mut failures = lock(&self.failures);
        for key in Self::keys(user, address).into_iter().chain([both]) {
            self.count_failure(&mut failures, key, now);
        }
    }

    /// Checks whether an unknown token from this address is told that it is unknown, or has to wait.
    ///
    /// # Errors
    /// With the time to wait, when too many unknown ones came from there.
    pub(crate) fn check_token_throttle(
        &self,
        address: Option<IpAddr>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let window = self.settings.login_window.as_duration();
        let limit = (self.settings.token_attempts, window.min(WAIT_MAX));
        let failed =
            address.and_then(|address| lock(&self.tokens).get(&counted_as(address)).copied());
        let after = failed.map_or(Duration::ZERO, |failed| failed.wait(limit, now));
        if after.is_zero() {
            return Ok(());
        }
        let what = "too many unknown tokens came from this address";
        Err(Error::TooMany { what, after })
    }

    /// Counts an unknown token.
    pub(crate) fn token_failed(&self, address: Option<IpAddr>, now: Timestamp) {
        if let Some(address) = address {
            self.count_failure(&mut lock(&self.tokens), counted_as(address), now);
        }
    }

    /// Counts a failure. If as many are remembered as may be, the oldest one makes room.
    fn count_failure<K: Clone + Ord>(
        &self,
        failures: &mut BTreeMap<K, Failures>,
        key: K,
        now: Timestamp,
    ) {
        let window = self.settings.login_window.as_duration();
        if !failures.contains_key(&key) && failures.len() >= self.settings.login_tracked.max(3) {
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

    /// Forgets the failures of a user who logged in, also those that count for the address. Other failures of the address stay: whoever guesses
    /// the passwords of others must not get rid of them by logging in as themselves.
    pub(super) fn succeeded(&self, user: &str, address: IpAddr) {
        let address = counted_as(address);
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

    fn parsed(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn the_addresses_of_one_line_share_their_failures() {
        let logins = Logins::new(&AccountSettings {
            login_attempts: 3,
            token_attempts: 3,
            ..AccountSettings::default()
        });
        for n in 0..3 {
            let from = parsed(&format!("2001:db8:0:1:{n}::{n}"));
            logins.failed(&format!("user-{n}"), from, NOW);
            logins.token_failed(Some(from), NOW);
        }
        let (beside, elsewhere) = (parsed("2001:db8:0:1:ffff::"), parsed("2001:db8:0:2::1"));
        assert_eq!(logins.wait("ann", beside, NOW), Duration::from_secs(1));
        assert!(logins.check_token_throttle(Some(beside), NOW).is_err());
        assert_eq!(logins.wait("ann", elsewhere, NOW), Duration::ZERO);
        assert!(logins.check_token_throttle(Some(elsewhere), NOW).is_ok());
        // Who logs in from another address of the line takes the own failure off.
        logins.succeeded("user-1", beside);
        assert_eq!(logins.wait("ann", beside, NOW), Duration::ZERO);
        // An address of IPv4 is the same one however it is written, and shares with no other.
        for _ in 0..3 {
            logins.failed("ann", parsed("::ffff:192.0.2.1"), NOW);
        }
        assert_eq!(
            logins.wait("bob", address(1), NOW),
            Duration::from_secs(1),
            "IPv4"
        );
        assert_eq!(logins.wait("bob", address(2), NOW), Duration::ZERO);
    }

    #[test]
    fn tokens_push_no_guesses_at_a_password_out() {
        let logins = logins(100);
        for _ in 0..5 {
            logins.failed("admin", address(1), NOW);
        }
        let before = logins.wait("admin", address(2), NOW);
        assert_eq!(before, Duration::from_secs(4));
        for n in 0..20_000 {
            let from = IpAddr::from((n + (10u32 << 24)).to_be_bytes());
            logins.token_failed(Some(from), NOW);
        }
        assert_eq!(logins.wait("admin", address(2), NOW), before);
        assert_eq!(lock(&logins.tokens).len(), 100);
    }
}
