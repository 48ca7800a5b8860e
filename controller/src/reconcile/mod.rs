//! The planner: compares observed with desired state, and writes the difference.
//!
//! A pass has no input: it stores what was reported, reads everything in one snapshot, plans every app with Heu-Orche over the living
//! clusters, and writes plans and bindings under a new revision, together with the messages about them, only where something changed. A
//! repeated pass changes nothing. The planner is woken by a deploy, by demand of a new client, by a node that joined, died, drained or
//! changed, and by a timer.
//!
//! While the view of the nodes is not settled (see [`node_registry`]), apps that have a plan keep it, whatever the state of the nodes
//! appears to be.

pub mod actual;
pub mod compared;
pub mod demand;
pub mod desired;
pub mod difference;
pub mod dwell;
pub mod forms;
mod groups;
pub mod holders;
mod learned;
mod leaving;
mod links;
pub mod network;
pub mod node_registry;
mod observed;
pub mod pass;
pub mod pass_recorder;
pub mod place;
pub mod prefixes;
pub mod preload;
pub mod preview;
mod rates;
pub mod reason;
mod record_writer;
pub mod serving;
mod unplanned;
pub mod versions;
pub mod what_if;
pub mod world;
pub mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fdn_core::billing::PriceList;
use fdn_core::message::{Message, NetworkDesired};
use fdn_core::{AppName, ClientPrefix, ClusterId, DurationMs, Millis, Revision, Timestamp};
use fdn_scheduling::compete::Moves;
use fdn_service::CancellationToken;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::Error;
use crate::app::authority;
use crate::app::fleet::admin_state;
use crate::error::chain;
use crate::singleton::Work;
use crate::state::{State, lock};
use crate::store::app::{AppRow, app_list};
use crate::store::billing::price::price_list_at;
use crate::store::binding::{BindingRow, binding_list_all};
use crate::store::cluster::{ClusterRow, cluster_list};
use crate::store::demand::{DemandRow, demand_list};
use crate::store::network::{network_get, network_set};
use crate::store::node::{StageCalls, node_forget};
use crate::store::outbox::outbox_push;
use crate::store::plan::{PlanRow, plan_list, plan_list_failover, plan_renew};
use crate::store::revision::revision_next;
use crate::store::version::{VersionRow, version_list_current};
use crate::store::workflow::version_list_staged;
use crate::store::{StoreError, in_transaction};
use dwell::Dwell;
use holders::{Clusters, HolderState};
use leaving::Leaving;
use node_registry::AdminState;
use pass::{AppDecision, PassOutcome, PassSettings, PassState, Rows, pass};
use place::AppPlacement;
use reason::Failovers;
use record_writer::RecordWriter;
use versions::Versions;
pub use versions::{expected, profile, profile_of, variants_of};
use world::World;
use write::{PlacementChange, change_write, holders_write, plan_rows};

/// The shortest interval between passes, however often the planner is woken.
const PAUSE: Duration = Duration::from_millis(100);
/// How often expired authorities, certificates and join tokens are looked for.
const CERTIFICATES: Duration = Duration::from_secs(600);

/// The rows that a pass reads.
struct Inputs {
    apps: Vec<AppRow>,
    versions: Vec<VersionRow>,
    plans: Vec<PlanRow>,
    bindings: Vec<BindingRow>,
    demand: Vec<DemandRow>,
    network: Option<NetworkDesired>,
    admin_state: AdminState,
    clusters: Vec<ClusterRow>,
    /// The stage-call addresses of nodes; empty on a controller that does not track reports.
    stage_calls: StageCalls,
    /// The price list in force; `None` if there is none.
    prices: Option<PriceList>,
}

impl Inputs {
    fn rows(&self) -> Rows<'_> {
        Rows {
            apps: &self.apps,
            versions: &self.versions,
            plans: &self.plans,
            bindings: &self.bindings,
            demand: &self.demand,
        }
    }
}

