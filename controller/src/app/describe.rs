//! Read access to the state: network, clusters, nodes and apps.

use std::collections::BTreeMap;

use fdn_core::api::{
    AppDetail, AppSummary, BindingInfo, ClusterInfo, NetworkInfo, NodeInfo, NodeProgress,
    VersionInfo,
};
use fdn_core::fleet::NodeState;
use fdn_core::label::Labels;
use fdn_core::message::{AppObserved, AppPhase, Holders};
use fdn_core::rollout::VersionRejection;
use fdn_core::{AppName, ClusterId, FunctionName, Resources, Revision, TenantId, Timestamp};

use super::rollout::shown;
use crate::Error;
use crate::reconcile::node_registry::{NodeEntry, NodeRegistry};
use crate::state::{State, lock};
use crate::store::StoreError;
use crate::store::app::{AppFilter, AppRow, app_get, app_page};
use crate::store::binding::{BindingRow, binding_list};
use crate::store::label::{label_list, label_list_current};
use crate::store::policy::gateway_get;
use crate::store::rollout::bad_version_list;
use crate::store::version::{VersionRow, version_get, version_list, version_list_current};

/// The facts of the network that a client needs.
#[must_use]
pub fn network(state: &State) -> NetworkInfo {
    NetworkInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        zone: state.settings.zone.clone(),
        dns: state.settings.dns,
        gateway_port: state.settings.gateway_port,
        upload_limit: state.settings.uploads.limit.as_bytes(),
    }
}

/// A node according to its last report.
pub(super) fn node(seen: &NodeEntry, now: Timestamp) -> NodeInfo {
    let status = &seen.status;
    NodeInfo {
        node: status.node.clone(),
        cluster: status.cluster.clone(),
        gateway: status.gateway,
        admin: status.admin,
        version: status.version.clone(),
        alive: seen.alive(now),
        state: NodeState::of(status, seen.alive(now)),
        cordoned: false,
        seen_at: seen.at,
        capacity: status.capacity,
        free: status.free,
        slots: status.slots,
        busy: status.busy,
        apps: status.apps.clone(),
    }
}

/// The clusters of the nodes that have reported, by name.
pub(super) fn clusters_of(live: &NodeRegistry, now: Timestamp) -> Vec<ClusterInfo> {
    let mut infos: BTreeMap<ClusterId, ClusterInfo> = live
        .clusters()
        .into_iter()
        .map(|(cluster, (region, location))| {
            let info = ClusterInfo {
                cluster: cluster.clone(),
                region,
                location,
                nodes_alive: 0,
                nodes_total: 0,
                speed: 0.0,
                capacity: Resources::default(),
                free: Resources::default(),
                slots: 0,
                busy: 0,
                gateways: Vec::new(),
            };
            (cluster, info)
        })
        .collect();
    for seen in live.nodes() {
        let status = &seen.status;
        let Some(info) = infos.get_mut(&status.cluster) else {
            continue;
        };
        info.nodes_total += 1;
        info.gateways.push(status.gateway);
        if seen.alive(now) {
            info.nodes_alive += 1;
            info.speed = info.speed.max(status.speed);
            info.capacity = info.capacity.saturating_add(&status.capacity);
            info.free = info.free.saturating_add(&status.free);
            info.slots = info.slots.saturating_add(status.slots);
            info.busy = info.busy.saturating_add(status.busy);
        }
    }
    infos.into_values().collect()
}

/// At most `limit` apps, by name, after `after`.
///
/// # Errors
/// When the store fails.
pub async fn apps(
    state: &State,
    filter: &AppFilter,
    after: &str,
    limit: u32,
) -> Result<Vec<AppSummary>, Error> {
    let mut tx = state.store.snapshot().await?;
    let apps = app_page(&mut tx, filter, after, limit).await?;
    let versions = version_list_current(&mut tx).await?;
    let ends = apps.first().zip(apps.last());
    let (first, last) = ends.map_or(("", ""), |(a, b)| (a.name.as_str(), b.name.as_str()));
    let mut labels = label_list_current(&mut tx, first, last).await?;
    tx.commit().await.map_err(StoreError::from)?;
    let current: BTreeMap<&str, &VersionRow> =
        versions.iter().map(|v| (v.function.as_str(), v)).collect();
    let now = fdn_service::now();
    let live = lock(&state.live);
    apps.iter()
        .map(|app| {
            let version = current.get(app.name.as_str()).copied();
            let version = version.ok_or_else(|| no_version(app))?;
            let labels = labels.remove(app.name.as_str()).unwrap_or_default();
            summary(app, version, labels, (&live, now))
        })
        .collect()
}

