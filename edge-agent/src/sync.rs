//! How desired state comes to the node: what its feed tells is taken in as it comes. The rule is "newer wins" ([`crate::apps::state`]), so nothing that
//! is told twice or late does harm.

use std::collections::BTreeMap;
use std::sync::Arc;

use fdn_core::SecretName;
use fdn_core::api::AppsSnapshot;
use fdn_core::feed::{AppFrame, Frame, Plain};
use fdn_core::fleet::FleetDesired;
use fdn_core::message::{AppDesired, FunctionSpec, Sealed};
use fdn_link::{Feed, Told};
use fdn_service::seal::SealKey;
use fdn_service::{CancellationToken, ServiceError};
use tracing::{error, warn};

use crate::apps::{Apps, Stopped};
use crate::fleet::Fleet;
use crate::metrics::Metrics;

/// What takes in what is told.
pub struct Sync {
    /// Who takes the apps in.
    pub apps: Apps,
    /// Who takes in what operators said.
    pub fleet: Arc<Fleet>,
    /// This node's own key: secrets are sealed with it before they are kept.
    pub key: SealKey,
    /// Tells whether a controller is connected.
    pub metrics: Metrics,
}

impl Sync {
    /// Takes in what is told until `stop` is cancelled, or nothing comes any more.
    pub async fn run(self, mut feed: Feed, stop: CancellationToken) {
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
                told = feed.told.recv() => told,
            };
            let Some(told) = told else { return };
            if self.take(told).await.is_err() {
                return;
            }
        }
    }

    async fn take(&self, told: Told) -> Result<(), Stopped> {
        match told {
            Told::Snapshot(revision, frames) => {
                let mut snapshot = AppsSnapshot {
                    revision,
                    apps: Vec::new(),
                    fleet: None,
                    used: Vec::new(),
                };
                for frame in frames {
                    match frame {
                        Frame::App(app) => snapshot.apps.extend(self.sealed(*app)),
                        Frame::Fleet(fleet) => self.take_fleet(fleet).await,
                        Frame::Used(used) => snapshot.used = used,
                        other => not_for_nodes(&other),
                    }
                }
                self.apps.snapshot(snapshot).await
            }
            Told::Change(Frame::App(app)) => match self.sealed(*app) {
                Some(desired) => self.apps.desired(desired).await,
                None => Ok(()),
            },
            Told::Change(Frame::Fleet(fleet)) => {
                self.take_fleet(fleet).await;
                Ok(())
            }
            Told::Change(Frame::Used(used)) => self.apps.used(used).await,
            Told::Change(other) => {
                not_for_nodes(&other);
                Ok(())
            }
            Told::At(_) => Ok(()),
            Told::Removed => {
                self.in_background(|fleet| fleet.removed()).await;
                Ok(())
            }
        }
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

    /// Takes in what operators said. What cannot be kept now comes again with the next snapshot.
    async fn take_fleet(&self, desired: FleetDesired) {
        self.in_background(move |fleet| fleet.apply(desired).map(drop))
            .await;
    }

    async fn in_background(
        &self,
        work: impl FnOnce(&Fleet) -> Result<(), crate::error::Error> + Send + 'static,
    ) {
        let fleet = Arc::clone(&self.fleet);
        match tokio::task::spawn_blocking(move || work(&fleet)).await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => {
                warn!(%failure, "what operators said of nodes cannot be kept; what was kept before counts");
            }
            Err(failure) => warn!(%failure, "taking in what operators said broke"),
        }
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
