//! The task that owns the state of the apps: takes commands, performs actions, publishes the results.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use fdn_core::message::AppPhase;
use fdn_core::{AppName, Revision, TenantTag, Timestamp};
use fdn_link::pause;
use fdn_service::{CancellationToken, ServiceError};
use futures::FutureExt;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::AbortHandle;
use tracing::{error, info, warn};

use super::prepare::prepare;
use super::state::{Action, Event, Saved, State, Version, View};
use super::store::Store;
use super::{AppsParts, CONDITION_APPS, CONDITION_STATE, Command, Counters, Observed, Serving};
use crate::gateway::routes::{CallTerms, Route, RouteTable, Target};
use crate::metrics::AppMetrics;
use crate::policy::{Guard, Guards};

/// The number of commands handled together, so that a burst of messages is written to disk once.
const BATCH: usize = 64;

pub(super) struct Shell {
    parts: Arc<AppsParts>,
    store: Store,
    commands: mpsc::Sender<Command>,
    observed: Arc<ArcSwap<Vec<Observed>>>,
    turns: Arc<Semaphore>,
    state: State,
    counters: Counters,
    /// What answers calls, with its revision, by app.
    serving: BTreeMap<AppName, (Revision, Serving)>,
    tasks: BTreeMap<(AppName, Revision), AbortHandle>,
    views: Vec<View>,
    guards: Guards,
    /// The metrics of functions whose form changes with the next routes.
    reshaped: Vec<Arc<AppMetrics>>,
    save: bool,
    done: Vec<oneshot::Sender<()>>,
}

impl Shell {
    pub(super) fn new(
        parts: AppsParts,
        store: Store,
        commands: mpsc::Sender<Command>,
        observed: Arc<ArcSwap<Vec<Observed>>>,
        stop: CancellationToken,
    ) -> Result<Self, ServiceError> {
        Ok(Self {
            turns: Arc::new(Semaphore::new(parts.settings.parallel)),
            guards: parts.guards(stop)?,
            parts: Arc::new(parts),
            store,
            commands,
            observed,
            state: State::default(),
            counters: Counters::new(),
            serving: BTreeMap::new(),
            tasks: BTreeMap::new(),
            views: Vec::new(),
            reshaped: Vec::new(),
            save: false,
            done: Vec::new(),
        })
    }