/// The planner of a controller.
pub struct Planner {
    state: Arc<State>,
    rtt_announced_at: Option<Timestamp>,
    /// When stored round trips of other controllers were last read, and (`loads_stored_at`) when the clusters' loads were last written.
    rtt_read_at: Option<Timestamp>,
    loads_stored_at: Option<Timestamp>,
    /// When demand was last searched for entries to forget.
    demand_pruned_at: Option<Timestamp>,
    announced_stage_calls: StageCalls,
    certificates_checked_at: Option<Timestamp>,
    warned: BTreeMap<AppName, String>,
    /// Apps whose plans could not be written, with the reason that was logged.
    unwritten: BTreeMap<AppName, String>,
    /// The bound on moves for a gain, and when it was last refilled.
    moves: Moves,
    filled_at: Option<Timestamp>,
    leaving: Leaving,
    /// As `leaving`, for clusters that are to lose an app.
    giving_up: Leaving,
    dwell: Dwell,
    /// `None` before the first pass, and while another controller plans.
    failovers: Option<Failovers>,
    record_writer: Option<RecordWriter>,
}

impl Planner {
    /// The planner of this controller.
    #[must_use]
    pub fn new(state: Arc<State>) -> Self {
        let planner = &state.settings.planner;
        let interval = Millis::from(planner.move_interval.as_duration());
        let record_writer = RecordWriter::new(planner, &state.metrics.plans.records);
        Self {
            moves: Moves::new(planner.move_share, interval).unwrap_or_else(Moves::unlimited),
            state,
            rtt_announced_at: None,
            rtt_read_at: None,
            loads_stored_at: None,
            demand_pruned_at: None,
            announced_stage_calls: StageCalls::new(),
            certificates_checked_at: None,
            warned: BTreeMap::new(),
            unwritten: BTreeMap::new(),
            filled_at: None,
            leaving: Leaving::default(),
            giving_up: Leaving::default(),
            dwell: Dwell::default(),
            failovers: None,
            record_writer,
        }
    }

