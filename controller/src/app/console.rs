//! What the console shows about the network's traffic: figures, client flows, latencies, and DNS answers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use fdn_core::api::ClusterInfo;
use fdn_core::figures::{Figures, FiguresBy, Tally, Window};
use fdn_core::observe::{
    AddressKind, BindingDetail, ClusterHealth, DnsLookup, LatencyRow, TrafficCluster, TrafficFlow,
    TrafficMap,
};
use fdn_core::{AppName, ClientPrefix, ClusterId, GeoPoint, HostName, Right, TenantId, Timestamp};

use super::access::{Caller, Verdict};
use super::{fleet, steer};
use crate::Error;
use crate::figures::summarize;
use crate::reconcile::network;
use crate::reconcile::world::World;
use crate::state::{State, lock};
use crate::store::StoreError;
use crate::store::app::{AppRow, app_get};
use crate::store::binding::binding_list;
use crate::store::console::{
    AppVisibility, BindingDemand, app_of_host, apps_seen, binding_page, demand_bound,
};
use crate::store::demand::DemandRow;

/// The most rows of demand read for one map: the newest.
const DEMAND: u32 = 20_000;
/// The number of steps in the last minute, without the one that has not ended.
const MINUTE: u64 = 6;

/// The apps that `visibility` covers, and the time from which their figures are those of their present tenants; `None` if it covers all.
struct Visible(Option<BTreeMap<AppName, Timestamp>>);

impl Visible {
    async fn read(state: &State, visibility: &AppVisibility) -> Result<Self, Error> {
        if *visibility == AppVisibility::default() {
            return Ok(Self(None));
        }
        let apps = apps_seen(&mut *state.store.read().await?, visibility).await?;
        match &visibility.app {
            Some(app) if apps.is_empty() => Err(Error::no_app(app)),
            _ => Ok(Self(Some(apps))),
        }
    }

    /// From when on figures of the app are shown; `None` for never.
    fn since(&self, app: &AppName) -> Option<Timestamp> {
        let Some(apps) = &self.0 else {
            return Some(Timestamp(0));
        };
        apps.get(app).copied()
    }
}

/// The figures of the apps that `visibility` covers, as their callers saw them.
///
/// # Errors
/// When `visibility` names an app that does not exist or that the caller may not see, or the store fails.
pub async fn figures(
    state: &State,
    visibility: &AppVisibility,
    (window, by): (Window, FiguresBy),
    after: Option<Timestamp>,
    limit: usize,
) -> Result<Figures, Error> {
    let visible = Visible::read(state, visibility).await?;
    let now = fdn_service::now();
    let since = |app: &AppName| visible.since(app);
    let lines = lock(&state.live).figures().snapshots(window, now, since);
    Ok(summarize(&lines, (window, by), after, limit, now))
}

/// The clusters, and where the clients of the apps that `visibility` covers are sent.
///
/// # Errors
/// When `visibility` names an app that does not exist or that the caller may not see, or the store fails.
pub async fn traffic(state: &State, visibility: &AppVisibility) -> Result<TrafficMap, Error> {
    let visible = Visible::read(state, visibility).await?;
    let now = fdn_service::now();
    let infos = fleet::clusters(state, now).await?;
    let demand = demand_bound(&mut *state.store.read().await?, visibility, DEMAND).await?;
    let since = |app: &AppName| visible.since(app);
    let lines = lock(&state.live)
        .figures()
        .snapshots(Window::Quarter, now, since);
    let present = now.get() / Window::Quarter.step_ms();
    let mut minute: BTreeMap<ClusterId, Tally> = BTreeMap::new();
    for line in &lines {
        let of = minute.entry(line.cluster.clone()).or_default();
        let last = line
            .steps
            .iter()
            .filter(|(step, _)| (present.saturating_sub(MINUTE)..present).contains(step));
        *of = last.fold(of.clone(), |sum, (_, tally)| sum.plus(tally));
    }
    let span = (MINUTE * Window::Quarter.step_ms()) as f64 / 1000.0;
    let clusters: Vec<TrafficCluster> = infos
        .into_iter()
        .map(|info| cluster(info, &minute, span))
        .collect();
    let rate: BTreeMap<&ClusterId, f64> = clusters
        .iter()
        .map(|c| (&c.cluster, c.calls_per_second))
        .collect();
    let memory = state.settings.planner.demand_memory;
    let places = Places::new(state);
    let world = state.world(now);
    let weighed = demand.iter().filter_map(|(row, bound)| {
        let weight = row.recent_at(now, memory);
        Some((row, bound.clone().or_else(|| nearest(&world, row))?, weight))
    });
    let mut flows = flows(weighed, &places, &rate);
    flows.truncate(state.settings.console.flows);
    Ok(TrafficMap {
        at: now,
        clusters,
        flows,
    })
}

