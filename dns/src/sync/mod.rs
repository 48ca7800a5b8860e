//! Keeps what the controllers want answered: from disk at start, then from the feed, and back to disk.
//!
//! One task, the store, owns the [`desired_state::DesiredState`]. Changes are gathered for some milliseconds, turned into tables away from the
//! threads that answer, as is all that the store does ([`StateStore::run_apart`]), and published by a pointer swap. A server that starts hears a
//! snapshot first, so what was not yet on disk is not missed.

mod build;
pub mod demand;
pub mod desired_state;
pub mod disk;
pub mod heavy;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fdn_core::feed::Frame;
use fdn_core::{ErrorCode, Revision, Timestamp};
use fdn_link::{Feed, Told};
use fdn_service::health::Readiness;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, interval, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::build::{Built, Tables, Work};
use self::desired_state::{Changes, DesiredState, Merged, Snapshot};
use crate::metrics::Metrics;
use crate::policy::records::NamedRecords;
use crate::policy::zone::{Names, ZoneData};
use crate::published::Published;

/// The name of the readiness condition.
pub const READY: &str = "state";
/// How often the state's age is put into its metric.
const AGE_TICK: Duration = Duration::from_secs(1);
/// After tables were built for some time, no others are built for so many times as long, however many changes come: building takes a
/// thirtieth of one core in a stream of small changes.
const REST_SHORT: u32 = 29;
/// But for so long only: what comes in the middle of a large batch is not to wait.
const REST_KNEE: Duration = Duration::from_millis(50);
/// Where building itself takes long, it takes a tenth of one core at most.
const REST_LONG: u32 = 9;
/// The longest such rest.
const REST_MAX: Duration = Duration::from_secs(1);
/// The same for writing to disk.
const SAVE_REST: u32 = 19;
/// How often a confirmation that changes nothing is written to disk.
const KEEP_CONFIRMATION: Duration = Duration::from_secs(300);

/// How the store works.
#[derive(Clone, Debug)]
pub struct Keeping {
    /// The data directory.
    pub dir: PathBuf,
    /// How long changes are gathered before they are published.
    pub coalesce: Duration,
    /// How long changes are gathered before they are written to disk.
    pub save_after: Duration,
}

/// Takes note of the network's authorities, whom controllers are checked against.
pub type Trust = Box<dyn Fn(&[String]) + Send + Sync>;

/// The task that owns the state.
pub struct StateStore {
    keeping: Keeping,
    zone: Arc<ZoneData>,
    desired: DesiredState,
    tables: Tables,
    pending: Changes,
    /// When the next text records end by themselves.
    texts_end: Option<Timestamp>,
    /// Names that were replaced, kept until no query can be the last to hold them.
    replaced: Option<Arc<Names>>,
    /// Before this no tables are built.
    rest_until: Instant,
    /// Asks for a snapshot.
    ask: Arc<Notify>,
    /// Takes note of whom to trust.
    trust: Trust,
    /// When the disk last got the state, so that bare confirmations are written now and then but not at every one.
    kept_at: Instant,
    publish_at: Option<Instant>,
    save_at: Option<Instant>,
    /// When the last writing to disk began, and before when the next may not.
    save_begun: Instant,
    save_rest_until: Instant,
    saving: Option<JoinHandle<std::io::Result<()>>>,
    published: Arc<Published>,
    metrics: Arc<Metrics>,
    readiness: Readiness,
    behind: bool,
}

