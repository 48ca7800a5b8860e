//! Synchronizes the desired state: from disk at startup, then from the controllers' feed, and back to disk.
//!
//! One task, the store, owns the [`desired_state::DesiredState`]. Changes are collected for some milliseconds, turned into tables and
//! published by a pointer swap. All of that happens away from the threads that answer ([`StateStore::run_blocking`]). A server that starts receives
//! a snapshot first, so changes that were not yet on disk are not lost.

mod build;
pub mod demand;
pub mod desired_state;
pub mod disk;
pub mod heavy_hitters;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fdn_core::feed::Frame;
use fdn_core::{ErrorCode, Revision, Timestamp};
use fdn_link::{Feed, FeedEvent};
use fdn_service::health::Readiness;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, interval, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::build::{BuildInput, BuildOutput, Tables};
use self::desired_state::{Changes, DesiredState, Merged, Snapshot};
use crate::metrics::Metrics;
use crate::policy::records::NamedRecords;
use crate::policy::zone::{Names, ZoneData};
use crate::published::Published;

/// The name of the readiness condition.
pub const READY: &str = "state";
/// How often the metric of the state's age is updated.
const AGE_TICK: Duration = Duration::from_secs(1);
/// After building tables, the store rests for this many times as long, however many changes arrive: in a stream of small changes,
/// building takes a thirtieth of one core.
const PAUSE_SHORT: u32 = 29;
/// The limit of that rest, so that a change in the middle of a large batch need not wait.
const PAUSE_KNEE: Duration = Duration::from_millis(50);
/// If building itself takes long, the rest is this many times as long: building takes at most a tenth of one core.
const PAUSE_LONG: u32 = 9;
/// The longest rest.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The same factor for encoding what is written to disk.
const SAVE_PAUSE: u32 = 19;
/// How often a mere confirmation of the state is written to disk.
const KEEP_CONFIRMATION: Duration = Duration::from_secs(300);

/// The directory and the timing of the store.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// The data directory.
    pub dir: PathBuf,
    /// How long changes are collected before they are published.
    pub coalesce: Duration,
    /// How long changes are collected before they are written to disk.
    pub save_after: Duration,
}

/// Called with the network's authorities, which sign controllers' certificates.
pub type AuthoritiesHandler = Box<dyn Fn(&[String]) + Send + Sync>;

/// The task that owns the state.
pub struct StateStore {
    settings: StoreSettings,
    zone: Arc<ZoneData>,
    desired: DesiredState,
    tables: Tables,
    pending: Changes,
    /// When the next text records expire.
    next_text_expiry: Option<Timestamp>,
    /// The replaced names, kept until no query can hold the last reference to them.
    replaced: Option<Arc<Names>>,
    /// No tables are built before this time.
    next_publish_at: Instant,
    /// Requests a snapshot.
    resync: Arc<Notify>,
    /// Called with the network's authorities when they change.
    on_authorities: AuthoritiesHandler,
    /// When the state was last written to disk, so that mere confirmations are written only now and then.
    saved_at: Instant,
    publish_at: Option<Instant>,
    save_at: Option<Instant>,
    /// When the last write to disk began, and before when the next one must not begin.
    save_begun: Instant,
    next_save_at: Instant,
    saving: Option<JoinHandle<std::io::Result<Duration>>>,
    published: Arc<Published>,
    metrics: Arc<Metrics>,
    readiness: Readiness,
    behind: bool,
}

