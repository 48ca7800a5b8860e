//! The places of uploads: a controller handles a limited number at the same time, and one tenant cannot take all of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fdn_core::TenantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Error;
use crate::state::lock;

/// How many places each tenant holds; those without any are not in it.
type Held = Arc<Mutex<BTreeMap<TenantId, usize>>>;

/// The places of a controller.
pub(super) struct UploadPlaces {
    room: Arc<Semaphore>,
    /// The most places of one tenant. The others stay free for other tenants: whoever sends as slowly as is allowed would otherwise keep everybody from
    /// deploying.
    most: usize,
    held: Held,
}

impl UploadPlaces {
    /// `parallel` places, of which a tenant may hold all but one.
    pub(super) fn new(parallel: usize) -> Self {
        Self {
            room: Arc::new(Semaphore::new(parallel)),
            most: parallel.saturating_sub(1).max(1),
            held: Held::default(),
        }
    }

    /// Takes a place.
    ///
    /// # Errors
    /// When all places are taken, or the tenant has its share of them.
    pub(super) fn acquire(&self, tenant: TenantId) -> Result<UploadPlace, Error> {
        let too_many = || Error::TooMany {
            what: "too many uploads at once",
            after: Duration::from_secs(5),
        };
        let mut held = lock(&self.held);
        if held.get(&tenant).is_some_and(|count| *count >= self.most) {
            return Err(too_many());
        }
        let permit = Arc::clone(&self.room).try_acquire_owned();
        let permit = permit.map_err(|_| too_many())?;
        *held.entry(tenant).or_default() += 1;
        Ok(UploadPlace {
            tenant,
            held: Arc::clone(&self.held),
            _permit: permit,
        })
    }
}

/// A place of an upload. It is given back when this is dropped.
#[derive(Debug)]
pub struct UploadPlace {
    tenant: TenantId,
    held: Held,
    _permit: OwnedSemaphorePermit,
}

impl Drop for UploadPlace {
    fn drop(&mut self) {
        let mut held = lock(&self.held);
        let left = held
            .get(&self.tenant)
            .map_or(0, |count| count.saturating_sub(1));
        match left {
            0 => held.remove(&self.tenant),
            left => held.insert(self.tenant, left),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(n: u128) -> TenantId {
        TenantId::from_uuid(uuid::Uuid::from_u128(n))
    }

    #[test]
    fn a_tenant_leaves_one_place_to_others() {
        for (parallel, most) in [(1, 1), (2, 1), (3, 2), (4, 3), (5, 4)] {
            let places = UploadPlaces::new(parallel);
            let taken: Vec<UploadPlace> = (0..parallel)
                .filter_map(|_| places.acquire(tenant(1)).ok())
                .collect();
            assert_eq!(taken.len(), most, "of {parallel}");
            let others: Vec<UploadPlace> = (0..parallel)
                .filter_map(|n| places.acquire(tenant(2 + n as u128)).ok())
                .collect();
            assert_eq!(
                others.len(),
                parallel - most,
                "the rest of {parallel} is for others, and there are no more"
            );
        }
    }

    #[test]
    fn a_place_that_is_given_back_is_free_and_nothing_is_remembered() {
        let places = UploadPlaces::new(3);
        let (first, second) = (places.acquire(tenant(1)), places.acquire(tenant(1)));
        let error = places.acquire(tenant(1)).expect_err("it has its share");
        assert!(matches!(error, Error::TooMany { .. }), "{error}");
        drop(first);
        let third = places.acquire(tenant(1));
        assert!(third.is_ok() && places.acquire(tenant(1)).is_err());
        drop((second, third));
        assert!(lock(&places.held).is_empty());
        assert_eq!(places.room.available_permits(), 3);
    }
}
