//! How desired state comes to the node: what its feed tells is taken in as it comes. The rule is "newer wins" ([`crate::apps::state`]), so nothing that
//! is told twice or late does harm.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fdn_core::api::AppsSnapshot;
use fdn_core::feed::{AppFrame, Frame, Plain};
use fdn_core::fleet::FleetDesired;
use fdn_core::message::{AppDesired, FunctionSpec, Sealed};
use fdn_core::{Revision, SecretName};
use fdn_link::{Feed, Told, pause};
use fdn_service::seal::SealKey;
use fdn_service::{CancellationToken, ServiceError};
use tokio::time::Instant;
use tracing::{error, warn};

use crate::apps::{Apps, Stopped};
use crate::fleet::{Fleet, Work};
use crate::metrics::Metrics;

/// What takes in what is told.
pub struct Sync {
    /// Who takes the apps in.
    pub apps: Apps,
    /// Who takes in what operators said.
    pub fleet: Arc<Fleet>,
    /// This node's own key: secrets are sealed with it before they are kept.
    pub key: SealKey,
    /// The file of that key.
    pub key_file: PathBuf,
    /// The pause before what could not be kept is asked for again, which doubles, and the longest.
    pub retry: (Duration, Duration),
    /// Tells whether a controller is connected.
    pub metrics: Metrics,
}

/// What became of something that was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// It counts.
    Yes,
    /// It could not be kept, and must come again.
    No,
}

impl Kept {
    const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Yes, Self::Yes) => Self::Yes,
            _ => Self::No,
        }
    }
}

impl Sync {
    /// Takes in what is told until `stop` is cancelled, or nothing comes any more.
    pub async fn run(self, mut feed: Feed, stop: CancellationToken) {
        // It may have heard of its removal before it was stopped.
        if self.is_removed() && self.forget().await.is_err() {
            return;
        }
        let (mut failures, mut ask_at) = (0_u32, None);
        loop {
            let told = tokio::select! {
                () = stop.cancelled() => return,
                changed = feed.connected.changed() => {
                    // The sender lives as long as the connection is kept.
                    if changed.is_err() { return }
                    let connected = *feed.connected.borrow_and_update();
                    self.metrics.controller_up.set(i64::from(connected));
                    continue;
                }
                () = until(ask_at) => {
                    // All of it: what was told meanwhile is not told twice otherwise.
                    ask_at = None;
                    feed.again.notify_one();
                    continue;
                }
                told = feed.told.recv() => told,
            };
            let Some(told) = told else { return };
            let whole = matches!(told, Told::Snapshot(..));
            match self.take(told).await {
                Err(Stopped) => return,
                Ok(Kept::Yes) if whole => (failures, ask_at) = (0, None),
                Ok(Kept::Yes) => {}
                Ok(Kept::No) => {
                    failures = failures.saturating_add(1);
                    let wait = pause(failures, self.retry.0, self.retry.1, rand::random());
                    ask_at = Some(Instant::now() + wait);
                }
            }
        }
    }

    async fn take(&self, told: Told) -> Result<Kept, Stopped> {
        match told {
            Told::Snapshot(revision, frames) => self.snapshot(revision, frames).await,
            Told::Change(Frame::App(app)) => match self.sealed(*app) {
                Some(desired) => self.apps.desired(desired).await.map(|()| Kept::Yes),
                None => Ok(Kept::No),
            },
            Told::Change(Frame::Fleet(fleet)) => {
                let kept = self.take_fleet(fleet).await;
                if self.is_removed() {
                    self.forget().await?;
                }
                Ok(kept)
            }
            Told::Change(Frame::Used(used)) => self.apps.used(used).await.map(|()| Kept::Yes),
            Told::Change(other) => {
                not_for_nodes(&other);
                Ok(Kept::Yes)
            }
            Told::At(_) => Ok(Kept::Yes),
            Told::Removed => {
                // It is told so at each try to connect: nothing has to come again.
                self.in_background(|fleet| fleet.removed()).await;
                self.forget().await?;
                Ok(Kept::Yes)
            }
        }
    }

    async fn snapshot(&self, revision: Revision, frames: Vec<Frame>) -> Result<Kept, Stopped> {
        let mut snapshot = AppsSnapshot {
            revision,
            apps: Vec::new(),
            fleet: None,
            used: Vec::new(),
        };
        let (mut fleet, mut apps) = (Kept::Yes, Kept::Yes);
        for frame in frames {
            match frame {
                Frame::App(app) => match self.sealed(*app) {
                    Some(desired) => snapshot.apps.push(desired),
                    None => apps = Kept::No,
                },
                Frame::Fleet(desired) => fleet = self.take_fleet(desired).await,
                Frame::Used(used) => snapshot.used = used,
                other => not_for_nodes(&other),
            }
        }
        if self.is_removed() {
            self.forget().await?;
        } else if apps == Kept::Yes {
            // An app that is missing in a snapshot is gone, so it counts whole or not at all.
            self.apps.snapshot(snapshot).await?;
        }
        Ok(fleet.and(apps))
    }

    fn is_removed(&self) -> bool {
        self.fleet.view().work() == Work::Removed
    }

    /// Forgets what a node of the network holds: its apps, their secrets, and the key that opens these on disk. Sealed copies that are left, such as a
    /// file that could not be read, are worth nothing then; a start makes another key.
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

    /// An app with its secrets as they are kept; nothing if they cannot be sealed.
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

    /// Takes in what operators said.
    async fn take_fleet(&self, desired: FleetDesired) -> Kept {
        self.in_background(move |fleet| fleet.apply(desired).map(drop))
            .await
    }

    async fn in_background(
        &self,
        work: impl FnOnce(&Fleet) -> Result<(), crate::error::Error> + Send + 'static,
    ) -> Kept {
        let fleet = Arc::clone(&self.fleet);
        match tokio::task::spawn_blocking(move || work(&fleet)).await {
            Ok(Ok(())) => return Kept::Yes,
            Ok(Err(failure)) => {
                warn!(%failure, "what operators said of nodes cannot be kept; what was kept before counts, and it is asked for again");
            }
            Err(failure) => warn!(%failure, "taking in what operators said broke"),
        }
        Kept::No
    }
}

/// Ends at this time, or never.
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
    // Not the frame itself: it may be large.
    let what = std::mem::discriminant(frame);
    warn!(?what, "the feed told what is not for nodes");
}