impl StateStore {
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
        (ask, trust): (Arc<Notify>, Trust),
    ) -> std::io::Result<Self> {
        let dir = keeping.dir.clone();
        let found = spawn_blocking(move || disk::load(&dir)).await?;
        let desired = match found? {
            disk::Found::Nothing => DesiredState::default(),
            disk::Found::State(desired) => {
                info!(
                    revision = desired.revision().get(),
                    "answering from the state kept on disk"
                );
                *desired
            }
            disk::Found::Unreadable(aside, reason) => {
                warn!(aside = %aside.display(), %reason, "the state on disk cannot be read; moved aside, starting without");
                DesiredState::default()
            }
        };
        let apps = desired.apps().map(|(app, ..)| app.clone()).collect();
        let pending = Changes {
            apps,
            network: desired.is_complete(),
            texts: true,
        };
        let now = Instant::now();
        let mut store = Self {
            keeping,
            zone,
            desired,
            tables: Tables::default(),
            pending,
            texts_end: None,
            replaced: None,
            rest_until: now,
            ask,
            trust,
            save_begun: now,
            save_rest_until: now,
            kept_at: now,
            publish_at: None,
            save_at: None,
            saving: None,
            published,
            metrics,
            readiness,
            behind: false,
        };
        store.publish().await;
        Ok(store)
    }

    /// [`StateStore::run`] on a thread of its own: merging, copying and freeing the state of a large network takes longer than an answer or a check
    /// of a gateway may wait. To be called on a thread that may block.
    pub fn run_apart(self, feed: Feed, shutdown: CancellationToken) {
        Handle::current().block_on(self.run(feed, shutdown));
    }

    /// Takes in what the feed tells until `shutdown`, then writes what is not yet on disk.
    pub async fn run(mut self, mut feed: Feed, shutdown: CancellationToken) {
        let mut ages = interval(AGE_TICK);
        let mut open = true;
        loop {
            tokio::select! {
                told = feed.told.recv(), if open => match told {
                    Some(told) => self.told(told),
                    None => open = false,
                },
                () = at(self.publish_at) => self.publish().await,
                () = at(self.save_at), if self.saving.is_none() => self.save().await,
                result = finished(&mut self.saving) => self.saved(result),
                _ = ages.tick() => {
                    self.tell_age();
                    self.drop_replaced();
                    self.end_texts();
                }
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
            self.settle().await;
            let result = disk::save(&self.keeping.dir, &self.desired);
            self.saved(result);
        }
    }

    fn told(&mut self, told: Told) {
        match told {
            Told::Snapshot(revision, mut frames) => {
                frames.retain(|frame| match frame {
                    Frame::Fleet(fleet) => {
                        (self.trust)(&fleet.authorities);
                        false
                    }
                    _ => true,
                });
                if self.is_current(revision) {
                    let snapshot = Snapshot::of(revision, frames);
                    let changes = self.desired.snapshot(snapshot, fdn_service::now());
                    self.changed(changes);
                }
            }
            Told::Change(frame) => self.change(frame),
            Told::At(revision) => {
                if self.is_current(revision) {
                    self.desired.confirm(fdn_service::now());
                    if self.kept_at.elapsed() > KEEP_CONFIRMATION {
                        self.save_at.get_or_insert_with(Instant::now);
                    }
                    self.tell_age();
                }
            }
            Told::Removed => error!(
                "this DNS server was removed from the network: it answers from what it holds and is told nothing more; stop it, or join again"
            ),
        }
    }

    fn change(&mut self, frame: Frame) {
        let changes = match frame {
            Frame::Bindings(desired) => self.desired.bindings(desired),
            Frame::BindingsChanged(changed) => {
                let app = changed.app.clone();
                match self.desired.changed(changed) {
                    Merged::Taken => Changes::of(app),
                    Merged::Stale => Changes::default(),
                    Merged::Gap => return self.missed(),
                }
            }
            Frame::Network(desired) => self.desired.network(desired),
            Frame::Txt(desired) => self.desired.text(desired),
            Frame::Fleet(fleet) => return (self.trust)(&fleet.authorities),
            Frame::Hello(_)
            | Frame::Snapshot(_)
            | Frame::App(_)
            | Frame::Used(_)
            | Frame::At(_) => {
                warn!("the feed told what is not for DNS servers");
                return;
            }
        };
        if changes.is_empty() {
            self.metrics.stale.inc();
        } else {
            self.changed(changes);
        }
    }

    /// A change is missing; what is held stays in the answers until the snapshot is here.
    fn missed(&self) {
        self.metrics.bindings.gaps.inc();
        self.ask.notify_one();
    }

    /// Whether a controller is not behind what another one told before.
    fn is_current(&mut self, revision: Revision) -> bool {
        if !self.desired.is_behind(revision) {
            self.behind = false;
            return true;
        }
        if !std::mem::replace(&mut self.behind, true) {
            warn!(
                told = revision.get(),
                held = self.desired.revision().get(),
                "the controller's state is older than one told before and is ignored; if its database was replaced \
                 on purpose, remove {} from the data directory",
                disk::FILE
            );
        }
        false
    }

    fn changed(&mut self, changes: Changes) {
        let now = Instant::now();
        self.pending.extend(changes);
        if !self.pending.is_empty() {
            // The first change sets the times: a steady stream of changes must not put either off for ever.
            self.publish_at
                .get_or_insert((now + self.keeping.coalesce).max(self.rest_until));
            self.save_at
                .get_or_insert((now + self.keeping.save_after).max(self.save_rest_until));
        }
        self.tell_age();
    }

    /// Takes text records out of the answers whose time is over, also while nobody can be asked.
    fn end_texts(&mut self) {
        if self.texts_end.is_some_and(|end| end <= fdn_service::now()) {
            self.texts_end = None;
            self.changed(Changes::of_texts());
        }
    }

    /// Text records, if they changed.
    fn texts(&mut self, changed: bool) -> Option<Vec<NamedRecords>> {
        if !changed {
            return None;
        }
        let now = fdn_service::now();
        self.texts_end = self.desired.texts_end(now);
        Some(self.desired.texts(now))
    }

    /// Builds tables for what changed and swaps them in.
    async fn publish(&mut self) {
        self.publish_at = None;
        let pending = std::mem::take(&mut self.pending);
        let texts = self.texts(pending.texts);
        let work = Work {
            texts,
            changed: pending
                .apps
                .iter()
                .map(|app| (app.clone(), self.desired.app(app).cloned()))
                .collect(),
            network: self
                .desired
                .current_network()
                .filter(|_| pending.network)
                .cloned(),
            zone: Arc::clone(&self.zone),
            names: Arc::clone(&self.published.names()),
            serial: self.desired.revision(),
            complete: self.desired.is_complete(),
            tables: std::mem::take(&mut self.tables),
            metrics: Arc::clone(&self.metrics),
        };
        let begun = Instant::now();
        let built = spawn_blocking(move || work.build()).await;
        let now = Instant::now();
        self.rest_until = now + rest_after(now.duration_since(begun));
        match built {
            Ok(built) => self.built(built, &pending),
            // Only a panic or the end of the runtime gets here; all tables are rebuilt the next time.
            Err(cause) => {
                error!(code = %ErrorCode::Internal, %cause, "tables could not be built");
                self.pending.apps = self.desired.apps().map(|(app, ..)| app.clone()).collect();
                self.pending.network = true;
                self.pending.texts = true;
            }
        }
    }

    fn built(&mut self, built: Built, pending: &Changes) {
        self.tables = built.tables;
        for (app, bindings) in built.settled {
            self.desired.settle(&app, bindings);
        }
        for (app, cause) in built.failed {
            error!(code = %ErrorCode::Internal, %app, %cause, "the app's bindings cannot be answered; it is answered as before");
            self.desired.distrust(&app);
            self.missed();
        }
        if let Some(network) = built.network {
            self.published.set_network(Arc::new(network));
        }
        match built.names {
            Ok(names) => self.swap(names, pending),
            Err(cause) => {
                error!(code = %ErrorCode::ConfigInvalid, %cause, "the zone cannot be built");
            }
        }
    }

    fn swap(&mut self, names: Names, pending: &Changes) {
        for (app, reason) in names
            .refused()
            .iter()
            .filter(|(app, _)| pending.apps.contains(app))
        {
            warn!(%app, %reason, "the app is not answered for");
        }
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.metrics.apps.set(gauge(names.apps()));
        self.metrics
            .bindings
            .held
            .set(gauge(self.tables.bindings()));
        self.metrics
            .bindings
            .tables
            .set(gauge(self.tables.different()));
        self.metrics.texts.set(gauge(self.tables.texts()));
        let (complete, apps) = (names.is_complete(), names.apps());
        self.drop_replaced();
        self.replaced = Some(self.published.set_names(names));
        let detail = if complete {
            format!("revision {}, {apps} apps", self.desired.revision())
        } else {
            "neither the disk nor the controller has told which apps exist".to_owned()
        };
        self.readiness.set(READY, complete, detail);
        self.tell_age();
    }

    /// Frees the memory of names that were replaced a while ago, on a thread that may take its time.
    fn drop_replaced(&mut self) {
        if let Some(replaced) = self.replaced.take() {
            drop(spawn_blocking(move || drop(replaced)));
        }
    }

    /// Works in all changes that wait.
    async fn settle(&mut self) {
        if !self.pending.is_empty() {
            self.publish().await;
        }
    }

    async fn save(&mut self) {
        self.save_at = None;
        // What is written must be what its revision says.
        self.settle().await;
        self.save_begun = Instant::now();
        self.kept_at = self.save_begun;
        let (dir, desired) = (self.keeping.dir.clone(), self.desired.clone());
        self.saving = Some(spawn_blocking(move || disk::save(&dir, &desired)));
    }

    fn saved(&mut self, result: std::io::Result<()>) {
        self.saving = None;
        let now = Instant::now();
        self.save_rest_until = now + now.duration_since(self.save_begun) * SAVE_REST;
        if let Err(cause) = result {
            self.metrics.bindings.unsaved.inc();
            error!(code = %ErrorCode::DataDirectory, dir = %self.keeping.dir.display(), %cause, "the state cannot be written; tried again later");
            // At least a second, so that a full disk is not hammered.
            let pause = self.keeping.save_after.max(Duration::from_secs(1));
            self.save_at.get_or_insert(Instant::now() + pause);
        }
    }

    fn tell_age(&self) {
        let revision = i64::try_from(self.desired.revision().get()).unwrap_or(i64::MAX);
        self.metrics.revision.set(revision);
        let age = fdn_service::now().since(self.desired.confirmed_at());
        let never = self.desired.confirmed_at().get() == 0;
        self.metrics.age.set(if never {
            -1
        } else {
            i64::try_from(age.as_secs()).unwrap_or(i64::MAX)
        });
    }
}

/// How long no tables are built after this was spent on building some.
fn rest_after(spent: Duration) -> Duration {
    let short = (spent * REST_SHORT).min(REST_KNEE);
    short.max(spent * REST_LONG).min(REST_MAX)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_changes_wait_for_longer_than_they_cost_and_large_ones_not_for_ever() {
        let rest = |micros| rest_after(Duration::from_micros(micros)).as_micros();
        assert_eq!(rest(0), 0);
        assert_eq!(rest(500), 14_500);
        assert_eq!(rest(2_000), 50_000, "the knee");
        assert_eq!(rest(5_000), 50_000);
        assert_eq!(rest(20_000), 180_000);
        assert_eq!(rest(500_000), 1_000_000, "the longest");
    }
}
