//! The lifecycle of a controller, from start to stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdn_bus::SharedBroker;
use fdn_core::message::Channel;
use fdn_runtime::Compiler;
use fdn_service::health::Readiness;
use fdn_service::secret::Secret;
use fdn_service::{BoxedFuture, CancellationToken};
use tokio::task::JoinSet;
use tracing::info;

use crate::Error;
use crate::app::{authority, login};
use crate::dispatch::publisher;
use crate::edge;
use crate::http::{self, ApiListener, Serving};
use crate::reconcile::Planner;
use crate::settings::Settings;
use crate::singleton;
use crate::state::{State, lock};
use crate::upload::Uploads;

/// How often gauges are updated.
const GAUGES: Duration = Duration::from_secs(5);
/// The longest time that background work may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running controller.
pub struct Controller {
    state: Arc<State>,
    address: SocketAddr,
    edge: SocketAddr,
    password: Option<Secret>,
    server: Serving,
    leaving: CancellationToken,
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
    /// The dispatcher of jobs, which may take longer to end than the rest.
    dispatcher: JoinSet<()>,
}

impl Controller {
    /// Starts a controller; it listens when this returns. The broker in the settings is ignored: the caller passes one. The program's `main` must
    /// handle [`fdn_runtime::COMPILE_WORKER_ARG`].
    ///
    /// # Errors
    /// When a setting is not valid, or what it names cannot be used.
    pub fn start(settings: Settings, broker: SharedBroker) -> BoxedFuture<Result<Self, Error>> {
        let compiler = Uploads::compiler(&settings);
        Self::start_with(settings, broker, compiler)
    }

    /// Like [`Controller::start`] with a given compiler, for tests, which have no `main`.
    ///
    /// # Errors
    /// As [`Controller::start`].
    pub fn start_with(
        settings: Settings,
        broker: SharedBroker,
        compiler: Compiler,
    ) -> BoxedFuture<Result<Self, Error>> {
        Box::pin(Self::begin(settings, broker, compiler))
    }

    async fn begin(
        settings: Settings,
        broker: SharedBroker,
        compiler: Compiler,
    ) -> Result<Self, Error> {
        let listener = ApiListener::open(&settings)?;
        let address = listener
            .address()
            .map_err(|e| Error::Internal(format!("the listener has no address: {e}")))?;
        let state = Arc::new(State::open(settings, broker, compiler).await?);
        authority::ensure(&state, fdn_service::now()).await?;
        let password = login::first_user(&state).await?;
        state.readiness.set("store", true, "");
        state.readiness.set("running", true, "");
        let server = http::start(listener, Arc::clone(&state))?;
        let shutdown = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let leaving = CancellationToken::new();
        let edge = edge::start(&state, address, &shutdown, &mut tasks).await?;
        tasks.spawn(singleton::keep(Arc::clone(&state), leaving.clone()));
        tasks.spawn(publisher::run(Arc::clone(&state), shutdown.clone()));
        tasks.spawn(Planner::new(Arc::clone(&state)).run(shutdown.clone()));
        tasks.spawn(crate::app::usage::trim(
            Arc::clone(&state),
            shutdown.clone(),
        ));
        tasks.spawn(crate::app::rollout::watch::run(
            Arc::clone(&state),
            shutdown.clone(),
        ));
        tasks.spawn(crate::app::domain::watch::run(
            Arc::clone(&state),
            shutdown.clone(),
        ));
        tasks.spawn(crate::app::txt::watch::run(
            Arc::clone(&state),
            shutdown.clone(),
        ));
        tasks.spawn(crate::app::secrets::migrate::run(
            Arc::clone(&state),
            shutdown.clone(),
        ));
        tasks.spawn(crate::app::billing::rounds::run(
            Arc::clone(&state),
            shutdown.clone(),
        ));
        tasks.spawn(crate::app::collect::run(
            Arc::clone(&state),
            shutdown.clone(),
        ));
        let mut dispatcher = JoinSet::new();
        dispatcher.spawn(crate::jobs::run(Arc::clone(&state), leaving.clone()));
        tasks.spawn(crate::jobs::sweep::run(
            Arc::clone(&state),
            shutdown.clone(),
        ));
        tasks.spawn(crate::jobs::webhooks::run(
            Arc::clone(&state),
            shutdown.clone(),
        ));
        tasks.spawn(crate::app::runs::run(Arc::clone(&state), shutdown.clone()));
        tasks.spawn(crate::app::events::hub::run(
            Arc::clone(&state),
            shutdown.clone(),
        ));
        tasks.spawn(gauges(Arc::clone(&state), shutdown.clone()));
        info!(%address, zone = %state.settings.zone, "the controller listens");
        Ok(Self {
            state,
            address,
            edge,
            password,
            server,
            leaving,
            shutdown,
            tasks,
            dispatcher,
        })
    }

