//! Rate limits on answers over UDP, where the source address of a request may be forged.
//!
//! Anyone who forges a victim's address makes this server send to the victim. An answer is at most ten times its question (see
//! [`super::Responder`]), and the number of answers is limited here, per network of clients (IPv4 /24, IPv6 /56 by default) and per
//!
//! | answers | key besides the network | reason |
//! | --- | --- | --- |
//! | for names that exist | the name | a resolver asks for many names, but rarely for the same one |
//! | for names that do not exist, or exist by a wildcard | the zone | they are unlimited: a limit per name would never be reached |
//! | errors | none | no legitimate resolver gets many |
//! | all of them | none | many different names together have a limit too |
//!
//! Beyond a limit, one in [`Limits::slip`] requests is answered with TC and no records, so that a legitimate client whose address is forged by
//! others retries over TCP, where addresses cannot be forged and there are no limits. What refuses a signature is sent as it is, unless it is
//! longer than its request. Clients with a valid cookie ([`super::cookie`]) and the networks in [`Limits::exempt`] are not limited either.
//!
//! Rates are enforced with the generic cell rate algorithm (ITU-T I.371, annex A): each bucket is one number, the time at which it will
//! be empty; [`admit`] is one step. The buckets are two rows of atomics, of fixed size: a keyed hash selects a client's bucket in each row,
//! and the client is limited only if both are full. Buckets are shared, so a limit may be reached early by chance (if both buckets are
//! shared with busy networks), but never late; nothing is allocated, locked or evicted, however many addresses are forged.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fdn_core::ClientPrefix;

/// Nanoseconds per second.
const SECOND: u64 = 1_000_000_000;

/// The limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Answers per second for one name to one network. For all rates, 0 means no limit.
    pub names: u32,
    /// Negative answers (no such name) and wildcard answers per second to one network.
    pub zone: u32,
    /// Errors per second to one network.
    pub errors: u32,
    /// Answers of all kinds per second to one network.
    pub total: u32,
    /// The period for which a network's unused allowance accumulates.
    pub burst: Duration,
    /// Beyond a limit, one in this many requests is sent to TCP, and the others get no answer. 0: none is sent to TCP.
    pub slip: u16,
    /// The prefix length of an IPv4 network, in bits.
    pub ipv4_len: u8,
    /// The prefix length of an IPv6 network, in bits.
    pub ipv6_len: u8,
    /// Networks without limits.
    pub exempt: Vec<ClientPrefix>,
    /// The number of buckets in each of the two rows.
    pub buckets: usize,
}

/// The class of an answer for the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A name that exists.
    Name,
    /// A name that does not exist, or exists by a wildcard: counted by zone.
    Zone,
    /// An error.
    Error,
}

/// What to do with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Send it.
    Send,
    /// Send a truncated answer, so that the client retries over TCP, or what refuses a signature.
    Slip,
    /// Send nothing.
    Drop,
}

/// A rate in units of the bucket, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The cost of one answer.
    pub cost: u64,
    /// How far a bucket may be filled ahead of the current time.
    pub ahead: u64,
}

impl Rate {
    /// A rate of `per_second` with allowance for `burst`. `None`: no limit.
    #[must_use]
    pub fn new(per_second: u32, burst: Duration) -> Option<Self> {
        let cost = SECOND.checked_div(u64::from(per_second))?;
        let ahead = u64::try_from(burst.as_nanos()).unwrap_or(u64::MAX);
        Some(Self { cost, ahead })
    }
}

/// One step of the algorithm: the bucket is full until `due`; returns its new value after one more answer at `now`, or `None` if it is too
/// full for one.
#[must_use]
pub fn admit(due: u64, now: u64, rate: Rate) -> Option<u64> {
    (due <= now.saturating_add(rate.ahead)).then(|| due.max(now).saturating_add(rate.cost))
}

/// The limits and their current use.
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
    /// Creates an unused limiter.
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

    /// Converts a time to the nanoseconds that [`Limiter::decide`] takes.
    #[must_use]
    pub fn nanos(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.started);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Decides about one answer. `now` is the time since this limiter was created, in ns; `name` is the question's name as spelled, and `id` the
    /// message id of the request.
    #[must_use]
    pub fn decide(&self, now: u64, source: IpAddr, class: Class, name: &[u8], id: u16) -> Outcome {
        let source = source.to_canonical();
        if self.limits.exempt.iter().any(|net| net.contains(source)) {
            return Outcome::Send;
        }
        let len = if source.is_ipv4() {
            self.limits.ipv4_len
        } else {
            self.limits.ipv6_len
        };
        let network = ClientPrefix::new(source, len);
        let mut own = self.hasher.build_hasher();
        (network, class as u8).hash(&mut own);
        if class == Class::Name {
            // In lower case, so that a different spelling (0x20) is not a different name. A name has at most 255 bytes (RFC 1035, section 3.1).
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

    /// Adds one answer to the buckets of `key`, unless both are too full.
    fn take(&self, key: u64, now: u64, rate: Option<Rate>) -> bool {
        let Some(rate) = rate else { return true };
        let halves = [key & u64::from(u32::MAX), key >> 32];
        let bucket = |row: usize| {
            let index = halves[row] % self.rows[row].len() as u64;
            &self.rows[row][usize::try_from(index).unwrap_or(0)]
        };
        let buckets = [bucket(0), bucket(1)];
        // The emptier bucket is the better estimate: the other one is shared. Two threads may read the same value and count two answers as one;
        // a lock would cost more than that is worth.
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