    /// Loads the state kept on disk and publishes its routes. Preparations start; calls wait until those are done.
    pub(super) fn restore(&mut self, saved: Saved) {
        let (state, actions) = State::restore(saved, self.parts.settings.tombstones);
        self.state = state;
        self.perform(actions, &mut None);
        self.publish();
    }

    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Command>, stop: CancellationToken) {
        loop {
            let due = pin!(sleep_until(self.state.next_due()));
            tokio::select! {
                () = stop.cancelled() => break,
                () = due => self.apply(Event::Due(fdn_service::now())),
                command = queue.recv() => {
                    let Some(command) = command else { break };
                    self.command(command);
                    for _ in 1..BATCH {
                        let Ok(command) = queue.try_recv() else { break };
                        self.command(command);
                    }
                }
            }
            self.write().await;
            self.publish();
            for done in self.done.drain(..) {
                // The caller may be gone.
                let _ = done.send(());
            }
        }
        for task in self.tasks.values() {
            task.abort();
        }
        if stop.is_cancelled() {
            self.guards.close().await;
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Desired(desired, done) => {
                self.done.push(done);
                self.apply(Event::Desired(desired));
            }
            Command::Snapshot(snapshot, done) => {
                self.done.push(done);
                let used = snapshot.used.clone();
                self.apply(Event::Snapshot(snapshot));
                // The guards of apps that are new in this snapshot must exist first.
                self.publish();
                self.guards.used(&used);
                self.parts
                    .readiness
                    .set(CONDITION_STATE, true, "read from the controller");
            }
            Command::Removed(done) => {
                self.done.push(done);
                self.apply(Event::Removed);
            }
            Command::Used(used) => self.guards.used(&used),
            Command::Begun(app, revision) => self.apply(Event::Begun(app, revision)),
            Command::Prepared(app, revision, deployed) => {
                self.tasks.remove(&(app.clone(), revision));
                let again_at = deployed.stands_in.then(|| self.again_at(u32::MAX));
                let actions = self.state.apply(Event::Prepared(app.clone(), revision));
                self.perform(actions, &mut Some(deployed));
                if let Some(again_at) = again_at {
                    self.apply(Event::StandsIn(app, revision, again_at));
                }
            }
            Command::Failed(app, revision, reason) => self.failed(app, revision, reason),
            Command::Broken(app, revision, digest) => {
                let actions = self.state.apply(Event::Broken(app.clone(), revision));
                if !actions.is_empty() {
                    warn!(%app, %revision, "what is served cannot be loaded and is made anew");
                    self.parts.cache.distrust(digest);
                }
                self.perform(actions, &mut None);
            }
        }
    }

    fn failed(&mut self, app: AppName, revision: Revision, reason: String) {
        self.tasks.remove(&(app.clone(), revision));
        let retry_at = self.again_at(self.state.failures(&app) + 1);
        let again_in = retry_at.since(fdn_service::now());
        warn!(%app, %revision, %reason, ?again_in, "an app cannot be made ready");
        self.apply(Event::Failed {
            app,
            revision,
            reason,
            retry_at,
        });
    }

    /// When to try again after so many failures.
    fn again_at(&self, failures: u32) -> Timestamp {
        let settings = &self.parts.settings;
        let (first, max) = (settings.retry_first, settings.retry_max);
        let pause = pause(
            failures,
            first.as_duration(),
            max.as_duration(),
            rand::random(),
        );
        let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        Timestamp(fdn_service::now().0.saturating_add(pause_ms))
    }

    fn apply(&mut self, event: Event) {
        let actions = self.state.apply(event);
        self.perform(actions, &mut None);
    }

    fn perform(&mut self, actions: Vec<Action>, prepared: &mut Option<Serving>) {
        for action in actions {
            match action {
                Action::Save => self.save = true,
                Action::Prepare(app, version) => self.prepare(app, *version),
                Action::Serve(app, revision) => {
                    if let Some(deployed) = prepared.take() {
                        info!(%app, %revision, version = %deployed.entry.version, "an app is ready");
                        self.serve(app, revision, deployed);
                    }
                }
                Action::Withdraw(app) => {
                    self.serving.remove(&app);
                }
                Action::Forget(app) => self.forget(&app),
            }
        }
    }

    fn serve(&mut self, app: AppName, revision: Revision, serving: Serving) {
        let now = serving.staged.clone();
        let known = self.serving.get(&app).map(|(_, known)| known);
        let changed = known.map_or_else(Vec::new, |known| serving.in_other_forms(known));
        if !changed.is_empty() && now.as_ref().is_some_and(|now| now.stages.len() == 1) {
            // The times of its only stage are reported as the app's.
            let whole = self.counters(&app);
            self.reshaped.push(whole);
        }
        let changed = changed.iter().map(|deployed| Arc::clone(&deployed.metrics));
        self.reshaped.extend(changed);
        let before = self.serving.insert(app.clone(), (revision, serving));
        let Some(old) = before.and_then(|(_, before)| before.staged) else {
            return;
        };
        for stage in &old.stages {
            let stays = now
                .as_ref()
                .is_some_and(|now| now.find(&stage.name).is_some());
            if !stays {
                self.parts.metrics.forget_stage(&app, &stage.name);
            }
        }
    }

    fn forget(&mut self, app: &AppName) {
        info!(%app, "an app is gone");
        let before = self.serving.remove(app);
        for stage in before
            .and_then(|(_, before)| before.staged)
            .iter()
            .flat_map(|old| &old.stages)
        {
            self.parts.metrics.forget_stage(app, &stage.name);
        }
        self.guards.forget(app);
        self.counters.remove(app);
        self.parts.metrics.forget(app);
        self.parts.hub.close(app);
        self.abandon(app, |_| true);
    }

    /// Aborts preparations whose result is no longer wanted.
    fn abandon(&mut self, app: &AppName, unwanted: impl Fn(Revision) -> bool) {
        self.tasks.retain(|(of, revision), task| {
            let ends = of == app && unwanted(*revision);
            if ends {
                task.abort();
            }
            !ends
        });
    }

    fn prepare(&mut self, app: AppName, version: Version) {
        let revision = version.revision;
        // Among older preparations, only that of the version served before a restart is still wanted.
        let still_wanted = self.state.served(&app);
        self.abandon(&app, |old| old <= revision && Some(old) != still_wanted);
        let (parts, turns) = (Arc::clone(&self.parts), Arc::clone(&self.turns));
        let current = self.serving.get(&app).map(|(_, current)| current.clone());
        let counters = self.counters(&app);
        let report = self.commands.clone();
        let key = (app.clone(), revision);
        let task = tokio::spawn(async move {
            let Ok(_turn) = turns.acquire_owned().await else {
                return;
            };
            let compiling = || {
                // The phase is for display only: better lost than waited for.
                drop(report.try_send(Command::Begun(app.clone(), revision)));
            };
            let work = prepare(&parts, &app, &version, current, counters, compiling);
            // A panic must become a failure that is retried, not an app that stays in the fetching phase for ever.
            let result = AssertUnwindSafe(work).catch_unwind().await;
            let outcome = match result {
                Ok(Ok(deployed)) => Command::Prepared(app, revision, deployed),
                Ok(Err(error)) => Command::Failed(app, revision, error.to_string()),
                Err(_) => Command::Failed(app, revision, "preparing it panicked".to_owned()),
            };
            // The receiver is gone only when the agent stops.
            drop(report.send(outcome).await);
        });
        self.tasks.insert(key, task.abort_handle());
    }

    fn counters(&mut self, app: &AppName) -> Arc<AppMetrics> {
        let counters = self
            .counters
            .entry(app.clone())
            .or_insert_with(|| self.parts.metrics.app(app));
        Arc::clone(counters)
    }

    /// Sets an app's tenant, unless that is known already.
    fn set_tenant(&self, app: &AppName, tenant: Option<TenantTag>) {
        if let (Some(tenant), Some(counters)) = (tenant, self.counters.get(app))
            && !counters.places().is_of(tenant)
        {
            self.parts.metrics.set_tenant(app, tenant);
            if let Some(instances) = &self.parts.instances {
                instances.set_tenant(app, tenant);
            }
        }
    }

    async fn write(&mut self) {
        if !std::mem::take(&mut self.save) {
            return;
        }
        let (store, saved) = (self.store.clone(), self.state.save());
        let written = tokio::task::spawn_blocking(move || store.save(&saved)).await;
        let failure = match written {
            Ok(Ok(())) => return,
            Ok(Err(failure)) => failure.to_string(),
            Err(failure) => failure.to_string(),
        };
        // The state in memory is still served; the next change tries the disk again.
        error!(%failure, "desired state cannot be written to disk");
        self.save = true;
    }

    /// Publishes routes and observed apps; notifies if a phase changed.
    fn publish(&mut self) {
        self.parts.cache.set_needed(self.state.needed());
        let views = self.state.views();
        let changed = views != self.views;
        let entries: Vec<Observed> = views.iter().map(|view| self.observe(view)).collect();
        let routes: RouteTable = views
            .iter()
            .zip(&entries)
            .flat_map(|(view, entry)| {
                // Taken from the wanted version, not the served one: a change of who may call must not wait for the new version to be ready.
                let wanted = self.state.wanted(&view.app);
                self.set_tenant(&view.app, wanted.and_then(|wanted| wanted.tenant));
                let spec = wanted.map(|wanted| &*wanted.gateway);
                let guard = spec.and_then(|spec| self.guards.guard(&view.app, spec));
                let cluster = &self.parts.cluster;
                let terms = wanted.map(|spec| CallTerms::of(spec, cluster));
                let terms = terms.unwrap_or_default();
                let route = route(&self.serving, entry, guard, terms);
                let own = std::iter::once(view.host.clone());
                let hosts = own.chain(spec.into_iter().flat_map(|spec| spec.hosts.clone()));
                let routes = hosts.map(|host| (host, route.clone()));
                routes.collect::<Vec<_>>()
            })
            .collect();
        self.parts.routes.publish(routes);
        // After the old form has got its last call, and before the new form is reported as served.
        for metrics in self.reshaped.drain(..) {
            metrics.reset_phases();
        }
        self.observed.store(Arc::new(entries));
        if changed {
            self.count_phases(&views);
            self.views = views;
            self.parts.phase_changed.notify_one();
        }
        if self.tasks.is_empty() {
            self.parts.readiness.set(CONDITION_APPS, true, "settled");
        }
    }

    fn observe(&mut self, view: &View) -> Observed {
        Observed {
            metrics: self.counters(&view.app),
            split: self
                .serving
                .get(&view.app)
                .is_some_and(|(_, d)| d.split.is_some()),
            deployed: self
                .serving
                .get(&view.app)
                .map(|(_, d)| Arc::clone(&d.entry)),
            staged: self
                .serving
                .get(&view.app)
                .and_then(|(_, d)| d.staged.clone()),
            app: view.app.clone(),
            revision: view.revision,
            phase: view.phase.clone(),
        }
    }

    fn count_phases(&self, views: &[View]) {
        let count = |phase: &str, is: fn(&AppPhase) -> bool| {
            let apps = views.iter().filter(|view| is(&view.phase)).count();
            let gauge = self.parts.metrics.apps.with_label_values(&[phase]);
            gauge.set(i64::try_from(apps).unwrap_or(i64::MAX));
        };
        count("fetching", |phase| matches!(phase, AppPhase::Fetching));
        count("compiling", |phase| matches!(phase, AppPhase::Compiling));
        count("ready", |phase| matches!(phase, AppPhase::Ready));
        count("failed", |phase| matches!(phase, AppPhase::Failed { .. }));
    }
}

