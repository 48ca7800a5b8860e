//! How many answers a network gets over UDP, where the sender of a request may be forged.
//!
//! Whoever forges a victim's address makes this server send to the victim. An answer is at most ten times its question (see
//! [`super::Responder`]), and their number is limited here, for each network of clients (IPv4 /24, IPv6 /56 by default) and
//!
//! | what | counted by | why |
//! | --- | --- | --- |
//! | answers to a name that exists | name | one resolver asks for many names, and for each rarely |
//! | names that do not exist, or exist by a wildcard | zone | there are endless many: each name by itself would never reach a limit |
//! | errors | nothing else | no honest resolver gets many |
//! | all of them | nothing else | many names at once reach a limit too |
//!
//! Beyond a limit one in [`Limits::slip`] requests is answered with TC and no records, so that an honest asker behind a forged address
//! comes back over TCP, where addresses cannot be forged and nothing is limited. Neither are askers with a valid
//! cookie ([`super::cookie`]) and the networks in [`Limits::exempt`].
//!
//! The rate is kept by the generic cell rate algorithm (ITU-T I.371, annex A): one number for each bucket, the time at which it would
//! be empty. [`admit`] is that step. Buckets are two rows of atomics, of fixed size: a client's bucket is found by a keyed hash in
//! each row, and only when both are full it is limited. Buckets are shared, so a limit may be reached early by chance (both rows
//! shared with busy networks), never late; nothing is allocated, locked or evicted, however many addresses are forged.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fdn_core::ClientPrefix;

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// What is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Answers for one name to one network, each second. For all rates 0 is no limit.
    pub names: u32,
    /// Answers to one network each second that a name does not exist, or made of a wildcard.
    pub zone: u32,
    /// Errors to one network, each second.
    pub errors: u32,
    /// Answers of all kinds to one network, each second.
    pub total: u32,
    /// For how long a network may save up what it did not use.
    pub burst: Duration,
    /// Beyond a limit one in so many requests is sent to TCP, the others get no answer. 0: none is.
    pub slip: u16,
    /// How many leading bits of an IPv4 address make a network.
    pub ipv4_len: u8,
    /// How many leading bits of an IPv6 address make a network.
    pub ipv6_len: u8,
    /// Networks without limits.
    pub exempt: Vec<ClientPrefix>,
    /// Buckets in each of two rows.
    pub buckets: usize,
}

/// What an answer counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A name that exists.
    Name,
    /// A name that does not exist, or exists by a wildcard.
    Zone,
    /// An error.
    Error,
}

/// What becomes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is sent.
    Send,
    /// The asker is sent to TCP.
    Slip,
    /// It is not sent.
    Drop,
}

/// A rate as the bucket counts it, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// What one answer takes.
    pub cost: u64,
    /// How far ahead of time a bucket may be full.
    pub ahead: u64,
}

impl Rate {
    /// So many a second, with this much saved up. `None`: no limit.
    #[must_use]
    pub fn new(per_second: u32, burst: Duration) -> Option<Self> {
        let cost = SECOND.checked_div(u64::from(per_second))?;
        let ahead = u64::try_from(burst.as_nanos()).unwrap_or(u64::MAX);
        Some(Self { cost, ahead })
    }
}

/// One step of the algorithm: when the bucket that is full until `due` would be empty after one more answer at `now`; `None` when it
/// is too full for one.
#[must_use]
pub fn admit(due: u64, now: u64, rate: Rate) -> Option<u64> {
    (due <= now.saturating_add(rate.ahead)).then(|| due.max(now).saturating_add(rate.cost))
}

/// The limits and how much of them is used.
pub struct Limiter {
    limits: Limits,
    rates: [Option<Rate>; 3],
    total: Option<Rate>,
    rows: [Box<[AtomicU64]>; 2],
    hasher: RandomState,
    started: Instant,
}

impl std::fmt::Debug for Limiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limiter")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Limiter {
    /// A limiter that nobody has used yet.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let row = || {
            (0..limits.buckets.max(1))
                .map(|_| AtomicU64::new(0))
                .collect()
        };
        let rate = |per_second| Rate::new(per_second, limits.burst);
        Self {
            rates: [rate(limits.names), rate(limits.zone), rate(limits.errors)],
            total: rate(limits.total),
            rows: [row(), row()],
            hasher: RandomState::new(),
            started: Instant::now(),
            limits,
        }
    }

    /// A moment as [`Limiter::decide`] counts it.
    #[must_use]
    pub fn nanos(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.started);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Decides about one answer. `now` is the time since this limiter was made, in nanoseconds; `name` the question's name as it was asked,
    /// and `id` the request's.
    #[must_use]
    pub fn decide(&self, now: u64, asker: IpAddr, class: Class, name: &[u8], id: u16) -> Outcome {
        let asker = asker.to_canonical();
        if self.limits.exempt.iter().any(|net| net.contains(asker)) {
            return Outcome::Send;
        }
        let len = if asker.is_ipv4() {
            self.limits.ipv4_len
        } else {
            self.limits.ipv6_len
        };
        let network = ClientPrefix::new(asker, len);
        let mut own = self.hasher.build_hasher();
        (network, class as u8).hash(&mut own);
        if class == Class::Name {
            // In lower case: spelling it differently (0x20) must not make it another. A name has at most 255 bytes (RFC 1035, section 3.1).
            let mut lower = [0; 255];
            let len = name.len().min(lower.len());
            lower[..len].copy_from_slice(&name[..len]);
            lower.make_ascii_lowercase();
            own.write(&lower[..len]);
        }
        let own = own.finish();
        let all = self.hasher.hash_one((network, u8::MAX));
        let within =
            self.take(own, now, self.rates[class as usize]) && self.take(all, now, self.total);
        match (within, self.limits.slip) {
            (true, _) => Outcome::Send,
            (false, slip) if slip > 0 && id.is_multiple_of(slip) => Outcome::Slip,
            (false, _) => Outcome::Drop,
        }
    }

    /// Puts one answer into the buckets of `key`, unless both are too full.
    fn take(&self, key: u64, now: u64, rate: Option<Rate>) -> bool {
        let Some(rate) = rate else { return true };
        let halves = [key & u64::from(u32::MAX), key >> 32];
        let bucket = |row: usize| {
            let index = halves[row] % self.rows[row].len() as u64;
            &self.rows[row][usize::try_from(index).unwrap_or(0)]
        };
        let buckets = [bucket(0), bucket(1)];
        // The emptier one is nearer to the truth: the other is shared with somebody. Two threads may read the same and count one answer
        // for two; a lock would cost more than that is worth.
        let due = buckets.map(|b| b.load(Ordering::Relaxed));
        let Some(next) = admit(due[0].min(due[1]), now, rate) else {
            return false;
        };
        for bucket in buckets {
            bucket.fetch_max(next, Ordering::Relaxed);
        }
        true
    }
}

#[cfg(test)]
mod tests;
