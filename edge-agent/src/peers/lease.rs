//! The lease on being the head of the cluster, asked for at the controller.

use fdn_cluster::head::lease::{Asked, LeaseError, LeaseStore};
use fdn_core::ClusterId;
use fdn_core::enrol::{LeaseRequest, LeaseResponse};
use fdn_service::secret::Secret;

use crate::artifacts::without_url;

/// The longest answer that is read.
const ANSWER_MAX: usize = 64 << 10;

/// The controller's store of leases.
pub(super) struct ControllerLeases {
    pub(super) client: reqwest::Client,
    pub(super) url: String,
    pub(super) token: Secret,
}

impl LeaseStore for ControllerLeases {
    fn ask<'a>(&'a self, cluster: &'a ClusterId, request: &'a LeaseRequest) -> Asked<'a> {
        Box::pin(self.post(cluster, request))
    }
}

impl ControllerLeases {
    async fn post(
        &self,
        cluster: &ClusterId,
        request: &LeaseRequest,
    ) -> Result<LeaseResponse, LeaseError> {
        let unreachable = |error| LeaseError(without_url(error));
        let base = self.url.trim_end_matches('/');
        let url = format!("{base}/internal/v1/clusters/{cluster}/head-lease");
        let post = self.client.post(url).bearer_auth(self.token.expose());
        let mut answer = post.json(request).send().await.map_err(unreachable)?;
        let status = answer.status();
        if !status.is_success() {
            let status = status.as_u16();
            return Err(LeaseError(format!(
                "the controller answered status {status}"
            )));
        }
        let mut octets = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(unreachable)? {
            if octets.len() + chunk.len() > ANSWER_MAX {
                return Err(LeaseError("the answer is too long".to_owned()));
            }
            octets.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&octets).map_err(|error| LeaseError(error.to_string()))
    }
}
