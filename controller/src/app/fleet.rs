//! Clusters, nodes and DNS servers: creating, showing, draining and removing them.

use std::collections::BTreeMap;

use fdn_core::api::{ClusterInfo, NodeInfo};
use fdn_core::enrol::Role;
use fdn_core::fleet::{
    CertificateInfo, ClusterDetail, CreateCluster, DnsServerInfo, HeadInfo, NodeDetail, NodeState,
};
use fdn_core::message::{NodeStatus, StageCounts};
use fdn_core::{ClusterId, NodeId, Resources, Timestamp};
use sqlx::AnyConnection;
use tracing::info;

use super::actor::Actor;
use super::authority::push_fleet;
use super::describe;
use super::enrol::{EnrolError, audit};
use crate::Error;
use crate::reconcile::node_registry::{AdminState, Hosts, NodeRegistry};
use crate::state::{State, lock};
use crate::store::audit::{AuditEntry, audit_insert};
use crate::store::cluster::{
    ClusterRow, cluster_create, cluster_get, cluster_list, region_get, region_insert,
};
use crate::store::device::device_restore_forget;
use crate::store::enrolment::{
    CertificateRow, EnrolmentRow, certificate_newest, certificate_revoke, cordon_delete,
    cordon_insert, cordon_list, enrolment_get, enrolment_list, enrolment_list_after,
    enrolment_remove,
};
use crate::store::lease::{lease_get, lease_release};
use crate::store::node::node_delete;
use crate::store::revision::{revision_current, revision_lock, revision_next};
use crate::store::{StoreError, in_transaction};

/// The operators' decisions on clusters and nodes, with the enrolments written after stamp `after`.
///
/// # Errors
/// When the store fails.
pub async fn admin_state(
    connection: &mut AnyConnection,
    after: u64,
) -> Result<AdminState, StoreError> {
    // The revision is read first: what is read after it may be newer than it says, but never older.
    let revision = revision_current(connection).await?;
    let (rows, stamp) = enrolment_list_after(connection, after).await?;
    let (removed, enrolled): (Vec<EnrolmentRow>, Vec<EnrolmentRow>) = rows
        .into_iter()
        .filter(|row| row.role == Role::Node)
        .partition(|row| row.removed_at.is_some());
    let hosts = |row: EnrolmentRow| {
        let hosts = Hosts::of(row.addresses.gateway, row.addresses.admin);
        (row.node, hosts)
    };
    let made = cluster_list(connection).await?.into_iter();
    let made = made.filter(|row| row.created_by.is_some());
    Ok(AdminState {
        revision,
        after,
        stamp,
        enrolled: enrolled.into_iter().map(hosts).collect(),
        places: made
            .map(|row| (row.id, (row.region, row.location)))
            .collect(),
        cordoned: cordon_list(connection).await?,
        removed: removed.into_iter().map(|row| row.node).collect(),
    })
}

/// Creates a cluster.
///
/// # Errors
/// When there is a cluster of this name, the location of its region is unknown, or the store fails.
pub async fn create(
    state: &State,
    actor: &Actor,
    request: &CreateCluster,
    now: Timestamp,
) -> Result<ClusterInfo, Error> {
    let place = in_transaction!(state.store, tx => {
        let known = region_get(&mut tx, &request.region).await?;
        let location = request.location.or(known).ok_or_else(|| Error::BadRequest(format!(
            "region {} is new: say where it is, with --location LAT,LON", request.region
        )))?;
        region_insert(&mut tx, &request.region, location, now).await?;
        let row = ClusterRow {
            id: request.cluster.clone(),
            region: request.region.clone(),
            location,
            created_by: Some(actor.to_string()),
        };
        if !cluster_create(&mut tx, &row, now).await? {
            return Err(Error::Conflict(format!(
                "there is a cluster {} already; `fdn cluster describe {}` shows it", request.cluster, request.cluster
            )));
        }
        let entry = AuditEntry {
            at: now,
            actor: actor.clone(),
            tenant: None,
            action: "cluster.create",
            subject: format!("cluster/{}", request.cluster),
            before: None,
            after: Some(serde_json::json!({ "region": row.region, "location": row.location }).to_string()),
        };
        audit_insert(&mut tx, &entry).await?;
        Ok::<_, Error>((row.region, row.location))
    })?;
    lock(&state.live).register_cluster(request.cluster.clone(), place);
    info!(cluster = %request.cluster, region = %request.region, %actor, "a cluster was made");
    Ok(cluster_detail(state, &request.cluster, now).await?.info)
}

