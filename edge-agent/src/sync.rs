//! How desired state comes to the node: messages from the broker as they happen, and snapshots from the controller over HTTP for
//! whatever was missed. Both end in the same rule, "newer wins" ([`crate::apps::state`]).

use std::sync::Arc;
use std::time::Duration;

use fdn_bus::{Deliveries, Delivery, Recent, SharedBroker};
use fdn_core::api::AppsSnapshot;
use fdn_core::fleet::FleetDesired;
use fdn_core::message::{Message, SCHEMA};
use fdn_service::CancellationToken;
use fdn_service::secret::Secret;
use tracing::{info, warn};

use crate::apps::backoff::pause;
use crate::apps::{Apps, Stopped};
use crate::artifacts::without_url;
use crate::fleet::Fleet;
use crate::metrics::Metrics;
use crate::settings::ControllerSettings;

/// Message ids remembered to recognise a second delivery.
const RECENT: usize = 4096;
/// How often it is looked whether the broker was lost and found again, after which a snapshot is read at once.
const RECONNECT_CHECK: Duration = Duration::from_secs(1);
/// The pause after the first failure to read a snapshot.
const FIRST_RETRY: Duration = Duration::from_millis(500);

/// Takes in messages until `stop` is cancelled or the broker has ended for good.
pub async fn consume(
    mut deliveries: Deliveries,
    apps: Apps,
    fleet: Arc<Fleet>,
    stop: CancellationToken,
) {
    let mut recent = Recent::new(RECENT);
    loop {
        let delivery = tokio::select! {
            () = stop.cancelled() => return,
            delivery = deliveries.next() => delivery,
        };
        let Some(delivery) = delivery else { return };
        if take(delivery, &apps, &fleet, &mut recent).await.is_err() {
            return;
        }
    }
}

async fn take(
    delivery: Delivery,
    apps: &Apps,
    fleet: &Arc<Fleet>,
    recent: &mut Recent,
) -> Result<(), Stopped> {
    let envelope = delivery.envelope();
    if envelope.schema > SCHEMA {
        warn!(
            schema = envelope.schema,
            "a message of a newer controller is left to the dead letters; the snapshot is asked instead"
        );
        delivery.reject();
        return Ok(());
    }
    let id = envelope.id;
    // Dropped without a verdict when the agent stops, the delivery comes again to the next start.
    match &envelope.message {
        Message::AppDesired(desired) => apps.desired(desired.clone()).await?,
        Message::FleetDesired(desired) => take_fleet(fleet, desired.clone()).await,
        other => {
            warn!(kind = other.kind(), "a message that is not for nodes");
            delivery.reject();
            return Ok(());
        }
    }
    if !recent.insert(id) {
        info!(%id, "a message came twice");
    }
    delivery.ack();
    Ok(())
}

/// Takes in what operators said. What cannot be kept now comes again with the next snapshot.
async fn take_fleet(fleet: &Arc<Fleet>, desired: FleetDesired) {
    let fleet = Arc::clone(fleet);
    let applied = tokio::task::spawn_blocking(move || fleet.apply(desired)).await;
    match applied {
        Ok(Ok(_)) => {}
        Ok(Err(failure)) => {
            warn!(%failure, "what operators said of nodes cannot be kept; what was kept before counts");
        }
        Err(failure) => warn!(%failure, "taking in what operators said broke"),
    }
}

/// Reads snapshots from the controller.
pub struct SnapshotPuller {
    /// The HTTP client.
    pub client: reqwest::Client,
    /// Where and how often.
    pub settings: ControllerSettings,
    /// The network token.
    pub token: Secret,
    /// Who takes the apps in.
    pub apps: Apps,
    /// Who takes in what operators said.
    pub fleet: Arc<Fleet>,
    /// Watched for reconnects.
    pub broker: SharedBroker,
    /// Tells whether the controller answers.
    pub metrics: Metrics,
}

/// Why a snapshot was not read.
#[derive(Debug, thiserror::Error)]
enum PullError {
    #[error("{0}")]
    Http(String),
    #[error("status {0}")]
    Status(u16),
    #[error("the snapshot is larger than controller.snapshot_limit")]
    TooLarge,
    #[error("the snapshot cannot be understood: {0}")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl SnapshotPuller {
    /// Reads a snapshot now, then again and again until `stop` is cancelled.
    pub async fn run(self, stop: CancellationToken) {
        let mut failures = 0;
        loop {
            let pulled = tokio::select! {
                () = stop.cancelled() => return,
                pulled = self.pull() => pulled,
            };
            let interval = self.settings.snapshot_interval.as_duration();
            let wait = match pulled {
                Ok(()) => {
                    if failures > 0 {
                        info!("the controller answers again");
                    }
                    failures = 0;
                    self.metrics.controller_up.set(1);
                    interval.mul_f64(0.8 + 0.4 * rand::random::<f64>())
                }
                Err(failure) => {
                    failures += 1;
                    self.metrics.controller_up.set(0);
                    if failures == 1 {
                        warn!(%failure, "the controller gives no snapshot; what is deployed is served on");
                    }
                    pause(failures, FIRST_RETRY, interval, rand::random())
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
                () = self.reconnected() => {}
            }
        }
    }

    /// Returns when the broker was lost and found again.
    async fn reconnected(&self) {
        let before = self.broker.counters().reconnects;
        while self.broker.counters().reconnects == before {
            tokio::time::sleep(RECONNECT_CHECK).await;
        }
    }

    async fn pull(&self) -> Result<(), PullError> {
        let http = |error| PullError::Http(without_url(error));
        let url = format!("{}/agent/v1/apps", self.settings.url.trim_end_matches('/'));
        let request = self.client.get(url).bearer_auth(self.token.expose());
        let mut response = request.send().await.map_err(http)?;
        if !response.status().is_success() {
            return Err(PullError::Status(response.status().as_u16()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(http)? {
            if body.len() + chunk.len() > self.settings.snapshot_limit.as_usize() {
                return Err(PullError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        let mut snapshot: AppsSnapshot = serde_json::from_slice(&body)?;
        if let Some(desired) = snapshot.fleet.take() {
            take_fleet(&self.fleet, desired).await;
        }
        Ok(self.apps.snapshot(snapshot).await?)
    }
}
