//! Signatures that were made, so that no query pays for one that another has paid for.
//!
//! Bounded whatever is asked: each shard has two halves, and when the younger is full it becomes the older, whose content goes. What is
//! asked for again is moved into the younger one. A shard is locked for a look-up or an insertion, never while something is signed.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use prometheus::IntGauge;

/// Parts with a lock of their own, so that threads seldom meet.
const SHARDS: usize = 16;

/// What a signature is kept under.
pub type Id = [u8; 32];

/// A signature and its time, in seconds since 1970 (modulo 2^32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The two numbers of an ECDSA signature (RFC 6605, section 4).
    pub bytes: [u8; 64],
    /// From when it holds.
    pub inception: u32,
    /// Until when.
    pub expiration: u32,
}

#[derive(Default)]
struct Halves {
    young: HashMap<Id, Signature>,
    old: HashMap<Id, Signature>,
}

/// The signatures.
pub struct Cache {
    shards: [Mutex<Halves>; SHARDS],
    /// How many each half of a shard holds.
    half: usize,
    held: IntGauge,
}

impl Cache {
    /// Holds `most` signatures, and not fewer than two in each of its 16 parts. `held` tells how many it has.
    #[must_use]
    pub fn new(most: usize, held: IntGauge) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            half: (most / SHARDS / 2).max(1),
            held,
        }
    }

    fn shard(&self, id: &Id) -> MutexGuard<'_, Halves> {
        // The id is a digest: any of its bytes is as good as another. Halves are valid after every single change.
        self.shards[usize::from(id[31]) % SHARDS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The signature kept under `id`.
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

    /// Keeps a signature.
    pub fn put(&self, id: Id, signature: Signature) {
        let mut shard = self.shard(&id);
        self.insert(&mut shard, id, signature);
    }

    fn insert(&self, shard: &mut Halves, id: Id, signature: Signature) {
        if shard.young.len() >= self.half && !shard.young.contains_key(&id) {
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
