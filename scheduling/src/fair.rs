//! Fair queueing of jobs: equal shares for the tenants that wait, so that one tenant's burst does not delay another's single job.
//!
//! **Problem.** A dispatcher can run some jobs at a time and holds a bounded number of waiting ones, of many tenants. Tenants with
//! waiting jobs must get equal shares of the work that is started, whatever they submit, and none must starve.
//!
//! **Source.** Start-time fair queueing (Goyal, Vin, Cheng: IEEE/ACM Transactions on Networking 5(5), 1997): every tenant has a virtual
//! time, which grows by the cost of what it starts; the one with the least is next. A tenant that returns after being idle begins at the
//! present virtual time: it has accumulated no credit, and no debt from having been alone. Deficit round robin gives the same shares in
//! larger units.
//!
//! **Deviation.** A tenant none of whose jobs may start now (because its functions are at their concurrency limits) is skipped and
//! treated as idle: once it may start again it gets its share, not what it missed. The cost of an entry that was taken and then did not start is
//! given back.
//!
//! **Invariants.** Between two tenants that both have jobs to start throughout, the costs started differ by at most the sum of their
//! largest costs. Within a tenant the higher priority goes first, then the earlier submission. At most [`Limits`] entries are held.
//!
//! **Complexity.** O(log n) to insert, O(t + b) to take for t tenants and b entries skipped because they may not start.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use fdn_core::Millis;

/// Bounds on the entries held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most entries of all tenants together.
    pub total: usize,
    /// The most entries of one tenant.
    pub tenant: usize,
}

/// A waiting entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry<T> {
    /// The priority within the tenant; higher first.
    pub priority: u8,
    /// The order among equal priorities, such as the time of submission; smaller first.
    pub order: u64,
    /// The expected work; less than a millisecond counts as one.
    pub cost: Millis,
    /// The item itself, such as a job.
    pub item: T,
}

/// The waiting entries, by tenant.
#[derive(Debug)]
pub struct Pool<K, T> {
    limits: Limits,
    tenants: BTreeMap<K, Tenant<T>>,
    held: usize,
    entered: u64,
    /// The present virtual time: the start time of the entry taken last.
    now: f64,
}

type Rank = (Reverse<u8>, u64, u64);

#[derive(Debug)]
struct Tenant<T> {
    time: f64,
    waiting: BTreeMap<Rank, (f64, T)>,
}

impl<K: Ord + Clone, T> Pool<K, T> {
    /// An empty pool.
    #[must_use]
    pub const fn new(limits: Limits) -> Self {
        Self {
            limits,
            tenants: BTreeMap::new(),
            held: 0,
            entered: 0,
            now: 0.0,
        }
    }

    /// The number of entries held.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.held
    }

    /// Whether no entries are held.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// How many more entries of a tenant can be held.
    #[must_use]
    pub fn room(&self, tenant: &K) -> usize {
        let own = self.tenants.get(tenant).map_or(0, |t| t.waiting.len());
        let all = self.limits.total.saturating_sub(self.held);
        self.limits.tenant.saturating_sub(own).min(all)
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// The item itself, if a bound is reached.
    pub fn push(&mut self, tenant: K, entry: Entry<T>) -> Result<(), T> {
        if self.room(&tenant) == 0 {
            return Err(entry.item);
        }
        self.entered += 1;
        self.held += 1;
        let rank = (Reverse(entry.priority), entry.order, self.entered);
        let now = self.now;
        let tenant = self.tenants.entry(tenant).or_insert_with(|| Tenant {
            time: now,
            waiting: BTreeMap::new(),
        });
        let cost = charged(entry.cost);
        tenant.waiting.insert(rank, (cost, entry.item));
        Ok(())
    }

    /// Removes the next entry among those that `may` start; `None` if there is none.
    pub fn take(&mut self, mut may: impl FnMut(&T) -> bool) -> Option<(K, T)> {
        let mut order: Vec<(f64, &K)> = self.tenants.iter().map(|(k, t)| (t.time, k)).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(b.1)));
        let (tenant, rank) = order.into_iter().find_map(|(_, key)| {
            let mut waiting = self.tenants[key].waiting.iter();
            let (rank, _) = waiting.find(|(_, (_, item))| may(item))?;
            Some((key.clone(), *rank))
        })?;
        let own = self.tenants.get_mut(&tenant)?;
        let (cost, item) = own.waiting.remove(&rank)?;
        let start = own.time;
        own.time += cost;
        self.now = self.now.max(start);
        self.held -= 1;
        for (key, other) in &mut self.tenants {
            // Tenants before the one that was served had nothing that may start.
            if other.time < start && *key != tenant {
                other.time = start;
            }
        }
        // A tenant without entries is forgotten once its virtual time has passed, so that tenants that left take no memory.
        let now = self.now;
        self.tenants
            .retain(|_, t| !t.waiting.is_empty() || t.time > now);
        Some((tenant, item))
    }

    /// Gives a tenant back the cost of an entry that was taken and not started after all. If others were served meanwhile, the tenant goes on from
    /// the present virtual time, like one that was passed over.
    pub fn refund(&mut self, tenant: &K, cost: Millis) {
        let now = self.now;
        if let Some(own) = self.tenants.get_mut(tenant) {
            own.time = (own.time - charged(cost)).max(now);
        }
    }

    /// Removes the entries that `keep` rejects.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        for tenant in self.tenants.values_mut() {
            tenant.waiting.retain(|_, (_, item)| keep(item));
        }
        self.held = self.tenants.values().map(|t| t.waiting.len()).sum();
        let now = self.now;
        self.tenants
            .retain(|_, t| !t.waiting.is_empty() || t.time > now);
    }
}

/// What an entry of this cost adds to the virtual time.
const fn charged(cost: Millis) -> f64 {
    cost.get().clamp(1.0, f64::MAX)
}

#[cfg(test)]
mod tests;
