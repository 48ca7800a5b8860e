//! The lease on being the head, in the controller's store.
//!
//! While the store is reachable, it determines which candidate stands for election; it does not itself make a head ([`super`]), so that only speed
//! depends on it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fdn_core::enrol::{LeaseRequest, LeaseResponse};
use fdn_core::{ClusterId, NodeId};

/// The store could not be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease of the head cannot be asked for: {0}")]
pub struct LeaseError(pub String);

/// A pending answer.
pub type LeaseFuture<'a> =
    Pin<Box<dyn Future<Output = Result<LeaseResponse, LeaseError>> + Send + 'a>>;

/// A store of leases: in production `POST /edge/v1/lease`. Each call is one atomic step: a free or expired lease
/// goes to the requester, under the next epoch; a holder who names its epoch keeps it.
pub trait LeaseStore: Send + Sync + 'static {
    /// Requests the lease.
    fn acquire<'a>(&'a self, cluster: &'a ClusterId, request: &'a LeaseRequest) -> LeaseFuture<'a>;
}

/// A store in this process: for the network in one process, and for tests.
#[derive(Clone, Debug, Default)]
pub struct MemoryLeases(Arc<Mutex<BTreeMap<ClusterId, Lease>>>);

#[derive(Clone, Debug)]
struct Lease {
    holder: NodeId,
    epoch: u64,
    until: Instant,
}

impl MemoryLeases {
    /// Requests the lease at a given time.
    #[must_use]
    pub fn acquire_at(
        &self,
        now: Instant,
        cluster: &ClusterId,
        request: &LeaseRequest,
    ) -> LeaseResponse {
        let mut leases = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let until = now + Duration::from_millis(request.ttl_ms);
        let held = leases.entry(cluster.clone()).or_insert_with(|| Lease {
            holder: request.node.clone(),
            epoch: 0,
            until: now,
        });
        let is_holder = held.holder == request.node;
        if is_holder && request.epoch == Some(held.epoch) {
            held.until = until;
        } else if held.until <= now || is_holder && request.epoch.is_none() {
            *held = Lease {
                holder: request.node.clone(),
                epoch: held.epoch + 1,
                until,
            };
        }
        let left = held.until.saturating_duration_since(now);
        LeaseResponse {
            holder: held.holder.clone(),
            epoch: held.epoch,
            expires_ms: u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl LeaseStore for MemoryLeases {
    fn acquire<'a>(&'a self, cluster: &'a ClusterId, request: &'a LeaseRequest) -> LeaseFuture<'a> {
        Box::pin(async move { Ok(self.acquire_at(Instant::now(), cluster, request)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_has_one_holder_until_it_expires() {
        let store = MemoryLeases::default();
        let cluster: ClusterId = "paris-1".parse().unwrap();
        let ask = |node: &str, epoch| LeaseRequest {
            node: node.parse().unwrap(),
            epoch,
            ttl_ms: 1000,
        };
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let asked = |ms, node, epoch| {
            let answer = store.acquire_at(at(ms), &cluster, &ask(node, epoch));
            (answer.holder.to_string(), answer.epoch, answer.expires_ms)
        };
        let is = |holder: &str, epoch, expires_ms| (holder.to_owned(), epoch, expires_ms);
        assert_eq!(asked(0, "a", None), is("a", 1, 1000));
        assert_eq!(asked(500, "b", None), is("a", 1, 500));
        assert_eq!(asked(900, "a", Some(1)), is("a", 1, 1000), "kept");
        assert_eq!(asked(1800, "b", None), is("a", 1, 100));
        assert_eq!(asked(1900, "b", None), is("b", 2, 1000));
        assert_eq!(
            asked(1901, "a", Some(1)),
            is("b", 2, 999),
            "no longer its own"
        );
        assert_eq!(asked(1902, "b", None), is("b", 3, 1000), "begun anew");
        assert_eq!(
            asked(1903, "b", Some(2)),
            is("b", 3, 999),
            "an old epoch keeps nothing"
        );
        let other: ClusterId = "paris-2".parse().unwrap();
        let first = store.acquire_at(at(0), &other, &ask("c", None));
        assert_eq!((first.epoch, first.expires_ms), (1, 1000));
    }
}