fn nearest(world: &World, row: &DemandRow) -> Option<ClusterId> {
    world.view(row.prefix).nearest_first().into_iter().next()
}

fn cluster(info: ClusterInfo, minute: &BTreeMap<ClusterId, Tally>, span: f64) -> TrafficCluster {
    let (calls, errors) = minute.get(&info.cluster).map_or((0.0, 0.0), |tally| {
        (tally.counts.calls as f64, tally.counts.failures as f64)
    });
    TrafficCluster {
        health: match (info.nodes_alive, info.nodes_total) {
            (0, _) => ClusterHealth::Down,
            (alive, total) if alive < total => ClusterHealth::Degraded,
            _ => ClusterHealth::Up,
        },
        cluster: info.cluster,
        region: info.region,
        location: info.location,
        nodes_alive: info.nodes_alive,
        nodes_total: info.nodes_total,
        slots: info.slots,
        busy: info.busy,
        calls_per_second: calls / span,
        error_rate: if calls > 0.0 { errors / calls } else { 0.0 },
    }
}

/// The clients of one place that are sent to one cluster.
#[derive(Clone, Debug)]
struct Flow {
    location: Option<GeoPoint>,
    prefixes: BTreeSet<ClientPrefix>,
    weight: f64,
}

/// Groups demand by place and cluster, the strongest first. A place is a tenth of a degree wide.
fn flows<'a>(
    demand: impl Iterator<Item = (&'a DemandRow, ClusterId, f64)>,
    places: &Places<'_>,
    rate: &BTreeMap<&ClusterId, f64>,
) -> Vec<TrafficFlow> {
    let mut all: BTreeMap<(ClusterId, Option<(i64, i64)>), Flow> = BTreeMap::new();
    let mut whole = 0.0;
    let mut of_cluster: BTreeMap<ClusterId, f64> = BTreeMap::new();
    for (row, cluster, weight) in demand {
        let location = places.of(row.prefix);
        let tenth = |degrees: f64| (degrees * 10.0).round() as i64;
        let place = location.map(|point| (tenth(point.lat()), tenth(point.lon())));
        whole += weight;
        *of_cluster.entry(cluster.clone()).or_default() += weight;
        let flow = all.entry((cluster, place)).or_insert_with(|| Flow {
            location,
            prefixes: BTreeSet::new(),
            weight: 0.0,
        });
        flow.prefixes.insert(row.prefix);
        flow.weight += weight;
    }
    let part = |weight: f64, of: f64| if of > 0.0 { weight / of } else { 0.0 };
    let flows = all.into_iter().filter_map(|((cluster, _), flow)| {
        let own = of_cluster.get(&cluster).copied().unwrap_or_default();
        let calls = rate.get(&cluster).copied().unwrap_or_default();
        Some(TrafficFlow {
            cluster,
            location: flow.location,
            prefixes: u32::try_from(flow.prefixes.len()).unwrap_or(u32::MAX),
            example: *flow.prefixes.first()?,
            share: part(flow.weight, whole),
            calls_per_second: calls * part(flow.weight, own),
        })
    });
    let mut flows: Vec<TrafficFlow> = flows.collect();
    flows.sort_by(|a, b| b.share.total_cmp(&a.share));
    flows
}

/// The locations of clients, from the configured table and, for others, the geolocation database.
struct Places<'a> {
    table: fdn_core::PrefixMap<GeoPoint>,
    state: &'a State,
}

impl<'a> Places<'a> {
    fn new(state: &'a State) -> Self {
        Self {
            table: state.geo.locations().iter().copied().collect(),
            state,
        }
    }

    fn of(&self, client: ClientPrefix) -> Option<GeoPoint> {
        let told = self.table.lookup(client).value.copied();
        told.or_else(|| Some(self.state.geo.look_up(client)?.0))
    }
}

/// The prefixes with a known location or a measured latency, by their text, after `after`, at most `limit`, with the distances of the clusters.
#[must_use]
pub fn latencies(state: &State, after: &str, limit: usize) -> Vec<LatencyRow> {
    let world = state.world(fdn_service::now());
    let measured = lock(&state.rtt).list();
    let located = state.geo.locations().iter().map(|(prefix, _)| *prefix);
    let all: BTreeMap<String, ClientPrefix> = located
        .chain(measured.iter().map(|(prefix, ..)| *prefix))
        .map(|prefix| (prefix.to_string(), prefix))
        .collect();
    let places = Places::new(state);
    let page = all.into_iter().filter(|(text, _)| text.as_str() > after);
    let row = |(_, prefix)| LatencyRow {
        prefix,
        location: places.of(prefix),
        clusters: steer::distances(&world.view(prefix), None),
    };
    page.take(limit).map(row).collect()
}