fn route(
    serving: &BTreeMap<AppName, (Revision, Serving)>,
    entry: &Observed,
    guard: Option<Arc<Guard>>,
    terms: CallTerms,
) -> Route {
    let served = serving.get(&entry.app);
    let target = match (served, &entry.phase) {
        (Some((_, served)), _) => Target::Ready(Arc::clone(&served.entry)),
        (None, AppPhase::Failed { .. }) => Target::Failed,
        (None, AppPhase::Fetching | AppPhase::Compiling | AppPhase::Ready) => Target::Preparing,
    };
    Route {
        app: entry.app.clone(),
        revision: served.map_or(entry.revision, |(revision, _)| *revision),
        metrics: Arc::clone(&entry.metrics),
        guard,
        split: served.and_then(|(_, served)| served.split.clone()),
        target,
        staged: served.and_then(|(_, served)| served.staged.clone()),
        terms: Arc::new(terms),
    }
}

/// Sleeps until a wall-clock time, or for ever if there is none.
async fn sleep_until(at: Option<Timestamp>) {
    match at {
        Some(at) => {
            let left = at.since(fdn_service::now());
            // At least 5 ms, so that a clock that is set back cannot make this spin.
            tokio::time::sleep(left.max(Duration::from_millis(5))).await;
        }
        None => std::future::pending().await,
    }
}
