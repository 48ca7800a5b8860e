//! Observations shared among controllers: each receives some of all reports and stores them; one of them plans.

use std::collections::BTreeMap;
use std::time::Duration;

use fdn_core::{ClusterId, Millis, Timestamp};
use fdn_scheduling::compete::Load;
use fdn_scheduling::place::Memory;

use super::Planner;
use super::by_app;
use super::network::since;
use super::preview::demand_criteria;
use super::world::{ClusterLoad, World};
use crate::Error;
use crate::app::fleet::admin_state;
use crate::state::lock;
use crate::store::cluster_load::{ClusterLoadRow, cluster_load_get, cluster_load_set};
use crate::store::demand::{DemandRow, demand_add, demand_delete, demand_list};
use crate::store::node::node_observe;
use crate::store::rtt::{
    link_delete, link_list, link_upsert, rtt_delete, rtt_list, rtt_prune, rtt_upsert,
};
use crate::store::{StoreError, in_transaction};

/// The largest difference of controllers' clocks; what others wrote within it is read again.
const CLOCKS: Duration = Duration::from_secs(15);
/// How often demand is searched for entries to forget.
const FORGET: Duration = Duration::from_secs(10);

impl Planner {
    /// The work of a controller while another one plans: it stores its own observations, and reads those of the others.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn follow(&mut self) -> Result<(), Error> {
        let now = fdn_service::now();
        // The controller that plans writes new ones.
        self.failovers = None;
        self.store_observations(now).await?;
        self.read_other_rtts(now).await?;
        let after = lock(&self.state.live).enrolments_after(now);
        let mut connection = self.state.store.read().await?;
        self.state.read_statuses(&mut connection).await?;
        let admin_state = admin_state(&mut connection, after).await?;
        let known = demand_list(&mut connection).await?;
        let loads = cluster_load_get(&mut connection).await?;
        drop(connection);
        let new = self.state.statuses.lock().await.take_new();
        let mut live = lock(&self.state.live);
        live.set_admin_state(admin_state);
        for row in new {
            live.merge(row, now);
        }
        drop(live);
        let known = known.into_iter().map(|row| (row.app, row.prefix)).collect();
        lock(&self.state.demand).set_known(known);
        // Corrections are learnt by the controller that plans; those from this one's own time as planner are outdated.
        lock(&self.state.learner).retain(|_| false);
        *lock(&self.state.cluster_loads) = loads.into_iter().map(from_row).collect();
        Ok(())
    }

    /// Stores the observations since the last pass.
    pub(super) async fn store_observations(&self, now: Timestamp) -> Result<(), Error> {
        let state = &self.state;
        let statuses =
            lock(&state.live).take_unwritten(now, state.settings.planner.status_write_interval);
        let demand = lock(&state.demand).take(now);
        let (rtts, rtts_gone) = lock(&state.rtt).take_unwritten();
        let (links, links_gone) = lock(&state.links).take_unwritten();
        let trips = rtts.len() + rtts_gone.len() + links.len() + links_gone.len();
        if statuses.is_empty() && demand.is_empty() && trips == 0 {
            return Ok(());
        }
        let memory = state.settings.planner.demand_memory;
        let written: Result<(), StoreError> = in_transaction!(state.store, tx => {
            for row in &statuses {
                node_observe(&mut tx, row).await?;
            }
            for row in &demand {
                demand_add(&mut tx, row, memory).await?;
            }
            for row in &rtts {
                rtt_upsert(&mut tx, row).await?;
            }
            for key in &rtts_gone {
                rtt_delete(&mut tx, key).await?;
            }
            for row in &links {
                link_upsert(&mut tx, row).await?;
            }
            for key in &links_gone {
                link_delete(&mut tx, key).await?;
            }
            Ok(())
        });
        if written.is_err() {
            // Round trips are not put back: they will be measured again.
            lock(&state.live).put_back(&statuses);
            lock(&state.demand).put_back(demand);
        }
        Ok(written?)
    }

    /// Forgets, at intervals, prefixes that are no longer planned for; each app keeps at most as many as it may have bindings.
    pub(super) async fn prune_demand(
        &mut self,
        demand: &[DemandRow],
        world: &World,
        now: Timestamp,
    ) -> Result<(), Error> {
        if since(self.demand_pruned_at, now) < FORGET {
            return Ok(());
        }
        let demand_criteria = demand_criteria(&self.state, world, now);
        let mut gone = Vec::new();
        for (app, rows) in by_app(demand, |row| &row.app) {
            let prefixes = demand_criteria.forgotten(rows).into_iter();
            gone.extend(prefixes.map(|prefix| (app, prefix)));
        }
        if !gone.is_empty() {
            in_transaction!(self.state.store, tx => {
                for (app, prefix) in &gone {
                    demand_delete(&mut tx, app, *prefix).await?;
                }
                Ok::<_, StoreError>(())
            })?;
        }
        self.demand_pruned_at = Some(now);
        Ok(())
    }

    /// Reads, at intervals, the round trips that other controllers stored.
    pub(super) async fn read_other_rtts(&mut self, now: Timestamp) -> Result<(), Error> {
        let state = &self.state;
        if since(self.rtt_read_at, now) < state.settings.geo.rtt_interval.as_duration() {
            return Ok(());
        }
        let margin = u64::try_from(CLOCKS.as_millis()).unwrap_or(u64::MAX);
        let from = |newest: Timestamp| Timestamp(newest.get().saturating_sub(margin));
        let (rtts, links) = {
            let rtts = lock(&state.rtt).newest();
            (from(rtts), from(lock(&state.links).newest()))
        };
        let mut connection = state.store.read().await?;
        let rtts = rtt_list(&mut connection, rtts).await?;
        let links = link_list(&mut connection, links).await?;
        drop(connection);
        let expired = {
            // What another controller has measured lately counts.
            let mut clients = lock(&state.rtt);
            clients.merge(rtts);
            clients.expire(now)
        };
        if expired > 0 {
            let keep = state.settings.geo.rtt_keep.as_millis();
            let before = Timestamp(now.get().saturating_sub(keep));
            in_transaction!(state.store, tx => rtt_prune(&mut tx, before).await)?;
        }
        let mut known = lock(&state.links);
        known.merge(links);
        state
            .metrics
            .links
            .set(i64::try_from(known.len()).unwrap_or(i64::MAX));
        drop(known);
        self.rtt_read_at = Some(now);
        Ok(())
    }

    /// Stores, at intervals, the clusters' loads under the plans, for controllers that do not plan.
    pub(super) async fn store_loads(
        &mut self,
        loads: &BTreeMap<ClusterId, ClusterLoad>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let pause = self.state.settings.planner.status_write_interval;
        if since(self.loads_stored_at, now) < pause.as_duration() {
            return Ok(());
        }
        let rows: Vec<ClusterLoadRow> = loads.iter().map(row).collect();
        in_transaction!(self.state.store, tx => cluster_load_set(&mut tx, &rows, now).await)?;
        self.loads_stored_at = Some(now);
        Ok(())
    }
}

fn row((cluster, load): (&ClusterId, &ClusterLoad)) -> ClusterLoadRow {
    ClusterLoadRow {
        cluster: cluster.clone(),
        runs: load.load.runs(),
        erlangs: load.load.erlangs(),
        in_service_ms: load.load.in_service().get(),
        memory_mib: load.memory.main,
        gpu_memory_mib: load.memory.gpu,
    }
}

/// The slots are added by a world, which knows those of its clusters.
fn from_row(row: ClusterLoadRow) -> (ClusterId, ClusterLoad) {
    let in_service = if row.in_service_ms > 0.0 || row.runs <= 0.0 {
        row.in_service_ms
    } else {
        row.erlangs / row.runs * 1000.0
    };
    let load = ClusterLoad {
        load: Load::of_slots(0).asking(row.erlangs, row.runs, Millis::new(in_service)),
        memory: Memory {
            main: row.memory_mib,
            gpu: row.gpu_memory_mib,
        },
    };
    (row.cluster, load)
}
