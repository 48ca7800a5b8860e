//! Applies the desired state from the controllers' feed to the node. The rule is "newer wins" ([`crate::apps::state`]), so a message that arrives
//! twice or late does no harm.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fdn_core::api::AppsSnapshot;
use fdn_core::feed::{AppFrame, Frame, Plain};
use fdn_core::fleet::FleetDesired;
use fdn_core::message::{AppDesired, FunctionSpec, Sealed};
use fdn_core::{Revision, SecretName};
use fdn_link::{Feed, FeedEvent, pause};
use fdn_service::seal::SealKey;
use fdn_service::{CancellationToken, ServiceError};
use tokio::time::Instant;
use tracing::{error, warn};

use crate::apps::{Apps, Stopped};
use crate::fleet::{Fleet, Work};
use crate::metrics::Metrics;

/// Applies what the feed delivers.
pub struct Sync {
    /// Takes the desired state of apps.
    pub apps: Apps,
    /// Takes what operators decided about nodes.
    pub fleet: Arc<Fleet>,
    /// This node's own key: secrets are sealed with it before they are stored.
    pub key: SealKey,
    /// The file of that key.
    pub key_file: PathBuf,
    /// The back-off before the feed is asked again for what could not be stored: the first pause, which doubles, and the longest.
    pub retry: (Duration, Duration),
    /// The metrics, which show whether a controller is connected.
    pub metrics: Metrics,
}

/// Whether a message could be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreOutcome {
    /// It is stored, or needs no storing.
    Stored,
    /// It could not be stored, and must be sent again.
    NotStored,
}

impl StoreOutcome {
    const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Stored, Self::Stored) => Self::Stored,
            _ => Self::NotStored,
        }
    }
}

impl Sync {
    /// Applies messages until `stop` is cancelled or the feed ends.
    pub async fn run(self, mut feed: Feed, stop: CancellationToken) {
        // The node may have learnt of its removal before it was stopped.
        if self.is_removed() && self.forget().await.is_err() {
            return;
        }
        let (mut failures, mut ask_at) = (0_u32, None);
        loop {
            let event = tokio::select! {
                () = stop.cancelled() => return,
                changed = feed.connected.changed() => {
                    // The sender lives as long as the connection is maintained.
                    if changed.is_err() { return }
                    let connected = *feed.connected.borrow_and_update();
                    self.metrics.controller_up.set(i64::from(connected));
                    continue;
                }
                () = until(ask_at) => {
                    // Asks for everything: the feed would not repeat what it has sent meanwhile.
                    ask_at = None;
                    feed.resync.notify_one();
                    continue;
                }
                event = feed.events.recv() => event,
            };
            let Some(event) = event else { return };
            let whole = matches!(event, FeedEvent::Snapshot(..));
            match self.take(event).await {
                Err(Stopped) => return,
                Ok(StoreOutcome::Stored) if whole => (failures, ask_at) = (0, None),
                Ok(StoreOutcome::Stored) => {}
                Ok(StoreOutcome::NotStored) => {
                    failures = failures.saturating_add(1);
                    let wait = pause(failures, self.retry.0, self.retry.1, rand::random());
                    ask_at = Some(Instant::now() + wait);
                }
            }
        }
    }

    async fn take(&self, event: FeedEvent) -> Result<StoreOutcome, Stopped> {
        match event {
            FeedEvent::Snapshot(revision, frames) => self.snapshot(revision, frames).await,
            FeedEvent::Change(Frame::App(app)) => match self.sealed(*app) {
                Some(desired) => self
                    .apps
                    .desired(desired)
                    .await
                    .map(|()| StoreOutcome::Stored),
                None => Ok(StoreOutcome::NotStored),
            },
            FeedEvent::Change(Frame::Fleet(fleet)) => {
                let stored = self.take_fleet(fleet).await;
                if self.is_removed() {
                    self.forget().await?;
                }
                Ok(stored)
            }
            FeedEvent::Change(Frame::Used(used)) => {
                self.apps.used(used).await.map(|()| StoreOutcome::Stored)
            }
            FeedEvent::Change(other) => {
                not_for_nodes(&other);
                Ok(StoreOutcome::Stored)
            }
            FeedEvent::At(_) => Ok(StoreOutcome::Stored),
            FeedEvent::Removed => {
                // Repeated by the controller at each attempt to connect, so nothing must be sent again.
                self.in_background(|fleet| fleet.removed()).await;
                self.forget().await?;
                Ok(StoreOutcome::Stored)
            }
        }
    }

