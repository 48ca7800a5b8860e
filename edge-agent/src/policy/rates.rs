//! Rate limits by the generic cell rate algorithm (governor), with a bounded table of clients.
//!
//! The table is divided into shards, each behind a lock that is held for one look-up. If there is no room for a client, clients whose burst is
//! fully restored are removed, at most once a second: they are equivalent to unknown ones. A client that still finds no room is counted under one
//! rate that all such clients share, so a flood of addresses slows down itself and not the known clients.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fdn_core::policy::Rate;
use fdn_core::policy::decide::{ClientKey, RateState};
use governor::clock::{Clock, DefaultClock, Reference};
use governor::middleware::{StateInformationMiddleware, StateSnapshot};
use governor::nanos::Nanos;
use governor::state::keyed::ShrinkableKeyedStateStore;
use governor::state::{InMemoryState, NotKeyed, StateStore};
use governor::{NotUntil, Quota, RateLimiter};
use prometheus::{IntCounter, IntGauge};

/// The number of shards, which are locked independently.
const SHARDS: usize = 16;
/// The minimum time between two cleanings, in nanoseconds.
const CLEAN_NS: u64 = 1_000_000_000;

/// Converts a rate for governor.
fn quota(rate: &Rate) -> Quota {
    let one = NonZeroU32::MIN;
    let requests = NonZeroU32::new(rate.requests).unwrap_or(one);
    let burst = NonZeroU32::new(rate.burst()).unwrap_or(one);
    let interval = rate.per.as_duration() / requests.get();
    // A validated rate has an interval of at least a microsecond.
    Quota::with_period(interval.max(Duration::from_nanos(1)))
        .unwrap_or_else(|| Quota::per_second(requests))
        .allow_burst(burst)
}

fn state<P: Reference>(
    checked: Result<StateSnapshot, NotUntil<P>>,
    quota: &Quota,
    now: P,
) -> RateState {
    match checked {
        Ok(snapshot) => {
            let remaining = snapshot.remaining_burst_capacity();
            let missing = quota.burst_size().get().saturating_sub(remaining);
            RateState {
                admitted: true,
                remaining,
                reset: quota.replenish_interval().saturating_mul(missing),
            }
        }
        Err(refused) => RateState {
            admitted: false,
            remaining: 0,
            reset: refused.wait_time_from(now),
        },
    }
}

/// The rate limit of all calls of an app.
pub(super) struct AppRate<C: Clock = DefaultClock> {
    quota: Quota,
    clock: C,
    limiter: RateLimiter<NotKeyed, InMemoryState, C, StateInformationMiddleware>,
}

impl<C: Clock + Clone> AppRate<C> {
    pub(super) fn new(rate: &Rate, clock: C) -> Self {
        let quota = quota(rate);
        Self {
            limiter: RateLimiter::direct_with_clock(quota, clock.clone()).with_middleware(),
            quota,
            clock,
        }
    }

    /// Takes one call from the budget.
    pub(super) fn take(&self) -> RateState {
        state(self.limiter.check(), &self.quota, self.clock.now())
    }
}

/// The rate limit of each client.
pub(super) struct ClientRates<C: Clock = DefaultClock> {
    quota: Quota,
    clock: C,
    start: C::Instant,
    cleaned: AtomicU64,
    full: Arc<AtomicBool>,
    limiter: RateLimiter<ClientKey, Table, C, StateInformationMiddleware>,
}

impl<C: Clock + Clone> ClientRates<C> {
    /// A table of at most about `clients` clients.
    pub(super) fn new(
        rate: &Rate,
        clients: usize,
        clock: C,
        size: IntGauge,
        overflow: IntCounter,
    ) -> Self {
        let quota = quota(rate);
        let full = Arc::new(AtomicBool::new(false));
        let table = Table {
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            each: clients.div_ceil(SHARDS).max(1),
            known: AtomicUsize::new(0),
            shared: InMemoryState::default(),
            full: Arc::clone(&full),
            size,
            overflow,
        };
        Self {
            limiter: RateLimiter::new(quota, table, clock.clone()),
            start: clock.now(),
            cleaned: AtomicU64::new(0),
            full,
            quota,
            clock,
        }
    }

    /// Takes one call from the client's budget.
    pub(super) fn take(&self, client: ClientKey) -> RateState {
        if self.full.load(Ordering::Relaxed) {
            self.clean();
        }
        state(
            self.limiter.check_key(&client),
            &self.quota,
            self.clock.now(),
        )
    }

    /// Removes clients whose burst is fully restored, at most once a second, on one thread.
    fn clean(&self) {
        let now = self.clock.now().duration_since(self.start).as_u64();
        let last = self.cleaned.load(Ordering::Relaxed);
        let due = last == 0 || now >= last.saturating_add(CLEAN_NS);
        let mine = due
            && self
                .cleaned
                .compare_exchange(last, now.max(1), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if mine {
            self.full.store(false, Ordering::Relaxed);
            self.limiter.retain_recent();
        }
    }
}

type Shard = HashMap<ClientKey, InMemoryState>;

/// Clients by key, in shards.
struct Table {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    /// The most clients in one shard.
    each: usize,
    known: AtomicUsize,
    /// The state shared by clients for which there is no room.
    shared: InMemoryState,
    full: Arc<AtomicBool>,
    size: IntGauge,
    overflow: IntCounter,
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // A shard is consistent even if a thread panics.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    fn show(&self) {
        let known = self.known.load(Ordering::Relaxed);
        self.size.set(i64::try_from(known).unwrap_or(i64::MAX));
    }
}