/// All clusters, by name: those that operators created and those that nodes report.
///
/// # Errors
/// When the store fails.
pub async fn clusters(state: &State, now: Timestamp) -> Result<Vec<ClusterInfo>, Error> {
    let rows = cluster_list(&mut *state.store.read().await?).await?;
    let heard = describe::clusters_of(&lock(&state.live), now);
    let mut all: BTreeMap<ClusterId, ClusterInfo> = heard
        .into_iter()
        .map(|info| (info.cluster.clone(), info))
        .collect();
    for row in rows {
        let made = row.created_by.is_some();
        let info = all.entry(row.id.clone()).or_insert_with(|| empty(&row));
        if made {
            (info.region, info.location) = (row.region, row.location);
        }
    }
    Ok(all.into_values().collect())
}

fn empty(row: &ClusterRow) -> ClusterInfo {
    ClusterInfo {
        cluster: row.id.clone(),
        region: row.region.clone(),
        location: row.location,
        nodes_alive: 0,
        nodes_total: 0,
        speed: 0.0,
        capacity: Resources::default(),
        free: Resources::default(),
        slots: 0,
        busy: 0,
        gateways: Vec::new(),
    }
}

/// All nodes, by name: those that have reported and those that have joined but not reported yet.
///
/// # Errors
/// When the store fails.
pub async fn nodes(state: &State, now: Timestamp) -> Result<Vec<NodeInfo>, Error> {
    let mut connection = state.store.read().await?;
    let rows = enrolment_list(&mut connection).await?;
    let cordoned = cordon_list(&mut connection).await?;
    drop(connection);
    let live = lock(&state.live);
    let silent = rows
        .iter()
        .filter(|row| row.is_node() && live.node(&row.node).is_none())
        .map(joined);
    let mut all: BTreeMap<NodeId, NodeInfo> = silent
        .chain(live.nodes().map(|seen| describe::node(seen, now)))
        .map(|info| (info.node.clone(), info))
        .collect();
    for node in &cordoned {
        if let Some(info) = all.get_mut(node) {
            info.cordoned = true;
        }
    }
    Ok(all.into_values().collect())
}

/// A node that has joined but not reported yet.
fn joined(row: &EnrolmentRow) -> NodeInfo {
    NodeInfo {
        node: row.node.clone(),
        cluster: row.cluster.clone(),
        gateway: row.addresses.gateway,
        admin: row.addresses.admin,
        version: String::new(),
        alive: false,
        state: NodeState::Joined,
        cordoned: false,
        seen_at: row.enrolled_at,
        capacity: Resources::default(),
        free: Resources::default(),
        slots: 0,
        busy: 0,
        apps: Vec::new(),
    }
}