    /// Plans until shutdown.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let settings = self.state.settings.planner.clone();
        let mut watch = tokio::time::interval(settings.watch_interval.as_duration());
        watch.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut last = Instant::now();
        let (mut wanted, mut vitals, mut failing) = (true, None, false);
        let mut turn = self.state.singletons.watch(Work::Planner);
        let interval = settings.interval.as_duration();
        // A controller that does not plan must store what it hears before the planner takes its nodes for dead.
        let following = interval.min(settings.status_write_interval.as_duration());
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = self.state.planner_wake.notified() => wanted = true,
                // The sender lives as long as the state.
                _ = turn.changed() => wanted = true,
                _ = watch.tick() => {}
            }
            let present = Some(lock(&self.state.live).vitals(fdn_service::now()));
            let pause = if *turn.borrow() { interval } else { following };
            if !wanted && present == vitals && last.elapsed() < pause {
                continue;
            }
            tokio::time::sleep_until(last + PAUSE).await;
            last = Instant::now();
            let passed = if *turn.borrow_and_update() {
                self.pass().await
            } else {
                self.follow().await
            };
            match passed {
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

    /// Runs one pass.
    ///
    /// # Errors
    /// When the store fails. What was written before stays; the next pass continues from there.
    pub async fn pass(&mut self) -> Result<(), Error> {
        let _timer = self.state.metrics.plans.seconds.start_timer();
        let now = fdn_service::now();
        self.store_observations(now).await?;
        self.read_other_rtts(now).await?;
        let after = lock(&self.state.live).enrolments_after(now);
        let inputs = load(&self.state, true, after).await?;
        // Taken only now: if reading had failed, they would have to wait for the next pass.
        let new = self.state.statuses.lock().await.take_new();
        let (world, settled, clusters) = {
            let mut live = lock(&self.state.live);
            live.set_admin_state(inputs.admin_state.clone());
            for row in new {
                live.merge(row, now);
            }
            (
                self.state
                    .world_of(&live, now)
                    .with_prices(inputs.prices.clone()),
                live.settled(now),
                network::clusters(&live),
            )
        };
        self.prune_demand(&inputs.demand, &world, now).await?;
        self.announce_network(&inputs, clusters, now).await?;
        self.announce_stage_calls(&inputs.stage_calls, now).await?;
        let known = self.plan_apps(&inputs, &world, settled, now).await?;
        lock(&self.state.demand).set_known(known);
        self.forget_nodes(now).await?;
        self.keep_certificates(now).await
    }

    async fn announce_network(
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
            network::since(self.rtt_announced_at, now),
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
        self.rtt_announced_at = Some(now);
        state.outbox_wake.notify_one();
        info!(%revision, clusters = next.clusters.len(), measured = next.measured.len(), "the network changed");
        Ok(())
    }

    /// Publishes where nodes accept stage calls, if that has changed since this controller last published it.
    async fn announce_stage_calls(
        &mut self,
        calls: &StageCalls,
        now: Timestamp,
    ) -> Result<(), Error> {
        if *calls == self.announced_stage_calls {
            return Ok(());
        }
        in_transaction!(self.state.store, tx => {
            let revision = revision_next(&mut tx).await?;
            authority::push_fleet(&self.state, &mut tx, revision, now).await
        })?;
        self.announced_stage_calls.clone_from(calls);
        self.state.outbox_wake.notify_one();
        Ok(())
    }

    /// Plans every app; returns the prefixes that are planned for.
    async fn plan_apps(
        &mut self,
        inputs: &Inputs,
        world: &World,
        settled: bool,
        now: Timestamp,
    ) -> Result<BTreeSet<(AppName, ClientPrefix)>, Error> {
        let state = Arc::clone(&self.state);
        let planner = &state.settings.planner;
        self.moves
            .fill(Millis::from(network::since(self.filled_at, now)));
        self.filled_at = Some(now);
        let (rates, clusters) = {
            let live = lock(&state.live);
            let there = live.clusters().into_keys().collect();
            let made = inputs.clusters.iter().map(|row| row.id.clone());
            let clusters = Clusters {
                all: holders::known(there, made, planner.spread),
                informed: live.informed_clusters(now),
            };
            (live.rates(now), clusters)
        };
        let settings = PassSettings {
            limit: planner.bindings_per_app as usize,
            memory: planner.demand_memory,
            settled,
            now,
        };
        let rate = |app: &AppName| rates.get(app).copied().unwrap_or(0.0);
        self.dwell.prune(now, planner.dwell);
        if self.failovers.is_none() {
            let said = plan_list_failover(&mut *state.store.read().await?).await?;
            self.failovers = Some(Failovers::from_rows(said));
        }
        let mut record = self.record_writer.as_ref().map(|_| Vec::new());
        let passed = {
            let apps: BTreeSet<&AppName> = inputs.apps.iter().map(|row| &row.name).collect();
            lock(&state.learner).retain(|place| apps.contains(&place.app));
            let past = PassState {
                moves: &mut self.moves,
                dwell: &mut self.dwell,
                failovers: self.failovers.get_or_insert_default(),
                learner: &state.learner,
                record: record.as_mut(),
            };
            pass(world, inputs.rows(), rate, &settings, past)?
        };
        if let (Some(writer), Some(record)) = (&self.record_writer, record) {
            writer.enqueue(record);
        }
        update_metrics(&state, world, &passed);
        lock(&state.cluster_loads).clone_from(&passed.loads);
        self.store_loads(&passed.loads, now).await?;
        for (app, error) in &passed.failed {
            self.warn_unplaced(app, &[error.to_string()]);
        }
        for decided in &passed.apps {
            let written = self.write_app(decided, &clusters, now).await;
            self.pass_over(&decided.app.name, written)?;
            // Yield, so that a pass over many apps does not monopolize the thread.
            tokio::task::yield_now().await;
        }
        let known = passed.known;
        self.warned
            .retain(|app, _| inputs.apps.iter().any(|row| row.name == *app));
        self.unwritten
            .retain(|app, _| inputs.apps.iter().any(|row| row.name == *app));
        self.leaving
            .retain(|app| inputs.apps.iter().any(|row| row.name == *app));
        self.giving_up
            .retain(|app| inputs.apps.iter().any(|row| row.name == *app));
        let failovers = self.failovers.get_or_insert_default();
        failovers.retain(|app| inputs.apps.iter().any(|row| row.name == *app));
        Ok(known)
    }

    async fn write_app(
        &mut self,
        decided: &AppDecision<'_>,
        clusters: &Clusters,
        now: Timestamp,
    ) -> Result<(), Error> {
        let AppDecision {
            app,
            before,
            stored,
            placed,
            difference,
            forms,
            unfit,
        } = decided;
        let difference = *difference;
        let state = Arc::clone(&self.state);
        state.metrics.plans.made.inc_by(placed.plans.len() as u64);
        self.warn_unplaced(&app.name, &placed.unplaced);
        let planner = &state.settings.planner;
        // Longer by as much as the app's answers live longer than the default.
        let longer = app.ttl.map_or(0, |ttl| {
            ttl.as_millis().saturating_sub(planner.ttl.as_millis())
        });
        let span = DurationMs::from_millis(planner.drain_after.as_millis() + longer);
        let primaries =
            self.leaving
                .primaries(&app.name, &app.primaries, placed.primaries(), now, span);
        let needed = primaries.union(&placed.preload).cloned().collect();
        let held = self.holders(app, (&needed, unfit), clusters, now, span);
        if !held.can_serve(&placed.primaries()) {
            // Clients are sent there once its nodes have received the app; their reports wake the planner.
            return self.write_holders(app, &held, now).await;
        }
        let same = difference.bindings == 0 && !difference.plans && primaries == app.primaries;
        if same && held.is_of(app) && *forms == app.forms {
            return self.renew(decided, now).await;
        }
        let change = PlacementChange {
            app,
            before,
            stored,
            placed,
            difference,
            primaries,
            held,
            forms,
        };
        let ttl = state.ttl_s();
        let revision: Option<Revision> =
            in_transaction!(state.store, tx => change_write(&mut tx, &change, ttl, now).await)?;
        match revision {
            Some(revision) => {
                self.note_failovers(&app.name, placed);
                state.metrics.plans.moved.inc_by(difference.moved as u64);
                state.outbox_wake.notify_one();
                info!(app = %app.name, %revision, plans = placed.plans.len(), bindings = difference.bindings, moved = difference.moved, "planned");
            }
            // Somebody deployed in the meantime; the next pass will see it.
            None => state.planner_wake.notify_one(),
        }
        Ok(())
    }

    /// Updates the explanations of unchanged plans whose stated reason no longer applies.
    async fn renew(&mut self, decided: &AppDecision<'_>, now: Timestamp) -> Result<(), Error> {
        let (app, placed) = (&decided.app.name, &decided.placed);
        let rows = plan_rows(app, placed, decided.app.revision, now)?;
        let rows = rows.iter().filter(|row| row.explanation.is_some());
        let rows: Vec<&PlanRow> = rows.collect();
        if rows.is_empty() {
            return Ok(());
        }
        in_transaction!(self.state.store, tx => {
            for row in &rows {
                plan_renew(&mut tx, row).await?;
            }
            Ok::<_, StoreError>(())
        })?;
        self.note_failovers(app, placed);
        Ok(())
    }

    fn note_failovers(&mut self, app: &AppName, placed: &AppPlacement) {
        let failovers = self.failovers.get_or_insert_default();
        failovers.note(app, placed);
    }

    /// The clusters that must hold an app from now on, and those of them to which clients may be sent.
    fn holders(
        &mut self,
        app: &AppRow,
        (needed, unfit): (&BTreeSet<ClusterId>, &BTreeSet<ClusterId>),
        clusters: &Clusters,
        now: Timestamp,
        span: DurationMs,
    ) -> HolderState {
        let spread = self.state.settings.planner.spread;
        let none = BTreeSet::new();
        let informed = clusters.informed.get(&app.name).unwrap_or(&none);
        let fit = &clusters.all - unfit;
        let wanted = holders::choose(&app.name, &app.answering, needed, &fit, spread);
        let stays = |present: &BTreeSet<ClusterId>, wanted: BTreeSet<ClusterId>| {
            self.giving_up
                .primaries(&app.name, present, wanted, now, span)
        };
        holders::next(app, wanted, &clusters.all, informed, stays)
    }

    /// Publishes the holders of an app, and leaves its plan unchanged.
    async fn write_holders(
        &self,
        app: &AppRow,
        held: &HolderState,
        now: Timestamp,
    ) -> Result<(), Error> {
        if held.is_of(app) {
            return Ok(());
        }
        let state = &self.state;
        let ttl = state.ttl_s();
        let written: Option<Revision> =
            in_transaction!(state.store, tx => holders_write(&mut tx, app, held, ttl, now).await)?;
        match written {
            Some(revision) => {
                state.outbox_wake.notify_one();
                info!(app = %app.name, %revision, "other clusters are to hold the app");
            }
            None => state.planner_wake.notify_one(),
        }
        Ok(())
    }

    /// Creates the next authority in time and deletes what has expired, at intervals.
    async fn keep_certificates(&mut self, now: Timestamp) -> Result<(), Error> {
        if network::since(self.certificates_checked_at, now) >= CERTIFICATES {
            authority::keep(&self.state, now).await?;
            self.certificates_checked_at = Some(now);
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

/// Publishes the results of a pass as metrics.
fn update_metrics(state: &State, world: &World, passed: &PassOutcome<'_>) {
    let metrics = &state.metrics;
    metrics.plans.deferred.inc_by(passed.deferred as u64);
    metrics.plans.unplaced.set(passed.unplaced as i64);
    metrics.plans.drifted.inc_by(passed.learnt.drifted as u64);
    for error in &passed.learnt.errors {
        metrics.plans.error.observe(*error);
    }
    let places = lock(&state.learner).places();
    metrics.plans.learnt.set(places as i64);
    let (needed, there) = world.memory(&passed.loads);
    for (what, mebibytes) in [("needed", needed), ("there", there)] {
        let gauge = metrics.plans.memory.with_label_values(&[what]);
        gauge.set((mebibytes * f64::from(1 << 20)) as i64);
    }
}

/// Reads everything in one snapshot: enrolments after a stamp, and node reports if `statuses` is set.
async fn load(state: &State, statuses: bool, after: u64) -> Result<Inputs, Error> {
    let currency = state.settings.billing.currency;
    let mut tx = state.store.snapshot().await?;
    let mut versions = version_list_current(&mut tx).await?;
    versions.extend(version_list_staged(&mut tx).await?);
    let stage_calls = match statuses {
        true => state.read_statuses(&mut tx).await?,
        false => StageCalls::new(),
    };
    let inputs = Inputs {
        apps: app_list(&mut tx).await?,
        versions,
        plans: plan_list(&mut tx).await?,
        bindings: binding_list_all(&mut tx).await?,
        demand: demand_list(&mut tx).await?,
        network: network_get(&mut tx).await?,
        admin_state: admin_state(&mut tx, after).await?,
        clusters: cluster_list(&mut tx).await?,
        stage_calls,
        prices: price_list_at(&mut tx, currency, fdn_service::now()).await?,
    };
    tx.commit().await.map_err(StoreError::from)?;
    Ok(inputs)
}

/// Groups rows, which are sorted by app, into slices by app. The database's collation may order hyphens differently, but rows with equal
/// names are always adjacent.
fn by_app<T>(rows: &[T], key: impl Fn(&T) -> &AppName) -> BTreeMap<&AppName, &[T]> {
    rows.chunk_by(|a, b| key(a) == key(b))
        .filter_map(|chunk| Some((key(chunk.first()?), chunk)))
        .collect()
}
