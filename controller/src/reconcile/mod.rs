//! The planner: compares what is with what should be, and writes the difference.
//!
//! A pass takes no input: it stores what was heard, reads everything in one snapshot, plans every app with Heu-Orche over the living clusters,
//! and writes plans and bindings with a new revision, together with the messages about them, only where something changed. Doing it twice
//! changes nothing. It is woken by a deploy, by demand of a new client, by a node that came, died, drained or changed, and by a timer.
//!
//! While the view of the nodes is not settled (see [`live`]) apps that have a plan keep it, whatever the nodes seem to be.

pub mod demand;
pub mod desired;
pub mod live;
pub mod network;
pub mod place;
pub mod world;
pub mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fdn_core::message::{Message, NetworkDesired};
use fdn_core::workflow::Stage;
use fdn_core::{AppName, ClientPrefix, Revision, Timestamp};
use fdn_scheduling::workflow::Profile;
use fdn_service::CancellationToken;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::Error;
use crate::app::authority;
use crate::app::fleet::standing;
use crate::error::chain;
use crate::state::{State, lock};
use crate::store::app::{AppRow, app_list};
use crate::store::binding::{BindingRow, binding_list_all};
use crate::store::demand::{DemandRow, demand_add, demand_list, demand_trim};
use crate::store::network::{network_get, network_set};
use crate::store::node::{StatusRow, node_forget, node_observe, node_status_list};
use crate::store::outbox::outbox_push;
use crate::store::plan::{PlanRow, plan_list};
use crate::store::revision::revision_next;
use crate::store::rtt::{rtt_delete, rtt_upsert};
use crate::store::version::{VersionRow, version_list_current};
use crate::store::{StoreError, in_transaction};
use live::Standing;
use place::{Before, difference, place};
use world::World;
use write::{Change, change_write};

/// Passes follow each other no faster than this, however often the planner is woken.
const PAUSE: Duration = Duration::from_millis(100);
/// How often it is looked whether authorities, certificates and join tokens have ended.
const CERTIFICATES: Duration = Duration::from_secs(600);

/// What a pass reads.
struct Inputs {
    apps: Vec<AppRow>,
    versions: Vec<VersionRow>,
    plans: Vec<PlanRow>,
    bindings: Vec<BindingRow>,
    demand: Vec<DemandRow>,
    network: Option<NetworkDesired>,
    statuses: Vec<StatusRow>,
    standing: Standing,
}

/// The planner.
pub struct Planner {
    state: Arc<State>,
    told_rtt_at: Option<Timestamp>,
    kept_at: Option<Timestamp>,
    complaints: BTreeMap<AppName, String>,
}

impl Planner {
    /// A planner of this controller.
    #[must_use]
    pub fn new(state: Arc<State>) -> Self {
        Self {
            state,
            told_rtt_at: None,
            kept_at: None,
            complaints: BTreeMap::new(),
        }
    }