/// All details of a cluster.
///
/// # Errors
/// When there is no cluster of this name or the store fails.
pub async fn cluster_detail(
    state: &State,
    cluster: &ClusterId,
    now: Timestamp,
) -> Result<ClusterDetail, Error> {
    let info = clusters(state, now).await?;
    let info = info.into_iter().find(|info| info.cluster == *cluster);
    let info = info.ok_or_else(|| Error::no_cluster(cluster))?;
    let nodes: Vec<NodeInfo> = nodes(state, now)
        .await?
        .into_iter()
        .filter(|node| node.cluster == *cluster)
        .collect();
    let lease = lease_get(&mut *state.store.read().await?, cluster).await?;
    let head = lease
        .filter(|row| now < row.expires_at)
        .map(|row| HeadInfo {
            node: row.holder,
            epoch: row.epoch,
            expires_at: row.expires_at,
        });
    let statuses = statuses(&lock(&state.live), cluster, now);
    let links = state.world(now).links(cluster);
    let mut versions = BTreeMap::new();
    for status in &statuses {
        *versions.entry(status.version.clone()).or_insert(0) += 1;
    }
    Ok(ClusterDetail {
        info,
        nodes,
        head,
        waiting: statuses
            .iter()
            .fold(0, |sum: u32, status| sum.saturating_add(status.waiting)),
        stages: statuses
            .iter()
            .filter_map(|status| status.stages)
            .reduce(StageCounts::plus),
        versions,
        statuses,
        links,
    })
}

fn statuses(live: &NodeRegistry, cluster: &ClusterId, now: Timestamp) -> Vec<NodeStatus> {
    live.alive(now)
        .filter(|seen| seen.status.cluster == *cluster)
        .map(|seen| seen.status.clone())
        .collect()
}

/// All details of a node.
///
/// # Errors
/// When there is no node of this name or the store fails.
pub async fn node_detail(
    state: &State,
    node: &NodeId,
    now: Timestamp,
) -> Result<NodeDetail, Error> {
    let info = nodes(state, now).await?;
    let info = info.into_iter().find(|info| info.node == *node);
    let info = info.ok_or_else(|| Error::no_node(node))?;
    let mut connection = state.store.read().await?;
    let enrolment = enrolment_get(&mut connection, node).await?;
    let enrolment = enrolment.filter(EnrolmentRow::is_node);
    let certificate = match &enrolment {
        Some(_) => certificate_newest(&mut connection, node).await?,
        None => None,
    };
    let stored = cluster_get(&mut connection, &info.cluster).await?;
    drop(connection);
    let status = lock(&state.live).node(node).map(|seen| seen.status.clone());
    let region = status
        .as_ref()
        .map(|status| status.region.clone())
        .or(stored.map(|row| row.region));
    Ok(NodeDetail {
        region: region.ok_or_else(|| Error::no_cluster(&info.cluster))?,
        info,
        enrolled_at: enrolment.map(|row| row.enrolled_at),
        certificate: certificate.map(shown),
        status,
    })
}

/// Sets whether a node accepts new work. Setting it again changes nothing.
///
/// # Errors
/// When there is no such node or the store fails.
pub async fn cordon(
    state: &State,
    actor: &Actor,
    node: &NodeId,
    cordoned: bool,
    now: Timestamp,
) -> Result<NodeDetail, Error> {
    // Fails before anything is written if there is no such node.
    node_detail(state, node, now).await?;
    let action = if cordoned {
        "node.drain"
    } else {
        "node.uncordon"
    };
    let after = lock(&state.live).admin_state().stamp;
    let admin_state: Option<AdminState> = in_transaction!(state.store, tx => {
        revision_lock(&mut tx).await?;
        let changed = if cordoned {
            cordon_insert(&mut tx, node, &actor.name, now).await?
        } else {
            cordon_delete(&mut tx, node).await?
        };
        if !changed {
            return Ok(None);
        }
        let revision = revision_next(&mut tx).await?;
        push_fleet(state, &mut tx, revision, now).await?;
        let state_of = |cordoned: bool| Some(serde_json::json!({ "cordoned": cordoned }));
        audit(&mut tx, actor, action, node, (state_of(!cordoned), state_of(cordoned)), now).await?;
        Ok::<_, Error>(Some(admin_state(&mut tx, after).await?))
    })?;
    if let Some(admin_state) = admin_state {
        lock(&state.live).set_admin_state(admin_state);
        state.outbox_wake.notify_one();
        state.planner_wake.notify_one();
        info!(%node, cordoned, %actor, "a node's work was changed");
    }
    node_detail(state, node, now).await
}

