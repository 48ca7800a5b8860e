//! A cache of signatures, so that each is made only once.
//!
//! The cache is bounded: each shard has two generations; when the younger one is full it becomes the older, and the content of the older
//! is dropped. A hit in the older generation moves the entry to the younger. A shard is locked for a lookup or an insertion, never while signing.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use prometheus::IntGauge;

/// The number of shards, each with its own lock to reduce contention.
const SHARDS: usize = 16;

/// The cache key of a signature: a digest of what it covers, and of the key.
pub type Id = [u8; 32];

/// A signature and its validity period, in seconds since 1970 (modulo 2^32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The two integers of an ECDSA signature (RFC 6605, section 4).
    pub bytes: [u8; 64],
    /// The beginning of the validity period.
    pub inception: u32,
    /// The end of the validity period.
    pub expiration: u32,
}

#[derive(Default)]
struct Generations {
    young: HashMap<Id, Signature>,
    old: HashMap<Id, Signature>,
}

/// The cached signatures.
pub struct Cache {
    shards: [Mutex<Generations>; SHARDS],
    /// The capacity of each generation of a shard.
    generation_capacity: usize,
    held: IntGauge,
}

impl Cache {
    /// Creates a cache for `max` signatures, and at least two in each of its 16 shards. `held` is set to the number of entries.
    #[must_use]
    pub fn new(max: usize, held: IntGauge) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            generation_capacity: (max / SHARDS / 2).max(1),
            held,
        }
    }

    fn shard(&self, id: &Id) -> MutexGuard<'_, Generations> {
        // The id is a digest, so any of its bytes is evenly distributed. Shards are valid after every single change.
        self.shards[usize::from(id[31]) % SHARDS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the signature cached under `id`.
    #[must_use]
    pub fn get(&self, id: &Id) -> Option<Signature> {
        let mut shard = self.shard(id);
        if let Some(found) = shard.young.get(id) {
            return Some(*found);
        }
        let found = shard.old.remove(id)?;
        self.held.dec();
        self.insert(&mut shard, *id, found);
        Some(found)
    }

    /// Caches a signature.
    pub fn put(&self, id: Id, signature: Signature) {
        let mut shard = self.shard(&id);
        self.insert(&mut shard, id, signature);
    }

    fn insert(&self, shard: &mut Generations, id: Id, signature: Signature) {
        if shard.young.len() >= self.generation_capacity && !shard.young.contains_key(&id) {
            let gone = std::mem::replace(&mut shard.old, std::mem::take(&mut shard.young));
            self.held.sub(i64::try_from(gone.len()).unwrap_or(0));
        }
        if shard.young.insert(id, signature).is_none() {
            self.held.inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> Id {
        let mut id = [0; 32];
        id[..4].copy_from_slice(&number.to_be_bytes());
        id[31] = u8::try_from(number % 256).expect("a byte");
        id
    }

    const ONE: Signature = Signature {
        bytes: [1; 64],
        inception: 0,
        expiration: 1,
    };

    #[test]
    fn it_never_holds_more_than_it_may_and_tells_how_much() {
        let held = IntGauge::new("held", "held").expect("gauge");
        let cache = Cache::new(320, held.clone());
        for number in 0..10_000 {
            cache.put(id(number), ONE);
            assert!(held.get() <= 320);
        }
        let found = (0..10_000).filter(|n| cache.get(&id(*n)).is_some()).count();
        assert_eq!(i64::try_from(found).expect("few"), held.get());
        assert!(found >= 160, "{found}");
        cache.put(
            id(9_999),
            Signature {
                expiration: 7,
                ..ONE
            },
        );
        assert_eq!(cache.get(&id(9_999)).expect("held").expiration, 7);
    }

    #[test]
    fn what_is_asked_for_stays() {
        let held = IntGauge::new("held", "held").expect("gauge");
        let cache = Cache::new(160, held);
        cache.put(id(0), ONE);
        for number in 1..5_000 {
            cache.put(id(number), ONE);
            assert_eq!(cache.get(&id(0)), Some(ONE), "after {number}");
        }
        assert_eq!(cache.get(&id(1)), None);
    }
}