    /// Plans until shutdown.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let settings = self.state.settings.planner.clone();
        let mut watch = tokio::time::interval(settings.watch_interval.as_duration());
        watch.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut last = Instant::now();
        let (mut wanted, mut vitals, mut failing) = (true, None, false);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.state.planner_wake.notified() => wanted = true,
                _ = watch.tick() => {}
            }
            let present = Some(lock(&self.state.live).vitals(fdn_service::now()));
            if !wanted && present == vitals && last.elapsed() < settings.interval.as_duration() {
                continue;
            }
            tokio::time::sleep_until(last + PAUSE).await;
            last = Instant::now();
            match self.pass().await {
                Ok(()) => {
                    (wanted, vitals) = (false, present);
                    if std::mem::take(&mut failing) {
                        info!("planning again");
                    }
                    self.state.readiness.set("planner", true, "");
                }
                Err(error) => {
                    wanted = true;
                    if !std::mem::replace(&mut failing, true) {
                        warn!(
                            error = chain(&error),
                            "planning failed; trying again until it works"
                        );
                    }
                    self.state
                        .readiness
                        .set("planner", false, error.to_string());
                }
            }
        }
    }

    /// One pass.
    ///
    /// # Errors
    /// When the store fails. What was written before stays; the next pass goes on from there.
    pub async fn pass(&mut self) -> Result<(), Error> {
        let _timer = self.state.metrics.plan_seconds.start_timer();
        let now = fdn_service::now();
        self.store_observed(now).await?;
        let inputs = self.load().await?;
        let (world, settled, clusters) = {
            let mut live = lock(&self.state.live);
            live.set_standing(inputs.standing.clone());
            for row in &inputs.statuses {
                live.merge(row.clone());
            }
            (
                self.state.world_of(&live, now),
                live.settled(now),
                network::clusters(&live),
            )
        };
        self.tell_network(&inputs, clusters, now).await?;
        let known = self.plan_apps(&inputs, &world, settled, now).await?;
        lock(&self.state.demand).set_known(known);
        self.forget_nodes(now).await?;
        self.keep_certificates(now).await
    }

    /// Stores what was heard since the last pass.
    async fn store_observed(&self, now: Timestamp) -> Result<(), Error> {
        let state = &self.state;
        let statuses =
            lock(&state.live).take_unwritten(now, state.settings.planner.status_write_interval);
        let demand = lock(&state.demand).take(now);
        let (rtts, rtts_gone) = lock(&state.rtt).take_unwritten();
        if statuses.is_empty() && demand.is_empty() && rtts.is_empty() && rtts_gone.is_empty() {
            return Ok(());
        }
        let keep = state.settings.planner.bindings_per_app;
        let apps: BTreeSet<&AppName> = demand.iter().map(|row| &row.app).collect();
        let written: Result<(), StoreError> = in_transaction!(state.store, tx => {
            for row in &statuses {
                node_observe(&mut tx, row).await?;
            }
            for row in &demand {
                demand_add(&mut tx, row).await?;
            }
            for app in &apps {
                demand_trim(&mut tx, app, keep).await?;
            }
            for row in &rtts {
                rtt_upsert(&mut tx, row).await?;
            }
            for (prefix, cluster) in &rtts_gone {
                rtt_delete(&mut tx, *prefix, cluster).await?;
            }
            Ok(())
        });
        if written.is_err() {
            // Round trips are written again when they are measured again.
            lock(&state.live).put_back(&statuses);
            lock(&state.demand).put_back(demand);
        }
        Ok(written?)
    }

    async fn load(&self) -> Result<Inputs, Error> {
        let mut tx = self.state.store.snapshot().await?;
        let inputs = Inputs {
            apps: app_list(&mut tx).await?,
            versions: version_list_current(&mut tx).await?,
            plans: plan_list(&mut tx).await?,
            bindings: binding_list_all(&mut tx).await?,
            demand: demand_list(&mut tx).await?,
            network: network_get(&mut tx).await?,
            statuses: node_status_list(&mut tx).await?,
            standing: standing(&mut tx).await?,
        };
        tx.commit().await.map_err(StoreError::from)?;
        Ok(inputs)
    }

    async fn tell_network(
        &mut self,
        inputs: &Inputs,
        clusters: Vec<fdn_core::message::ClusterSpec>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let state = &self.state;
        let next = network::next(
            inputs.network.as_ref(),
            clusters,
            state.geo.locations(),
            &lock(&state.rtt),
            network::since(self.told_rtt_at, now),
            state.settings.geo.rtt_interval.as_duration(),
        );
        let Some(next) = next else { return Ok(()) };
        let revision: Revision = in_transaction!(state.store, tx => {
            let revision = revision_next(&mut tx).await?;
            let network = NetworkDesired { revision, ..next.clone() };
            network_set(&mut tx, &network).await?;
            outbox_push(&mut tx, revision, Message::NetworkDesired(network), now).await?;
            Ok::<_, StoreError>(revision)
        })?;
        self.told_rtt_at = Some(now);
        state.outbox_wake.notify_one();
        info!(%revision, clusters = next.clusters.len(), measured = next.measured.len(), "the network changed");
        Ok(())
    }

    /// Plans every app; returns which prefixes are planned for.
    async fn plan_apps(
        &mut self,
        inputs: &Inputs,
        world: &World,
        settled: bool,
        now: Timestamp,
    ) -> Result<BTreeSet<(AppName, ClientPrefix)>, Error> {
        let mut known = BTreeSet::new();
        let (plans, bindings) = (
            by_app(&inputs.plans, |p| &p.app),
            by_app(&inputs.bindings, |b| &b.app),
        );
        let demand = by_app(&inputs.demand, |d| &d.app);
        for app in &inputs.apps {
            let plans = plans.get(&app.name).copied().unwrap_or_default();
            let bindings = bindings.get(&app.name).copied().unwrap_or_default();
            let demand = demand.get(&app.name).copied().unwrap_or_default();
            known.extend(demand.iter().map(|row| (app.name.clone(), row.prefix)));
            let before = Before::new(plans, bindings);
            if settled || before.is_empty() {
                self.plan_app(app, inputs, world, &before, bindings, demand, now)
                    .await?;
            }
            // A pass over many apps lets others have the thread.
            tokio::task::yield_now().await;
        }
        self.complaints
            .retain(|app, _| inputs.apps.iter().any(|row| row.name == *app));
        Ok(known)
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "the parts of one app's state, which live in different tables"
    )]
    async fn plan_app(
        &mut self,
        app: &AppRow,
        inputs: &Inputs,
        world: &World,
        before: &Before<'_>,
        stored: &[BindingRow],
        demand: &[DemandRow],
        now: Timestamp,
    ) -> Result<(), Error> {
        let state = Arc::clone(&self.state);
        let profiles = world.profiles(&app.name, &app.workflow, |stage| {
            expected(stage, &inputs.versions)
        });
        let limit = state.settings.planner.bindings_per_app as usize;
        let prefixes = demand.iter().map(|row| row.prefix);
        let placed = place(world, &app.workflow, &profiles, before, prefixes, limit);
        state.metrics.plans.inc_by(placed.plans.len() as u64);
        self.complain(&app.name, &placed.unplaced);
        let difference = difference(before, &placed);
        if difference.bindings == 0 && !difference.plans {
            return Ok(());
        }
        let change = Change {
            app,
            before,
            stored,
            placed: &placed,
            difference,
        };
        let ttl = state.ttl_s();
        let revision: Option<Revision> =
            in_transaction!(state.store, tx => change_write(&mut tx, &change, ttl, now).await)?;
        match revision {
            Some(revision) => {
                state.metrics.moved.inc_by(difference.moved as u64);
                state.outbox_wake.notify_one();
                info!(app = %app.name, %revision, plans = placed.plans.len(), bindings = difference.bindings, moved = difference.moved, "planned");
            }
            // Somebody deployed meanwhile; the next pass sees what.
            None => state.planner_wake.notify_one(),
        }
        Ok(())
    }

    /// Says once why an app cannot be placed.
    fn complain(&mut self, app: &AppName, unplaced: &[String]) {
        let Some(reason) = unplaced.first() else {
            if self.complaints.remove(app).is_some() {
                info!(%app, "can be placed again");
            }
            return;
        };
        if self.complaints.get(app) != Some(reason) {
            warn!(%app, reason, "cannot be placed; clients stay where they are");
            self.complaints.insert(app.clone(), reason.clone());
        }
    }

    /// Makes the next authority in time and forgets what has ended, now and then.
    async fn keep_certificates(&mut self, now: Timestamp) -> Result<(), Error> {
        if network::since(self.kept_at, now) >= CERTIFICATES {
            authority::keep(&self.state, now).await?;
            self.kept_at = Some(now);
        }
        Ok(())
    }

    async fn forget_nodes(&self, now: Timestamp) -> Result<(), Error> {
        let before = Timestamp(
            now.get()
                .saturating_sub(self.state.settings.planner.forget_after.as_millis()),
        );
        let silent = lock(&self.state.live).silent_since(before);
        for node in silent {
            let gone: bool =
                in_transaction!(self.state.store, tx => node_forget(&mut tx, &node, before).await)?;
            if gone {
                lock(&self.state.live).forget(&node);
                info!(%node, "forgotten after its long silence");
            }
        }
        Ok(())
    }
}

/// What a stage's manifest says about running it.
#[must_use]
pub fn expected(stage: &Stage, versions: &[VersionRow]) -> Profile {
    let version = versions
        .iter()
        .find(|v| v.function == stage.function && v.number == stage.version);
    version.map_or_else(
        || profile(&fdn_core::manifest::Manifest::default()),
        |version| profile(&version.manifest),
    )
}

/// What a manifest says about running its function.
#[must_use]
pub fn profile(manifest: &fdn_core::manifest::Manifest) -> Profile {
    Profile {
        work: manifest.expected_millis(),
        demand: manifest.resources(),
    }
}

/// Rows in order of their app, as slices by app. The database's order may differ from ours in the place of the hyphen, but equal names always
/// stand together.
fn by_app<T>(rows: &[T], key: impl Fn(&T) -> &AppName) -> BTreeMap<&AppName, &[T]> {
    rows.chunk_by(|a, b| key(a) == key(b))
        .filter_map(|chunk| Some((key(chunk.first()?), chunk)))
        .collect()
}
