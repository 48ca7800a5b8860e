//! Keeps what the controller wants answered: from disk at start, then from the broker and from snapshots, and back to disk.
//!
//! One task, the keeper, owns the [`ledger::Ledger`]. Changes are gathered for some milliseconds, turned into tables away from the
//! threads that answer, and published by a pointer swap. A delivery is acknowledged once it is merged: should the process die
//! before the state is on disk, the next snapshot repairs it.

pub mod demand;
pub mod disk;
pub mod ledger;
pub mod pull;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fdn_bus::{Deliveries, Delivery};
use fdn_core::api::DnsSnapshot;
use fdn_core::message::{Message, SCHEMA};
use fdn_core::{AppName, ErrorCode};
use fdn_service::health::Readiness;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, interval, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::ledger::{Changes, Ledger};
use crate::metrics::Metrics;
use crate::policy::fleet::Network;
use crate::policy::zone::{AppTable, Names, ZoneData};
use crate::published::Published;

/// The name of the readiness condition.
pub const READY: &str = "state";
/// How often the state's age is put into its metric.
const AGE_TICK: Duration = Duration::from_secs(1);
/// How often a confirmation that changes nothing is written to disk.
const KEEP_CONFIRMATION: Duration = Duration::from_secs(300);

/// How the keeper works.
#[derive(Clone, Debug)]
pub struct Keeping {
    /// The data directory.
    pub dir: PathBuf,
    /// How long changes are gathered before they are published.
    pub coalesce: Duration,
    /// How long changes are gathered before they are written to disk.
    pub save_after: Duration,
}

/// The task that owns the state.
pub struct Keeper {
    keeping: Keeping,
    zone: Arc<ZoneData>,
    ledger: Ledger,
    tables: BTreeMap<AppName, Arc<AppTable>>,
    pending: Changes,
    /// When the disk last got the state, so that bare confirmations are written now and then but not at every pull.
    kept_at: Instant,
    publish_at: Option<Instant>,
    save_at: Option<Instant>,
    saving: Option<JoinHandle<std::io::Result<()>>>,
    published: Arc<Published>,
    metrics: Arc<Metrics>,
    readiness: Readiness,
    behind: bool,
}

impl Keeper {
    /// Begins with what is on disk, and publishes it at once.
    ///
    /// # Errors
    /// When the data directory cannot be used.
    pub async fn open(
        keeping: Keeping,
        zone: Arc<ZoneData>,
        published: Arc<Published>,
        metrics: Arc<Metrics>,
        readiness: Readiness,
    ) -> std::io::Result<Self> {
        let ledger = match disk::load(&keeping.dir)? {
            disk::Found::Nothing => Ledger::default(),
            disk::Found::State(ledger) => {
                info!(
                    revision = ledger.revision().get(),
                    "answering from the state kept on disk"
                );
                *ledger
            }
            disk::Found::Unreadable(aside, reason) => {
                warn!(aside = %aside.display(), %reason, "the state on disk cannot be read; moved aside, starting without");
                Ledger::default()
            }
        };
        let apps = ledger.apps().map(|entry| entry.app.clone()).collect();
        let pending = Changes {
            apps,
            network: ledger.is_complete(),
        };
        let mut keeper = Self {
            keeping,
            zone,
            ledger,
            tables: BTreeMap::new(),
            pending,
            kept_at: Instant::now(),
            publish_at: None,
            save_at: None,
            saving: None,
            published,
            metrics,
            readiness,
            behind: false,
        };
        keeper.publish().await;
        Ok(keeper)
    }

    /// Takes deliveries and snapshots until `shutdown`, then writes what is not yet on disk.
    pub async fn run(
        mut self,
        mut deliveries: Deliveries,
        mut snapshots: mpsc::Receiver<DnsSnapshot>,
        shutdown: CancellationToken,
    ) {
        let mut ages = interval(AGE_TICK);
        let (mut broker_open, mut pulls_open) = (true, true);
        loop {
            tokio::select! {
                delivery = deliveries.next(), if broker_open => match delivery {
                    Some(delivery) => self.delivered(delivery),
                    None => broker_open = false,
                },
                snapshot = snapshots.recv(), if pulls_open => match snapshot {
                    Some(snapshot) => self.pulled(snapshot),
                    None => pulls_open = false,
                },
                () = at(self.publish_at) => self.publish().await,
                () = at(self.save_at), if self.saving.is_none() => self.save(),
                result = finished(&mut self.saving) => self.saved(result),
                _ = ages.tick() => self.tell_age(),
                () = shutdown.cancelled() => break,
            }
        }
        if let Some(saving) = self.saving.take() {
            let result = saving
                .await
                .unwrap_or_else(|cause| Err(std::io::Error::other(cause)));
            self.saved(result);
        }
        if self.save_at.is_some() {
            let result = disk::save(&self.keeping.dir, &self.ledger);
            self.saved(result);
        }
    }

    fn delivered(&mut self, delivery: Delivery) {
        let envelope = delivery.envelope();
        let changes = if envelope.schema > SCHEMA {
            None
        } else {
            match &envelope.message {
                Message::BindingsDesired(desired) => Some(self.ledger.bindings(desired.clone())),
                Message::NetworkDesired(desired) => Some(self.ledger.network(desired.clone())),
                Message::AppDesired(_)
                | Message::FleetDesired(_)
                | Message::NodeStatus(_)
                | Message::DemandReport(_)
                | Message::RttReport(_) => None,
            }
        };
        let Some(changes) = changes else {
            warn!(id = %envelope.id, kind = envelope.message.kind(), schema = envelope.schema, "message refused: not for this server");
            delivery.reject();
            return;
        };
        delivery.ack();
        if changes.is_empty() {
            self.metrics.stale.inc();
        } else {
            self.changed(changes);
        }
    }

