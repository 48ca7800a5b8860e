//! The lease of the cluster's head, requested from the controller.

use std::time::Duration;

use fdn_cluster::head::lease::{Asked, LeaseError, LeaseStore};
use fdn_core::ClusterId;
use fdn_core::enrol::LeaseRequest;
use fdn_link::{SharedCentre, ask_json};

/// The controller's lease store. The controller takes the cluster from the node's certificate.
pub(super) struct ControllerLeases {
    pub(super) centre: SharedCentre,
    pub(super) timeout: Duration,
}

impl LeaseStore for ControllerLeases {
    fn ask<'a>(&'a self, _cluster: &'a ClusterId, request: &'a LeaseRequest) -> Asked<'a> {
        Box::pin(async move {
            let asked = ask_json(&*self.centre, "/edge/v1/lease", request, self.timeout).await;
            asked.map_err(|error| LeaseError(error.to_string()))
        })
    }
}
