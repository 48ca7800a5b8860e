//! Whose job is next: shares of equal size for the tenants that wait, so that nobody's burst holds up somebody else's single job.
//!
//! **Problem.** A dispatcher can start some jobs at a time and holds a bounded number of them that wait, of many tenants. Tenants that have
//! something to start shall get equal shares of the work that is started, whatever they submit, and none shall wait for ever.
//!
//! **Source.** Start-time fair queueing (Goyal, Vin, Cheng: IEEE/ACM Transactions on Networking 5(5), 1997): every tenant has a virtual time,
//! which grows by the cost of what it starts; the one with the least is next. A tenant that comes back after it had nothing to start begins
//! at the present virtual time: it has saved up nothing, and owes nothing for having been alone. Deficit round robin gives the same
//! shares in larger pieces.
//!
//! **Deviation.** A tenant of which nothing may start now (its functions run as often as they may) is passed over and treated as one that has
//! nothing: when it may again it gets its share, not what it missed.
//!
//! **Invariants.** Between two tenants that both have something to start all the while, the costs started differ by at most the sum of their
//! largest costs. Within a tenant the higher priority goes first, then what was submitted first. At most [`Limits`] entries are held.
//!
//! **Complexity.** O(log n) to put in, O(t + b) to take for t tenants and b entries passed over because they may not start.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use fdn_core::Millis;

/// How much is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Entries of all tenants together.
    pub total: usize,
    /// Entries of one tenant.
    pub tenant: usize,
}

/// What waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry<T> {
    /// The priority within the tenant; higher first.
    pub priority: u8,
    /// What goes first among equals, such as the time of submission.
    pub order: u64,
    /// How much work it is expected to be; less than a millisecond counts as one.
    pub cost: Millis,
    /// The thing itself.
    pub item: T,
}

/// Entries that wait, by tenant.
#[derive(Debug)]
pub struct Pool<K, T> {
    limits: Limits,
    tenants: BTreeMap<K, Tenant<T>>,
    held: usize,
    entered: u64,
    /// The virtual time of what was started last.
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

    /// Entries held.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.held
    }

    /// Whether nothing is held.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// How many more entries of a tenant there is room for.
    #[must_use]
    pub fn room(&self, tenant: &K) -> usize {
        let own = self.tenants.get(tenant).map_or(0, |t| t.waiting.len());
        let all = self.limits.total.saturating_sub(self.held);
        self.limits.tenant.saturating_sub(own).min(all)
    }

    /// Puts an entry in.
    ///
    /// # Errors
    /// The item, when there is no room for it.
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
        let cost = entry.cost.get().clamp(1.0, f64::MAX);
        tenant.waiting.insert(rank, (cost, entry.item));
        Ok(())
    }

    /// Takes the entry that is next among those that `may` start.
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
            // Whoever stood before the one that was taken could start nothing.
            if other.time < start && *key != tenant {
                other.time = start;
            }
        }
        // One that has nothing left is forgotten once it owes nothing, so that tenants who are gone take no room.
        let now = self.now;
        self.tenants
            .retain(|_, t| !t.waiting.is_empty() || t.time > now);
        Some((tenant, item))
    }

    /// Keeps only the entries that `keep` says.
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

#[cfg(test)]
mod tests;
