//! Lets DNS and nodes join the network as machines of any network do: with a join token and a certificate signing request. Machines that
//! joined at an earlier start keep their identity.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use fdn_controller::Controller;
use fdn_controller::app::actor::Actor;
use fdn_controller::app::{fleet, join_token};
use fdn_controller::store::StoreError;
use fdn_controller::store::enrolment::{certificate_get, enrolment_get};
use fdn_controller::store::node::node_seen_at;
use fdn_core::enrol::Role;
use fdn_core::fleet::{CreateCluster, CreateJoinToken};
use fdn_core::message::STATUS_LIFETIME;
use fdn_core::{ClusterId, DurationMs, ErrorCode, NodeId, Timestamp};
use fdn_edge_agent::join::{Identity, JoinArgs, join};
use fdn_service::now;
use fdn_service::secret::{self, Secret};
use url::Url;

use super::network::failed;
use super::plan::{NodePlan, Plan};
use super::settings::Layout;
use crate::error::CliError;

/// The lifetime of a join token.
const TOKEN_TTL: DurationMs = DurationMs::from_secs(600);

/// Lets all machines join that have no valid identity.
pub(super) async fn machines(
    controller: &Controller,
    plan: &Plan,
    layout: &Layout,
    url: &Url,
    dns: &fdn_dns::Settings,
) -> Result<(), CliError> {
    for node in &plan.nodes {
        let data = layout.node(node);
        if !has_joined(controller, &data, Some(node.gateway.ip())).await? {
            wait_until_free(controller, &node.node).await?;
            cluster(controller, node).await?;
            token(controller, &node.cluster, Role::Node, layout).await?;
            let args = arguments(node, layout, url);
            let joined = join(&args, now()).await;
            joined.map_err(|e| failed("a node, which cannot join", &e))?;
        }
    }
    if !has_joined(controller, &dns.data_dir, None).await? {
        let Some(node) = plan.nodes.first() else {
            return Ok(());
        };
        token(controller, &node.cluster, Role::Dns, layout).await?;
        let args = fdn_dns::member::JoinArgs {
            url: url.to_string(),
            token_file: layout.join_token(),
            ca_file: None,
            proxy: None,
            cluster: None,
            address: Some(plan.listen.ip()).filter(|ip| !ip.is_unspecified()),
            again: true,
            allow_plain_http: true,
        };
        let joined = fdn_dns::member::join(&args, dns, now()).await;
        joined.map_err(|e| failed("DNS, which cannot join", &e))?;
    }
    // The token would stay valid for a while, but is no longer needed.
    drop(std::fs::remove_file(layout.join_token()));
    Ok(())
}

/// Whether a machine at this address has a valid identity: it does not expire soon, and the controller knows it unchanged.
async fn has_joined(
    controller: &Controller,
    data: &Path,
    at: Option<IpAddr>,
) -> Result<bool, CliError> {
    let facts = Identity::below(data).facts();
    let facts = facts.map_err(|e| failed("a machine, whose identity cannot be read", &e))?;
    let Some(facts) = facts.filter(|facts| now() < facts.expires_at) else {
        return Ok(false);
    };
    let mut connection = controller.state().store.read().await.map_err(store_error)?;
    let certificate = certificate_get(&mut connection, &facts.serial).await;
    let certificate = certificate.map_err(store_error)?;
    let enrolment = enrolment_get(&mut connection, &facts.identity.name).await;
    let enrolment = enrolment.map_err(store_error)?;
    Ok(certificate.is_some_and(|one| one.revoked_at.is_none())
        && enrolment.is_some_and(|one| {
            let moved = at.is_some_and(|at| one.addresses.gateway.ip() != at);
            one.removed_at.is_none() && !moved
        }))
}

/// Waits until the name of a node that never joined is free: an earlier release left its last status behind, and for a while such a node may be
/// alive.
async fn wait_until_free(controller: &Controller, node: &NodeId) -> Result<(), CliError> {
    let mut connection = controller.state().store.read().await.map_err(store_error)?;
    let enrolment = enrolment_get(&mut connection, node)
        .await
        .map_err(store_error)?;
    let seen = node_seen_at(&mut connection, node)
        .await
        .map_err(store_error)?;
    drop(connection);
    if enrolment.is_some_and(|one| one.removed_at.is_none()) {
        return Ok(());
    }
    tokio::time::sleep(free_in(seen, now())).await;
    Ok(())
}

/// How long a status received at `seen` still means that the node may be alive.
fn free_in(seen: Option<Timestamp>, now: Timestamp) -> Duration {
    let lifetime = STATUS_LIFETIME.as_duration();
    let left = seen.map(|seen| lifetime.saturating_sub(now.since(seen)));
    left.unwrap_or_default()
}

fn store_error(error: StoreError) -> CliError {
    failed("a machine, of which the database cannot be asked", &error)
}

async fn cluster(controller: &Controller, node: &NodePlan) -> Result<(), CliError> {
    let request = CreateCluster {
        cluster: node.cluster.clone(),
        region: node.region.clone(),
        location: Some(node.location),
    };
    match fleet::create(controller.state(), &Actor::network(), &request, now()).await {
        // Another node of the cluster created it.
        Ok(_) | Err(fdn_controller::Error::Conflict(_)) => Ok(()),
        Err(error) => Err(failed("the clusters", &error)),
    }
}

/// Writes a token for one machine to where joining reads it.
async fn token(
    controller: &Controller,
    cluster: &ClusterId,
    role: Role,
    layout: &Layout,
) -> Result<(), CliError> {
    let request = CreateJoinToken {
        role,
        cluster: cluster.clone(),
        ttl: TOKEN_TTL,
        uses: 1,
    };
    let made = join_token::create(controller.state(), &Actor::network(), &request, now()).await;
    let made = made.map_err(|e| failed("the join tokens", &e))?;
    let path = layout.join_token();
    secret::write(&path, &Secret::new(made.token)).map_err(|e| CliError::File {
        path,
        reason: e.to_string(),
        code: ErrorCode::DataDirectory,
    })
}

fn arguments(node: &NodePlan, layout: &Layout, url: &Url) -> JoinArgs {
    let data = layout.node(node);
    JoinArgs {
        url: url.to_string(),
        token_file: layout.join_token(),
        ca_file: None,
        proxy: None,
        node: Some(node.node.clone()),
        cluster: Some(node.cluster.clone()),
        region: None,
        config: data.join("edge-agent.toml"),
        data,
        address: Some(node.gateway.ip()).filter(|ip| !ip.is_unspecified()),
        gateway_port: node.gateway.port(),
        admin_port: node.admin.port(),
        peer_port: 0,
        no_peers: true,
        stage_port: None,
        controller_port: 0,
        names: Vec::new(),
        again: true,
        allow_plain_http: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_free_once_its_last_status_is_old() {
        let lifetime = STATUS_LIFETIME.as_millis();
        let free = |seen: Option<u64>, now| free_in(seen.map(Timestamp), Timestamp(now));
        assert_eq!(free(None, 5), Duration::ZERO);
        assert_eq!(free(Some(1000), 1000 + lifetime), Duration::ZERO);
        assert_eq!(
            free(Some(1000), 1000 + lifetime - 7),
            Duration::from_millis(7)
        );
    }
}
