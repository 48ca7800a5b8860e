//! The lease of the cluster's head, requested from the controller.

use std::time::Duration;

use fdn_cluster::head::lease::{LeaseError, LeaseFuture, LeaseStore};
use fdn_core::ClusterId;
use fdn_core::enrol::LeaseRequest;
use fdn_link::{SharedControllerLink, post_json};

/// The controller's lease store. The controller takes the cluster from the node's certificate.
pub(super) struct ControllerLeases {
    pub(super) centre: SharedControllerLink,
    pub(super) timeout: Duration,
}

impl LeaseStore for ControllerLeases {
    fn acquire<'a>(
        &'a self,
        _cluster: &'a ClusterId,
        request: &'a LeaseRequest,
    ) -> LeaseFuture<'a> {
        Box::pin(async move {
            let asked = post_json(&*self.centre, "/edge/v1/lease", request, self.timeout).await;
            asked.map_err(|error| LeaseError(error.to_string()))
        })
    }
}
