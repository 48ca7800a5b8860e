//! Clusters, nodes, DNS servers and join tokens, as typed calls.

use fdn_core::api::{ClusterInfo, NodeInfo};
use fdn_core::fleet::{
    ClusterDetail, CreateCluster, CreateJoinToken, CreatedJoinToken, DnsServerInfo, JoinTokenInfo,
    NodeDetail, RestoreDevice,
};
use fdn_core::{ClusterId, DeviceId, JoinTokenId, NodeId};
use reqwest::Method;

use super::{Client, read, send};
use crate::error::CliError;

impl Client {
    /// All clusters.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn clusters(&self) -> Result<Vec<ClusterInfo>, CliError> {
        self.list(&["v1", "clusters"], &[]).await
    }

    /// All nodes.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn nodes(&self) -> Result<Vec<NodeInfo>, CliError> {
        self.list(&["v1", "nodes"], &[]).await
    }

    /// Creates a cluster.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn create_cluster(&self, body: &CreateCluster) -> Result<ClusterInfo, CliError> {
        read(self.request(Method::POST, &["v1", "clusters"])?.json(body)).await
    }

    /// One cluster.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn cluster(&self, cluster: &ClusterId) -> Result<ClusterDetail, CliError> {
        read(self.request(Method::GET, &["v1", "clusters", cluster.as_str()])?).await
    }

    /// One node.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn node(&self, node: &NodeId) -> Result<NodeDetail, CliError> {
        read(self.request(Method::GET, &["v1", "nodes", node.as_str()])?).await
    }

    /// Drains a node: it takes no new work.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn drain(&self, node: &NodeId) -> Result<NodeDetail, CliError> {
        read(self.request(Method::POST, &["v1", "nodes", node.as_str(), "drain"])?).await
    }

    /// Lets a drained node take work again.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn uncordon(&self, node: &NodeId) -> Result<NodeDetail, CliError> {
        read(self.request(Method::POST, &["v1", "nodes", node.as_str(), "uncordon"])?).await
    }

    /// Puts a device of a node back into service.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn restore_device(
        &self,
        node: &NodeId,
        device: &DeviceId,
    ) -> Result<NodeDetail, CliError> {
        let body = RestoreDevice {
            device: device.clone(),
        };
        let path = ["v1", "nodes", node.as_str(), "restore-device"];
        read(self.request(Method::POST, &path)?.json(&body)).await
    }

    /// Removes a node.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn remove_node(&self, node: &NodeId, force: bool) -> Result<(), CliError> {
        let request = self.request(Method::DELETE, &["v1", "nodes", node.as_str()])?;
        send(request.query(&[("force", force)])).await.map(drop)
    }

    /// Creates a join token.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn create_join_token(
        &self,
        body: &CreateJoinToken,
    ) -> Result<CreatedJoinToken, CliError> {
        read(
            self.request(Method::POST, &["v1", "join-tokens"])?
                .json(body),
        )
        .await
    }

    /// All join tokens.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn join_tokens(&self) -> Result<Vec<JoinTokenInfo>, CliError> {
        self.list(&["v1", "join-tokens"], &[]).await
    }

    /// Revokes a join token.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn revoke_join_token(&self, id: JoinTokenId) -> Result<(), CliError> {
        send(self.request(Method::DELETE, &["v1", "join-tokens", &id.to_string()])?)
            .await
            .map(drop)
    }

    /// The DNS servers that have joined.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn dns_servers(&self) -> Result<Vec<DnsServerInfo>, CliError> {
        self.list(&["v1", "dns-servers"], &[]).await
    }

    /// Removes a DNS server.
    ///
    /// # Errors
    /// As for [`Self::network`].
    pub async fn remove_dns_server(&self, server: &NodeId) -> Result<(), CliError> {
        let request = self.request(Method::DELETE, &["v1", "dns-servers", server.as_str()])?;
        send(request).await.map(drop)
    }
}