/// Removes a node: its certificates are revoked, and its name is free again. A node that accepts or does work is removed only with `force`.
///
/// # Errors
/// When there is no such node, it is at work, or the store fails.
pub async fn remove(
    state: &State,
    actor: &Actor,
    node: &NodeId,
    force: bool,
    now: Timestamp,
) -> Result<(), Error> {
    let detail = node_detail(state, node, now).await?;
    match detail.info.state {
        NodeState::Joined | NodeState::Lost | NodeState::Drained => {}
        NodeState::Alive | NodeState::Draining if force => {}
        state @ (NodeState::Alive | NodeState::Draining) => {
            let node = node.clone();
            return Err(EnrolError::AtWork { node, state }.into());
        }
    }
    let after = lock(&state.live).admin_state().stamp;
    let admin_state: AdminState = in_transaction!(state.store, tx => {
        let revision = revision_next(&mut tx).await?;
        enrolment_remove(&mut tx, node, now).await?;
        certificate_revoke(&mut tx, node, now).await?;
        cordon_delete(&mut tx, node).await?;
        device_restore_forget(&mut tx, node).await?;
        lease_release(&mut tx, node, now).await?;
        node_delete(&mut tx, node).await?;
        push_fleet(state, &mut tx, revision, now).await?;
        let before = serde_json::json!({ "cluster": detail.info.cluster, "state": detail.info.state });
        audit(&mut tx, actor, "node.remove", node, (Some(before), None), now).await?;
        Ok::<_, Error>(admin_state(&mut tx, after).await?)
    })?;
    {
        let mut live = lock(&state.live);
        live.set_admin_state(admin_state);
        live.forget(node);
    }
    state.outbox_wake.notify_one();
    state.planner_wake.notify_one();
    info!(%node, %actor, force, "a node was removed");
    Ok(())
}

/// The DNS servers that have joined, by name.
///
/// # Errors
/// When the store fails.
pub async fn dns_servers(state: &State) -> Result<Vec<DnsServerInfo>, Error> {
    let mut connection = state.store.read().await?;
    let connected = state.edge.machines.connected();
    let mut servers = Vec::new();
    for row in enrolment_list(&mut connection).await? {
        if row.role != Role::Dns || row.removed_at.is_some() {
            continue;
        }
        let certificate = certificate_newest(&mut connection, &row.node).await?;
        servers.push(DnsServerInfo {
            connected: connected.contains(&row.node),
            certificate: certificate.map(shown),
            server: row.node,
            cluster: row.cluster,
            addresses: row.addresses,
            enrolled_at: row.enrolled_at,
        });
    }
    Ok(servers)
}

/// Removes a DNS server: its certificates are revoked, and its name is free again.
///
/// # Errors
/// When there is no such server, or the store fails.
pub async fn dns_remove(
    state: &State,
    actor: &Actor,
    server: &NodeId,
    now: Timestamp,
) -> Result<(), Error> {
    in_transaction!(state.store, tx => {
        let revision = revision_next(&mut tx).await?;
        let row = enrolment_get(&mut tx, server).await?;
        let row = row.filter(|row| row.role == Role::Dns && row.removed_at.is_none());
        let row = row.ok_or_else(|| Error::NotFound {
            what: format!("DNS server {server}"),
            hint: "`fdn dns servers` shows what exists",
        })?;
        enrolment_remove(&mut tx, server, now).await?;
        certificate_revoke(&mut tx, server, now).await?;
        push_fleet(state, &mut tx, revision, now).await?;
        let before = serde_json::json!({ "cluster": row.cluster });
        audit(&mut tx, actor, "dns.remove", server, (Some(before), None), now).await
    })?;
    state.outbox_wake.notify_one();
    info!(%server, %actor, "a DNS server was removed");
    Ok(())
}

fn shown(row: CertificateRow) -> CertificateInfo {
    CertificateInfo {
        serial: row.serial,
        issued_at: row.issued_at,
        expires_at: row.expires_at,
    }
}