impl StateStore for Table {
    type Key = ClientKey;

    fn measure_and_replace<T, F, E>(&self, key: &ClientKey, f: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let at = self.hasher.hash_one(key) as usize % SHARDS;
        let mut shard = lock(&self.shards[at]);
        if let Some(state) = shard.get(key) {
            return state.measure_and_replace(&NotKeyed::NonKey, f);
        }
        if shard.len() >= self.each {
            drop(shard);
            self.full.store(true, Ordering::Relaxed);
            self.overflow.inc();
            return self.shared.measure_and_replace(&NotKeyed::NonKey, f);
        }
        let measured = shard
            .entry(*key)
            .or_default()
            .measure_and_replace(&NotKeyed::NonKey, f);
        drop(shard);
        self.known.fetch_add(1, Ordering::Relaxed);
        self.show();
        measured
    }
}

impl ShrinkableKeyedStateStore<ClientKey> for Table {
    fn retain_recent(&self, drop_below: Nanos) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            let before = shard.len();
            shard.retain(|_, state| {
                // A measurement that always refuses changes nothing and reveals the stored value.
                let seen: Result<(), Option<Nanos>> =
                    state.measure_and_replace(&NotKeyed::NonKey, Err);
                matches!(seen, Err(Some(at)) if at > drop_below)
            });
            let dropped = before - shard.len();
            self.known.fetch_sub(dropped, Ordering::Relaxed);
        }
        self.show();
    }

    fn len(&self) -> usize {
        self.known.load(Ordering::Relaxed)
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::DurationMs;
    use governor::clock::FakeRelativeClock;

    use super::*;

    fn rate(requests: u32, per_s: u64, burst: u32) -> Rate {
        Rate {
            requests,
            per: DurationMs::from_secs(per_s),
            burst: Some(burst),
        }
    }

    fn clients(
        rate: &Rate,
        clients: usize,
        clock: &FakeRelativeClock,
    ) -> (ClientRates<FakeRelativeClock>, IntGauge, IntCounter) {
        let size = IntGauge::new("size", "clients").expect("a name");
        let overflow = IntCounter::new("overflow", "calls").expect("a name");
        let rates = ClientRates::new(rate, clients, clock.clone(), size.clone(), overflow.clone());
        (rates, size, overflow)
    }

    #[test]
    fn a_burst_is_used_up_and_comes_back() {
        let clock = FakeRelativeClock::default();
        let app = AppRate::new(&rate(10, 1, 3), clock.clone());
        let left: Vec<u32> = (0..3).map(|_| app.take().remaining).collect();
        assert_eq!(left, [2, 1, 0]);
        let refused = app.take();
        assert!(!refused.admitted);
        assert_eq!(refused.reset, Duration::from_millis(100));
        clock.advance(Duration::from_millis(100));
        let state = app.take();
        assert!(state.admitted && state.remaining == 0);
        assert_eq!(state.reset, Duration::from_millis(300));
        assert!(!app.take().admitted);
    }

    #[test]
    fn slow_rates_are_kept() {
        let clock = FakeRelativeClock::default();
        let app = AppRate::new(&rate(1, 3600, 1), clock.clone());
        assert!(app.take().admitted && !app.take().admitted);
        clock.advance(Duration::from_secs(3599));
        assert!(!app.take().admitted);
        clock.advance(Duration::from_secs(1));
        assert!(app.take().admitted);
    }

    #[test]
    fn clients_do_not_use_up_one_anothers_rate() {
        let clock = FakeRelativeClock::default();
        let (rates, size, _) = clients(&rate(1, 1, 1), 100, &clock);
        assert!(rates.take(ClientKey::Address(1)).admitted);
        assert!(!rates.take(ClientKey::Address(1)).admitted);
        assert!(rates.take(ClientKey::Address(2)).admitted);
        assert_eq!(size.get(), 2);
    }

    /// A flood of clients fills the table: known clients keep their rate, unknown ones share one, and the table does not exceed its bound.
    #[test]
    fn a_full_table_is_bounded_and_shared_by_the_rest() {
        let clock = FakeRelativeClock::default();
        let (rates, size, overflow) = clients(&rate(1, 1, 1), SHARDS, &clock);
        clock.advance(Duration::from_millis(1));
        let admitted = (0..1000u128)
            .filter(|&n| rates.take(ClientKey::Address(n)).admitted)
            .count();
        assert_eq!(size.get(), i64::try_from(SHARDS).expect("small"));
        // Each client in the table, and one call of all those without a place.
        assert_eq!(admitted, SHARDS + 1);
        assert_eq!(overflow.get(), 1000 - SHARDS as u64);
    }

    #[test]
    fn room_is_made_by_dropping_those_that_rest() {
        let clock = FakeRelativeClock::default();
        let (rates, size, _) = clients(&rate(1, 1, 1), SHARDS, &clock);
        for n in 0..1000u128 {
            rates.take(ClientKey::Address(n));
        }
        clock.advance(Duration::from_secs(3));
        // The first of them triggers the cleaning, then there is room.
        let admitted = (5000..5004u128)
            .filter(|&n| rates.take(ClientKey::Address(n)).admitted)
            .count();
        assert!(admitted >= 1, "{admitted}");
        assert!(size.get() <= 4, "{}", size.get());
    }
}