    async fn snapshot(
        &self,
        revision: Revision,
        frames: Vec<Frame>,
    ) -> Result<StoreOutcome, Stopped> {
        let mut snapshot = AppsSnapshot {
            revision,
            apps: Vec::new(),
            fleet: None,
            used: Vec::new(),
        };
        let (mut fleet, mut apps) = (StoreOutcome::Stored, StoreOutcome::Stored);
        for frame in frames {
            match frame {
                Frame::App(app) => match self.sealed(*app) {
                    Some(desired) => snapshot.apps.push(desired),
                    None => apps = StoreOutcome::NotStored,
                },
                Frame::Fleet(desired) => fleet = self.take_fleet(desired).await,
                Frame::Used(used) => snapshot.used = used,
                other => not_for_nodes(&other),
            }
        }
        if self.is_removed() {
            self.forget().await?;
        } else if apps == StoreOutcome::Stored {
            // An app that is missing from a snapshot is deleted, so a snapshot is applied completely or not at all.
            self.apps.snapshot(snapshot).await?;
        }
        Ok(fleet.and(apps))
    }

    fn is_removed(&self) -> bool {
        self.fleet.view().work() == Work::Removed
    }

    /// Deletes what a node of the network holds: its apps, their secrets, and the key that opens these on disk. Sealed copies that remain, such
    /// as an unreadable file, are worthless then; the next start creates another key.
    async fn forget(&self) -> Result<(), Stopped> {
        self.apps.removed().await?;
        match tokio::fs::remove_file(&self.key_file).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                error!(path = %self.key_file.display(), %error, "the key of a node that was removed cannot be deleted; delete it by hand");
            }
            _ => {}
        }
        Ok(())
    }

    /// The app with its secrets sealed by this node's key; `None` if they cannot be sealed.
    fn sealed(&self, frame: AppFrame) -> Option<AppDesired> {
        let AppFrame {
            mut desired,
            secrets,
        } = frame;
        let functions = desired.spec.iter_mut().flat_map(|spec| &mut spec.functions);
        for (function, values) in functions.zip(secrets) {
            match seal(&self.key, function, values) {
                Ok(sealed) => function.secrets = sealed,
                Err(failure) => {
                    error!(app = %desired.app, %failure, "the secrets of an app cannot be sealed; it stays as it was");
                    return None;
                }
            }
        }
        Some(desired)
    }

    /// Applies what operators decided about nodes.
    async fn take_fleet(&self, desired: FleetDesired) -> StoreOutcome {
        self.in_background(move |fleet| fleet.apply(desired).map(drop))
            .await
    }

    async fn in_background(
        &self,
        work: impl FnOnce(&Fleet) -> Result<(), crate::error::Error> + Send + 'static,
    ) -> StoreOutcome {
        let fleet = Arc::clone(&self.fleet);
        match tokio::task::spawn_blocking(move || work(&fleet)).await {
            Ok(Ok(())) => return StoreOutcome::Stored,
            Ok(Err(failure)) => {
                warn!(%failure, "what operators said of nodes cannot be kept; what was kept before counts, and it is asked for again");
            }
            Err(failure) => warn!(%failure, "taking in what operators said broke"),
        }
        StoreOutcome::NotStored
    }
}

/// Completes at this time, or never if there is none.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn seal(
    key: &SealKey,
    function: &FunctionSpec,
    values: BTreeMap<SecretName, Plain>,
) -> Result<BTreeMap<SecretName, Sealed>, ServiceError> {
    let sealed = values.into_iter().map(|(name, value)| {
        let context = format!("{}/{name}", function.function);
        Ok((name, key.seal(&context, &value.0)?))
    });
    sealed.collect()
}

fn not_for_nodes(frame: &Frame) {
    // Not the frame itself, which may be large.
    let what = std::mem::discriminant(frame);
    warn!(?what, "the feed told what is not for nodes");
}