fn no_version(app: &AppRow) -> StoreError {
    StoreError::corrupt(
        "apps.version",
        format!("version {} of app {} is missing", app.version, app.name),
    )
}

fn summary(
    app: &AppRow,
    version: &VersionRow,
    labels: Labels,
    (live, now): (&NodeRegistry, Timestamp),
) -> Result<AppSummary, Error> {
    let (ready, total) = readiness(app, live, now);
    Ok(AppSummary {
        app: app.name.clone(),
        tenant: app.tenant,
        host: app.host.clone(),
        version: app.version,
        digest: version.digest,
        revision: app.revision,
        deployed_at: app.deployed_at,
        nodes_ready: ready,
        nodes_total: total,
        labels,
        functions: functions_of(app),
    })
}

/// The functions that the stages of a workflow run; empty if the app is no workflow.
fn functions_of(app: &AppRow) -> Vec<FunctionName> {
    let stages = app.workflow.stages().iter();
    match app.definition {
        Some(_) => stages.map(|stage| stage.function.clone()).collect(),
        None => Vec::new(),
    }
}

/// The live nodes of the clusters that hold an app; other nodes do not get it.
fn informed_nodes<'a>(
    holders: &'a Holders,
    live: &'a NodeRegistry,
    now: Timestamp,
) -> impl Iterator<Item = &'a NodeEntry> {
    live.alive(now)
        .filter(|seen| holders.has(&seen.status.cluster))
}

/// The number of live nodes that serve the current revision of an app, and of all that should.
pub(super) fn readiness(app: &AppRow, live: &NodeRegistry, now: Timestamp) -> (u32, u32) {
    let observed = informed_nodes(&app.holders, live, now)
        .map(|seen| seen.status.apps.iter().find(|o| o.app == app.name));
    let (mut ready, mut total) = (0, 0);
    for observed in observed {
        total += 1;
        ready += u32::from(observed.is_some_and(|o| serves(o, app.revision)));
    }
    (ready, total)
}

/// [`readiness`] of each of these apps, in their order, in one pass over all node reports.
pub(super) fn serving(apps: &[AppRow], live: &NodeRegistry, now: Timestamp) -> Vec<(u32, u32)> {
    let places = apps.iter().enumerate();
    let places: BTreeMap<&AppName, usize> = places.map(|(at, app)| (&app.name, at)).collect();
    let mut ready = vec![0; apps.len()];
    let mut living: BTreeMap<&ClusterId, u32> = BTreeMap::new();
    for seen in live.alive(now) {
        let cluster = &seen.status.cluster;
        *living.entry(cluster).or_default() += 1;
        for observed in &seen.status.apps {
            if let Some(at) = places.get(&observed.app)
                && serves(observed, apps[*at].revision)
                && apps[*at].holders.has(cluster)
            {
                ready[*at] += 1;
            }
        }
    }
    let all: u32 = living.values().sum();
    let total = |app: &AppRow| -> u32 {
        let named = app.holders.named();
        named.map_or(all, |named| {
            named.iter().filter_map(|cluster| living.get(cluster)).sum()
        })
    };
    let ready = ready.into_iter().zip(apps);
    ready.map(|(ready, app)| (ready, total(app))).collect()
}

fn serves(observed: &AppObserved, revision: Revision) -> bool {
    observed.revision >= revision && observed.phase == AppPhase::Ready
}