    fn pulled(&mut self, snapshot: DnsSnapshot) {
        if self.ledger.is_behind(snapshot.revision) {
            if !self.behind {
                warn!(
                    snapshot = snapshot.revision.get(),
                    held = self.ledger.revision().get(),
                    "the controller's snapshot is older than one seen before and is ignored; if its database was replaced \
                     on purpose, remove {} from the data directory",
                    disk::FILE
                );
            }
            self.behind = true;
            return;
        }
        self.behind = false;
        let changes = self.ledger.snapshot(snapshot, fdn_service::now());
        if self.kept_at.elapsed() > KEEP_CONFIRMATION {
            self.save_at.get_or_insert_with(Instant::now);
        }
        self.changed(changes);
    }

    fn changed(&mut self, changes: Changes) {
        let now = Instant::now();
        self.pending.extend(changes);
        if !self.pending.is_empty() {
            // The first change sets the times: a steady stream of changes must not put either off for ever.
            self.publish_at.get_or_insert(now + self.keeping.coalesce);
            self.save_at.get_or_insert(now + self.keeping.save_after);
        }
        self.tell_age();
    }

    /// Builds tables for what changed and swaps them in.
    async fn publish(&mut self) {
        self.publish_at = None;
        let pending = std::mem::take(&mut self.pending);
        let changed: Vec<_> = pending
            .apps
            .iter()
            .map(|app| (app.clone(), self.ledger.app(app).cloned()))
            .collect();
        let network = if pending.network {
            self.ledger.current_network().cloned()
        } else {
            None
        };
        let (zone, serial) = (Arc::clone(&self.zone), self.ledger.revision());
        let complete = self.ledger.is_complete();
        let mut tables = std::mem::take(&mut self.tables);
        let built = spawn_blocking(move || {
            for (app, entry) in changed {
                match entry.and_then(|entry| entry.state.map(|state| (entry.revision, state))) {
                    Some((revision, state)) => {
                        tables.insert(app.clone(), Arc::new(AppTable::new(app, revision, &state)));
                    }
                    None => drop(tables.remove(&app)),
                }
            }
            let names = Names::new(&zone, tables.values(), serial, complete);
            (tables, names, network.as_ref().map(Network::new))
        });
        match built.await {
            Ok((tables, names, network)) => {
                self.tables = tables;
                if let Some(network) = network {
                    self.published.set_network(Arc::new(network));
                }
                match names {
                    Ok(names) => self.swap(names, &pending),
                    Err(cause) => {
                        error!(code = %ErrorCode::ConfigInvalid, %cause, "the zone cannot be built")
                    }
                }
            }
            // Only a panic or the end of the runtime gets here; all tables are rebuilt the next time.
            Err(cause) => {
                error!(code = %ErrorCode::Internal, %cause, "tables could not be built");
                self.pending.apps = self.ledger.apps().map(|entry| entry.app.clone()).collect();
                self.pending.network = true;
            }
        }
    }

    fn swap(&self, names: Names, pending: &Changes) {
        for (app, reason) in names
            .refused()
            .iter()
            .filter(|(app, _)| pending.apps.contains(app))
        {
            warn!(%app, %reason, "the app is not answered for");
        }
        self.metrics
            .apps
            .set(i64::try_from(names.apps()).unwrap_or(i64::MAX));
        let (complete, apps) = (names.is_complete(), names.apps());
        self.published.set_names(names);
        let detail = if complete {
            format!("revision {}, {apps} apps", self.ledger.revision())
        } else {
            "neither the disk nor the controller has told which apps exist".to_owned()
        };
        self.readiness.set(READY, complete, detail);
        self.tell_age();
    }

    fn save(&mut self) {
        self.save_at = None;
        self.kept_at = Instant::now();
        let (dir, ledger) = (self.keeping.dir.clone(), self.ledger.clone());
        self.saving = Some(spawn_blocking(move || disk::save(&dir, &ledger)));
    }

    fn saved(&mut self, result: std::io::Result<()>) {
        self.saving = None;
        if let Err(cause) = result {
            error!(code = %ErrorCode::DataDirectory, dir = %self.keeping.dir.display(), %cause, "the state cannot be written; tried again later");
            // At least a second, so that a full disk is not hammered.
            let pause = self.keeping.save_after.max(Duration::from_secs(1));
            self.save_at.get_or_insert(Instant::now() + pause);
        }
    }

    fn tell_age(&self) {
        let revision = i64::try_from(self.ledger.revision().get()).unwrap_or(i64::MAX);
        self.metrics.revision.set(revision);
        let age = fdn_service::now().since(self.ledger.confirmed_at());
        let never = self.ledger.confirmed_at().get() == 0;
        self.metrics.age.set(if never {
            -1
        } else {
            i64::try_from(age.as_secs()).unwrap_or(i64::MAX)
        });
    }
}

/// Waits for a point in time, or for ever if there is none.
async fn at(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// Waits for a running save, or for ever if there is none.
async fn finished(saving: &mut Option<JoinHandle<std::io::Result<()>>>) -> std::io::Result<()> {
    match saving {
        Some(handle) => handle
            .await
            .unwrap_or_else(|cause| Err(std::io::Error::other(cause))),
        None => std::future::pending().await,
    }
}