/// At most `limit` bindings of an app, by the text of their prefix, after `after`.
///
/// # Errors
/// When there is no such app, or the store fails.
pub async fn bindings(
    state: &State,
    tenant: TenantId,
    app: &AppName,
    after: &str,
    limit: u32,
) -> Result<Vec<BindingDetail>, Error> {
    let mut connection = state.store.read().await?;
    let found = app_get(&mut connection, app).await?;
    found
        .filter(|row| row.tenant == tenant)
        .ok_or_else(|| Error::no_app(app))?;
    let rows = binding_page(&mut connection, app, after, limit).await?;
    let places = Places::new(state);
    let detail = |row: BindingDemand| BindingDetail {
        location: places.of(row.binding.prefix),
        prefix: row.binding.prefix,
        cluster: row.binding.cluster,
        group: row.binding.group,
        revision: row.binding.revision,
        queries: row.queries,
        last_seen: row.last_seen,
    };
    Ok(rows.into_iter().map(detail).collect())
}

/// What DNS servers answer a client that asks for a name, as far as the controller knows.
///
/// # Errors
/// When the name does not belong to an app that the caller may see, or the store fails.
pub async fn dns(
    state: &State,
    caller: &Caller,
    name: &HostName,
    client: ClientPrefix,
    kind: AddressKind,
) -> Result<DnsLookup, Error> {
    let unknown = || Error::NotFound {
        what: format!("the name {name}"),
        hint: "apps and the domains that were verified have names",
    };
    let mut tx = state.store.snapshot().await?;
    let app = match app_of_host(&mut tx, name).await? {
        Some(app) => app_get(&mut tx, &app).await?,
        None => None,
    };
    let sees = |app: &AppRow| caller.allowed(Right::Look, Some(app.tenant)) == Verdict::Allowed;
    let app = app.filter(sees).ok_or_else(unknown)?;
    let bindings = binding_list(&mut tx, &app.name).await?;
    tx.commit().await.map_err(StoreError::from)?;
    let (view, gateways) = client_view(state, client, kind);
    let steered = steer::steer(&bindings, client, &view, &gateways);
    let ttl_s = app.ttl_s(state.ttl_s());
    Ok(DnsLookup {
        name: name.clone(),
        app: app.name,
        client,
        kind,
        reason: steer::explanation(&steered),
        addresses: steered.addresses,
        ttl_s,
        scope: steered.scope,
        cluster: steered.cluster,
        why: steered.why,
        matched: steered.binding.map(|row| row.prefix),
        bound: steered.binding.map(|row| row.cluster.clone()),
        revision: steered.binding.map(|row| row.revision),
        clusters: steer::distances(&view, Some(&gateways)),
    })
}

/// The latencies from a client to the clusters, and the live gateways of each.
pub(super) fn client_view(
    state: &State,
    client: ClientPrefix,
    kind: AddressKind,
) -> (fdn_core::latency::ClientView, steer::GatewaysOf) {
    let now = fdn_service::now();
    let world = state.world(now);
    let live = lock(&state.live);
    let alive: BTreeSet<(&ClusterId, SocketAddr)> = live
        .alive(now)
        .map(|seen| (&seen.status.cluster, seen.status.gateway))
        .collect();
    let lives = |cluster: &ClusterId, gateway| alive.contains(&(cluster, gateway));
    let gateways = steer::gateways(&network::clusters(&live), kind, lives);
    (world.view(client), gateways)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_cluster_is_as_well_as_its_nodes() {
        let info = |alive, total| {
            let status = fixture::status("a", "eu");
            ClusterInfo {
                cluster: status.cluster,
                region: status.region,
                location: status.location,
                nodes_alive: alive,
                nodes_total: total,
                speed: 1.0,
                capacity: status.capacity,
                free: status.free,
                slots: 4,
                busy: 0,
                gateways: Vec::new(),
            }
        };
        let eu: ClusterId = "eu".parse().expect("id");
        let mut tally = Tally::default();
        (tally.counts.calls, tally.counts.failures) = (120, 30);
        let minute = BTreeMap::from([(eu, tally)]);
        let health = |alive, total| cluster(info(alive, total), &minute, 60.0).health;
        assert_eq!(
            [health(2, 2), health(1, 2), health(0, 2), health(0, 0)],
            [
                ClusterHealth::Up,
                ClusterHealth::Degraded,
                ClusterHealth::Down,
                ClusterHealth::Down
            ]
        );
        let shown = cluster(info(2, 2), &minute, 60.0);
        assert!(
            (shown.calls_per_second - 2.0).abs() < 1e-9 && (shown.error_rate - 0.25).abs() < 1e-9
        );
        let quiet = cluster(info(2, 2), &BTreeMap::new(), 60.0);
        assert_eq!((quiet.calls_per_second, quiet.error_rate), (0.0, 0.0));
    }
}