impl StateStore {
    /// Starts with the state on disk, and publishes it at once.
    ///
    /// # Errors
    /// When the data directory cannot be used.
    pub async fn open(
        settings: StoreSettings,
        zone: Arc<ZoneData>,
        published: Arc<Published>,
        metrics: Arc<Metrics>,
        readiness: Readiness,
        (resync, on_authorities): (Arc<Notify>, AuthoritiesHandler),
    ) -> std::io::Result<Self> {
        let dir = settings.dir.clone();
        let found = spawn_blocking(move || disk::load(&dir)).await?;
        let desired = match found? {
            disk::LoadedState::Nothing => DesiredState::default(),
            disk::LoadedState::State(desired) => {
                info!(
                    revision = desired.revision().get(),
                    "answering from the state kept on disk"
                );
                *desired
            }
            disk::LoadedState::Unreadable(aside, reason) => {
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
            settings,
            zone,
            desired,
            tables: Tables::default(),
            pending,
            next_text_expiry: None,
            replaced: None,
            next_publish_at: now,
            resync,
            on_authorities,
            save_begun: now,
            next_save_at: now,
            saved_at: now,
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

    /// Runs [`StateStore::run`] on the calling thread, which may block: merging, copying and freeing the state of a large network takes longer than
    /// an answer or a gateway check may be delayed.
    pub fn run_blocking(self, feed: Feed, shutdown: CancellationToken) {
        Handle::current().block_on(self.run(feed, shutdown));
    }

    /// Applies the feed until `shutdown`, then writes what is not yet on disk.
    pub async fn run(mut self, mut feed: Feed, shutdown: CancellationToken) {
        let mut ages = interval(AGE_TICK);
        let mut open = true;
        loop {
            tokio::select! {
                event = feed.events.recv(), if open => match event {
                    Some(event) => self.handle_event(event),
                    None => open = false,
                },
                () = at(self.publish_at) => self.publish().await,
                () = at(self.save_at), if self.saving.is_none() => self.save().await,
                result = finished(&mut self.saving) => self.saved(result),
                _ = ages.tick() => {
                    self.update_age_metrics();
                    self.drop_replaced();
                    self.expire_texts();
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
            self.publish_pending().await;
            let result = disk::save(&self.settings.dir, &self.desired);
            self.saved(result);
        }
    }

    fn handle_event(&mut self, event: FeedEvent) {
        match event {
            FeedEvent::Snapshot(revision, mut frames) => {
                frames.retain(|frame| match frame {
                    Frame::Fleet(fleet) => {
                        (self.on_authorities)(&fleet.authorities);
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
            FeedEvent::Change(frame) => self.change(frame),
            FeedEvent::At(revision) => {
                if self.is_current(revision) {
                    self.desired.confirm(fdn_service::now());
                    if self.saved_at.elapsed() > KEEP_CONFIRMATION {
                        self.save_at.get_or_insert_with(Instant::now);
                    }
                    self.update_age_metrics();
                }
            }
            FeedEvent::Removed => error!(
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
                    Merged::Gap => return self.request_snapshot(),
                }
            }
            Frame::Network(desired) => self.desired.network(desired),
            Frame::Txt(desired) => self.desired.text(desired),
            Frame::Fleet(fleet) => return (self.on_authorities)(&fleet.authorities),
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

    /// Handles a missing change: requests a snapshot; until it arrives, answers stay as they are.
    fn request_snapshot(&self) {
        self.metrics.bindings.gaps.inc();
        self.resync.notify_one();
    }

    /// Whether a controller is not behind the state that was received before.
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
            // The first change sets the times: a steady stream of changes must not postpone either forever.
            self.publish_at
                .get_or_insert((now + self.settings.coalesce).max(self.next_publish_at));
            self.save_at
                .get_or_insert((now + self.settings.save_after).max(self.next_save_at));
        }
        self.update_age_metrics();
    }

    /// Removes expired text records from the answers, also without a controller.
    fn expire_texts(&mut self) {
        if self
            .next_text_expiry
            .is_some_and(|end| end <= fdn_service::now())
        {
            self.next_text_expiry = None;
            self.changed(Changes::of_texts());
        }
    }

    /// The valid text records, if they changed.
    fn texts(&mut self, changed: bool) -> Option<Vec<NamedRecords>> {
        if !changed {
            return None;
        }
        let now = fdn_service::now();
        self.next_text_expiry = self.desired.next_text_expiry(now);
        Some(self.desired.texts(now))
    }

    /// Builds tables for what changed and publishes them.
    async fn publish(&mut self) {
        self.publish_at = None;
        let pending = std::mem::take(&mut self.pending);
        let texts = self.texts(pending.texts);
        let input = BuildInput {
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
        let built = spawn_blocking(move || input.build()).await;
        let now = Instant::now();
        self.next_publish_at = now + pause_after(now.duration_since(begun));
        match built {
            Ok(built) => self.built(built, &pending),
            // Happens only after a panic or when the runtime shuts down; all tables are rebuilt the next time.
            Err(cause) => {
                error!(code = %ErrorCode::Internal, %cause, "tables could not be built");
                self.pending.apps = self.desired.apps().map(|(app, ..)| app.clone()).collect();
                self.pending.network = true;
                self.pending.texts = true;
            }
        }
    }

    fn built(&mut self, built: BuildOutput, pending: &Changes) {
        self.tables = built.tables;
        for (app, bindings) in built.bindings {
            self.desired.set_bindings(&app, bindings);
        }
        for (app, cause) in built.failed {
            error!(code = %ErrorCode::Internal, %app, %cause, "the app's bindings cannot be answered; it is answered as before");
            self.desired.forget_revision(&app);
            self.request_snapshot();
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
        self.update_age_metrics();
    }

    /// Frees replaced names, at least one tick after the swap, on a thread that may block.
    fn drop_replaced(&mut self) {
        if let Some(replaced) = self.replaced.take() {
            drop(spawn_blocking(move || drop(replaced)));
        }
    }

    /// Applies all pending changes.
    async fn publish_pending(&mut self) {
        if !self.pending.is_empty() {
            self.publish().await;
        }
    }

    async fn save(&mut self) {
        self.save_at = None;
        // What is written must correspond to its revision.
        self.publish_pending().await;
        self.save_begun = Instant::now();
        self.saved_at = self.save_begun;
        let (dir, desired) = (self.settings.dir.clone(), self.desired.clone());
        self.saving = Some(spawn_blocking(move || disk::save(&dir, &desired)));
    }

    fn saved(&mut self, result: std::io::Result<Duration>) {
        self.saving = None;
        let now = Instant::now();
        let whole = now.duration_since(self.save_begun);
        match result {
            Ok(encoded) => self.next_save_at = now + save_pause(encoded, whole),
            Err(cause) => {
                self.metrics.bindings.unsaved.inc();
                error!(code = %ErrorCode::DataDirectory, dir = %self.settings.dir.display(), %cause, "the state cannot be written; tried again later");
                // At least a second, so that a full disk is not retried constantly.
                let pause = self.settings.save_after.max(Duration::from_secs(1));
                self.next_save_at = now + whole;
                self.save_at.get_or_insert(now + pause);
            }
        }
    }

    fn update_age_metrics(&self) {
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

/// How long no tables are built after building some took `spent`.
fn pause_after(spent: Duration) -> Duration {
    let short = (spent * PAUSE_SHORT).min(PAUSE_KNEE);
    short.max(spent * PAUSE_LONG).min(PAUSE_MAX)
}

/// How long nothing is written after a save that took `whole`, of which encoding took `encoded`. A slow disk keeps it busy half of the time at most;
/// it must not put off for long what a killed server would lose.
fn save_pause(encoded: Duration, whole: Duration) -> Duration {
    (encoded * SAVE_PAUSE).max(whole)
}

/// Waits until a point in time, or forever if there is none.
async fn at(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// Waits for a running save, or forever if there is none.
async fn finished(
    saving: &mut Option<JoinHandle<std::io::Result<Duration>>>,
) -> std::io::Result<Duration> {
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
        let rest = |micros| pause_after(Duration::from_micros(micros)).as_micros();
        assert_eq!(rest(0), 0);
        assert_eq!(rest(500), 14_500);
        assert_eq!(rest(2_000), 50_000, "the knee");
        assert_eq!(rest(5_000), 50_000);
        assert_eq!(rest(20_000), 180_000);
        assert_eq!(rest(500_000), 1_000_000, "the longest");
    }

    #[test]
    fn a_slow_disk_puts_off_the_next_save_by_no_more_than_itself() {
        let of = Duration::from_millis;
        assert_eq!(save_pause(of(1), of(2)), of(19));
        assert_eq!(
            save_pause(of(1), of(1_000)),
            of(1_000),
            "it waited for the disk"
        );
        assert_eq!(save_pause(of(500), of(600)), of(9_500));
    }
}
