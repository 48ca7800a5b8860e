//! The lease on being the head, in the controller's store.
//!
//! The store orders candidates while it can be reached; it is not what makes a head ([`super`]), so that nothing but speed depends on it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fdn_core::{ClusterId, NodeId};
use serde::{Deserialize, Serialize};

/// A candidate asks for the lease, or for more time on it. Also the body of `POST /internal/v1/clusters/{cluster}/head-lease`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseRequest {
    /// Who asks.
    pub node: NodeId,
    /// For how many milliseconds.
    pub ttl_ms: u64,
}

/// Who has it now. Also the answer's body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The holder: the one who asked, or another.
    pub holder: NodeId,
    /// For how many milliseconds more.
    pub remaining_ms: u64,
}

/// The store could not be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease of the head cannot be asked for: {0}")]
pub struct LeaseError(pub String);

/// An answer on its way.
pub type Asked<'a> = Pin<Box<dyn Future<Output = Result<Lease, LeaseError>> + Send + 'a>>;

/// Where the lease is kept. One call is one atomic step: free or expired, it goes to who asks; the holder's own is extended.
pub trait LeaseStore: Send + Sync + 'static {
    /// Asks for the lease.
    fn ask<'a>(&'a self, cluster: &'a ClusterId, request: &'a LeaseRequest) -> Asked<'a>;
}

/// A store in this process: for the network in one process, and for tests.
#[derive(Clone, Debug, Default)]
pub struct MemoryLeases(Arc<Mutex<BTreeMap<ClusterId, (NodeId, Instant)>>>);

impl MemoryLeases {
    /// One step at that moment.
    #[must_use]
    pub fn ask_at(&self, now: Instant, cluster: &ClusterId, request: &LeaseRequest) -> Lease {
        let mut leases = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let until = now + Duration::from_millis(request.ttl_ms);
        let held = leases
            .entry(cluster.clone())
            .or_insert_with(|| (request.node.clone(), until));
        if held.0 == request.node || held.1 <= now {
            *held = (request.node.clone(), until);
        }
        let remaining = held.1.saturating_duration_since(now);
        Lease {
            holder: held.0.clone(),
            remaining_ms: u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl LeaseStore for MemoryLeases {
    fn ask<'a>(&'a self, cluster: &'a ClusterId, request: &'a LeaseRequest) -> Asked<'a> {
        Box::pin(async move { Ok(self.ask_at(Instant::now(), cluster, request)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_has_one_holder_until_it_expires() {
        let store = MemoryLeases::default();
        let cluster: ClusterId = "paris-1".parse().unwrap();
        let ask = |node: &str| LeaseRequest {
            node: node.parse().unwrap(),
            ttl_ms: 1000,
        };
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let holder = |ms, node| {
            store
                .ask_at(at(ms), &cluster, &ask(node))
                .holder
                .to_string()
        };
        assert_eq!(holder(0, "a"), "a");
        assert_eq!(holder(500, "b"), "a");
        assert_eq!(holder(900, "a"), "a", "extended until 1900");
        assert_eq!(holder(1800, "b"), "a");
        assert_eq!(holder(1900, "b"), "b");
        assert_eq!(holder(1901, "a"), "b");
        let other: ClusterId = "paris-2".parse().unwrap();
        assert_eq!(store.ask_at(at(0), &other, &ask("c")).remaining_ms, 1000);
    }
}