    /// The address of API, console, health checks and metrics.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address for machines at the edge.
    #[must_use]
    pub const fn edge_address(&self) -> SocketAddr {
        self.edge
    }

    /// The first user's password, if it was generated by this start: the caller shows it once.
    #[must_use]
    pub fn initial_password(&self) -> Option<Secret> {
        self.password.clone()
    }

    /// Whether the controller can do its work.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.state.readiness.clone()
    }

    /// The shared state, for tests and for tools in the same process.
    #[must_use]
    pub fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Stops: signals load balancers and keeps serving for as long as the settings say; then accepts no new requests, lets running ones end, and
    /// ends background work after its present step. From the beginning it starts no more jobs, and those that run have their own time to end.
    pub fn stop(self) -> BoxedFuture<()> {
        Box::pin(self.end())
    }

    async fn end(mut self) {
        let began = Instant::now();
        let linger = self.state.settings.singletons.linger.as_duration();
        self.state.readiness.set("running", false, "stopping");
        // Work that other controllers can do goes to them now.
        self.leaving.cancel();
        tokio::time::sleep(linger).await;
        self.state.events.close();
        self.server.stop().await;
        self.shutdown.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(PATIENCE, ended).await.is_err() {
            self.tasks.shutdown().await;
        }
        let patience = self.state.settings.jobs.stop_grace.as_duration() + PATIENCE;
        let ended = async { while self.dispatcher.join_next().await.is_some() {} };
        let patience = patience.saturating_sub(began.elapsed());
        if tokio::time::timeout(patience, ended).await.is_err() {
            self.dispatcher.shutdown().await;
        }
        self.state.store.close().await;
        info!("the controller has stopped");
    }
}

/// Updates gauges that are not updated where things happen.
async fn gauges(state: Arc<State>, shutdown: CancellationToken) {
    let mut timer = tokio::time::interval(GAUGES);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            _ = timer.tick() => {}
        }
        let metrics = &state.metrics;
        let set = |gauges: &prometheus::IntGaugeVec, label: &str, value: usize| {
            gauges
                .with_label_values(&[label])
                .set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        let pool = state.store.pool_use();
        set(&metrics.connections, "open", pool.open as usize);
        set(&metrics.connections, "idle", pool.idle);
        let now = fdn_service::now();
        let (alive, known, series, dropped) = {
            let live = lock(&state.live);
            let figures = live.figures();
            (
                live.alive(now).count(),
                live.nodes().count(),
                figures.len(),
                figures.dropped(),
            )
        };
        let console = &metrics.console;
        console
            .series
            .set(i64::try_from(series).unwrap_or(i64::MAX));
        console
            .series_dropped
            .set(i64::try_from(dropped).unwrap_or(i64::MAX));
        set(&metrics.nodes, "alive", alive);
        set(&metrics.nodes, "known", known);
        if let Ok(dead) = state.broker.dead_letters(Channel::Changes).await {
            metrics
                .dead_letters
                .set(i64::try_from(dead).unwrap_or(i64::MAX));
        }
    }
}
