//! Machines that enrol, and requests about them.

use fdn_core::NodeId;
use fdn_core::api::{ClusterInfo, DnsSnapshot};
use fdn_core::enrol::{EnrolRequest, NodeAddresses, RenewRequest, Role};
use fdn_core::fleet::{CreatedJoinToken, NodeDetail, NodeState};
use fdn_service::pki::NodeKey;
use fdn_testkit::wait;
use reqwest::{Method, RequestBuilder};
use serde_json::json;
use tempfile::TempDir;

use crate::rig::Rig;

/// A machine with its own key.
pub(crate) struct Machine {
    pub(crate) key: NodeKey,
    _folder: TempDir,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let key = NodeKey::read_or_create(&folder.path().join("key")).expect("a key");
        Self {
            key,
            _folder: folder,
        }
    }

    /// A request to renew the certificate with this serial number.
    pub(crate) fn renewal(&self, serial: &str) -> RenewRequest {
        let (at, addresses) = (fdn_service::now(), addresses(1));
        let text = RenewRequest::signed_text(serial, at, &addresses);
        RenewRequest {
            serial: serial.to_owned(),
            at,
            signature: self.key.sign(&text).expect("signed"),
            addresses,
        }
    }

    pub(crate) fn request(&self, node: &str, token: &str) -> EnrolRequest {
        let node: NodeId = node.parse().expect("node");
        EnrolRequest {
            token: token.to_owned(),
            csr: self.key.request(&node).expect("a request"),
            role: Role::Node,
            node,
            addresses: addresses(1),
            cluster: None,
            region: None,
        }
    }
}

pub(crate) fn addresses(n: u8) -> NodeAddresses {
    NodeAddresses {
        gateway: format!("127.0.9.{n}:8080").parse().expect("address"),
        admin: format!("127.0.9.{n}:8081").parse().expect("address"),
        peer: None,
        names: Vec::new(),
    }
}

impl Rig {
    pub(crate) async fn cluster(&self, name: &str) -> ClusterInfo {
        self.cluster_at(name, 53.35, -6.26).await
    }

    pub(crate) async fn cluster_at(&self, name: &str, lat: f64, lon: f64) -> ClusterInfo {
        let body =
            json!({ "cluster": name, "region": "eu", "location": { "lat": lat, "lon": lon } });
        self.json(self.request(Method::POST, "/v1/clusters").json(&body))
            .await
    }

    pub(crate) async fn token(&self, cluster: &str, uses: u32) -> CreatedJoinToken {
        let body = json!({ "cluster": cluster, "ttl": "1h", "uses": uses });
        self.json(self.request(Method::POST, "/v1/join-tokens").json(&body))
            .await
    }

    /// Makes all certificates 25 days older, so that they are due for renewal.
    pub(crate) async fn age_certificates(&self) {
        let store = &self.controller.state().store;
        let mut connection = store.read().await.expect("a connection");
        sqlx::query("UPDATE certificates SET issued_at = issued_at - 2160000000, expires_at = expires_at - 2160000000")
            .execute(&mut *connection)
            .await
            .expect("older");
    }

    pub(crate) fn enrol(&self, request: &EnrolRequest) -> RequestBuilder {
        self.anonymous(Method::POST, "/v1/nodes/enrol")
            .json(request)
    }

    pub(crate) async fn code(&self, request: RequestBuilder) -> String {
        self.refused(request).await.1.code.as_str().to_owned()
    }

    pub(crate) async fn state(&self, node: &str) -> NodeState {
        let detail: NodeDetail = self.get(&format!("/v1/nodes/{node}")).await;
        detail.info.state
    }

    /// The number of gateways that DNS servers answer with for a cluster.
    pub(crate) async fn gateways(&self, cluster: &str) -> usize {
        let snapshot: DnsSnapshot = self.dns_snapshot().await;
        let found = snapshot
            .network
            .clusters
            .iter()
            .find(|c| c.cluster.as_str() == cluster);
        found.map_or(0, |spec| spec.gateways.len())
    }
}

pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    wait::until(what, async || {
        if holds().await {
            Ok(())
        } else {
            Err("not yet")
        }
    })
    .await;
}