/// All details of an app.
///
/// # Errors
/// When there is no app of this name or the store fails.
pub async fn app(state: &State, tenant: TenantId, name: &AppName) -> Result<AppDetail, Error> {
    let mut tx = state.store.snapshot().await?;
    let app = app_get(&mut tx, name)
        .await?
        .filter(|app| app.tenant == tenant)
        .ok_or_else(|| Error::no_app(name))?;
    let function = name.clone().into();
    let current = version_get(&mut tx, tenant, &function, app.version)
        .await?
        .ok_or_else(|| no_version(&app))?;
    let versions = version_list(&mut tx, tenant, &function).await?;
    let bindings = binding_list(&mut tx, name).await?;
    let gateway = gateway_get(&mut tx, name).await?;
    let rollout = shown(&mut tx, name).await?;
    let mut bad = bad_version_list(&mut tx, tenant, &function).await?;
    let mut labels = label_list(&mut tx, tenant, &function).await?;
    tx.commit().await.map_err(StoreError::from)?;
    let now = fdn_service::now();
    let live = lock(&state.live);
    let nodes = informed_nodes(&app.holders, &live, now)
        .map(|seen| NodeProgress {
            node: seen.status.node.clone(),
            cluster: seen.status.cluster.clone(),
            observed: seen.status.apps.iter().find(|o| o.app == *name).cloned(),
        })
        .collect();
    let own = labels.remove(&None).unwrap_or_default();
    let shown = labels.get(&Some(app.version)).cloned().unwrap_or_default();
    Ok(AppDetail {
        summary: summary(&app, &current, own.overlaid(&shown), (&live, now))?,
        workflow: app.workflow,
        versions: versions
            .into_iter()
            .map(|row| {
                let bad = bad.remove(&row.number);
                let labels = labels.remove(&Some(row.number)).unwrap_or_default();
                version_info(row, bad, labels)
            })
            .collect(),
        traffic: gateway.traffic,
        rollout,
        domains: gateway.hosts,
        bindings: bindings.iter().map(binding_info).collect(),
        nodes,
        forms: app.forms,
    })
}

fn version_info(row: VersionRow, bad: Option<VersionRejection>, labels: Labels) -> VersionInfo {
    VersionInfo {
        version: row.number,
        digest: row.digest,
        size: row.size,
        created_at: row.created_at,
        manifest: row.manifest,
        bad,
        labels,
        validation: row.validation,
        forms: row.forms,
    }
}

/// A binding in the form of the API.
pub(super) fn binding_info(row: &BindingRow) -> BindingInfo {
    BindingInfo {
        prefix: row.prefix,
        cluster: row.cluster.clone(),
        revision: row.revision,
    }
}

#[cfg(test)]
mod tests {

    use fdn_core::message::NodeStatus;

    use super::*;
    use crate::fixture;

    #[test]
    fn only_living_nodes_have_capacity() {
        let mut live = NodeRegistry::new(Vec::new(), 10, Timestamp(0));
        live.observe(fixture::status("a", "eu"), Timestamp(0));
        live.observe(
            NodeStatus {
                speed: 2.0,
                busy: 3,
                ..fixture::status("b", "eu")
            },
            Timestamp(9_000),
        );
        let infos = clusters_of(&live, Timestamp(11_000));
        let info = &infos[0];
        assert_eq!(
            (info.nodes_alive, info.nodes_total, info.slots, info.busy),
            (1, 2, 4, 3)
        );
        assert_eq!((info.speed, info.gateways.len()), (2.0, 2));
    }

    #[test]
    fn only_nodes_of_clusters_that_hold_an_app_are_waited_for() {
        let mut live = NodeRegistry::new(Vec::new(), 10, Timestamp(0));
        for (node, cluster) in [("a", "eu"), ("b", "us"), ("c", "eu")] {
            live.observe(fixture::status(node, cluster), Timestamp(0));
        }
        let nodes = |holders: Holders| -> Vec<String> {
            let informed_nodes = informed_nodes(&holders, &live, Timestamp(1));
            informed_nodes
                .map(|seen| seen.status.node.to_string())
                .collect()
        };
        let eu: ClusterId = "eu".parse().expect("an id");
        assert_eq!(nodes(Holders::only([eu].into())), ["a", "c"]);
        assert_eq!(nodes(Holders::EVERYWHERE).len(), 3);
    }

    #[test]
    fn a_node_serves_when_it_is_ready_at_the_revision() {
        let observed = |revision, phase| AppObserved {
            revision: Revision(revision),
            phase,
            ..fixture::observed("a")
        };
        assert!(serves(&observed(5, AppPhase::Ready), Revision(5)));
        assert!(!serves(&observed(4, AppPhase::Ready), Revision(5)));
        assert!(!serves(&observed(5, AppPhase::Compiling), Revision(5)));
    }
}
