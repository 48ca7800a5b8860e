//! Pulling the controller's snapshot over HTTP: at start, every half minute, and after the broker was away.

use std::time::Duration;

use fdn_bus::SharedBroker;
use fdn_core::api::DnsSnapshot;
use fdn_service::secret::Secret;
use rand::RngExt;
use reqwest::Client;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use url::Url;

/// The first pause after a failure; it doubles up to the interval.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// How often the broker's count of reconnections is looked at.
const WATCH_BROKER: Duration = Duration::from_secs(1);

/// Where and how to pull.
#[derive(Clone, Debug)]
pub struct Source {
    /// The controller's `/dns/v1/snapshot`.
    pub url: Url,
    /// The network token.
    pub token: Option<Secret>,
    /// Pause between two pulls, give or take a tenth.
    pub every: Duration,
    /// The largest snapshot that is taken, in octets.
    pub limit: usize,
}

impl Source {
    /// One pull.
    ///
    /// # Errors
    /// Says what went wrong, without the token.
    async fn pull(&self, client: &Client) -> Result<DnsSnapshot, String> {
        let mut request = client.get(self.url.clone());
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.expose());
        }
        let mut response = request.send().await.map_err(|cause| chain(&cause))?;
        if !response.status().is_success() {
            return Err(format!("status {}", response.status()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|cause| chain(&cause))? {
            if body.len() + chunk.len() > self.limit {
                return Err(format!(
                    "the snapshot is larger than {} octets; raise sync.snapshot_limit",
                    self.limit
                ));
            }
            body.extend_from_slice(&chunk);
        }
        serde_json::from_slice(&body)
            .map_err(|cause| format!("the snapshot cannot be read: {cause}"))
    }
}

/// An error with its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}

/// Pulls until `shutdown` or until nobody takes the snapshots any more.
pub async fn run(
    source: Source,
    client: Client,
    broker: SharedBroker,
    snapshots: mpsc::Sender<DnsSnapshot>,
    shutdown: CancellationToken,
) {
    let work = async {
        let mut away = false;
        let mut retry = FIRST_RETRY;
        loop {
            let reconnects = broker.counters().reconnects;
            let pause = match source.pull(&client).await {
                Ok(snapshot) => {
                    if away {
                        info!(url = %source.url, "the controller answers again");
                    }
                    (away, retry) = (false, FIRST_RETRY);
                    if snapshots.send(snapshot).await.is_err() {
                        return;
                    }
                    source.every
                }
                Err(reason) => {
                    if !away {
                        warn!(url = %source.url, %reason, "the snapshot cannot be pulled; answers go on from what is held");
                    }
                    away = true;
                    let pause = retry;
                    retry = (retry * 2).min(source.every);
                    pause
                }
            };
            let jitter = rand::rng().random_range(0.9..1.1);
            wait(Instant::now() + pause.mul_f64(jitter), &broker, reconnects).await;
        }
    };
    tokio::select! {
        () = work => {}
        () = shutdown.cancelled() => {}
    }
}

/// Waits until `until`, or until the broker came back after a loss: messages may have been missed.
async fn wait(until: Instant, broker: &SharedBroker, reconnects: u64) {
    let mut looks = interval(WATCH_BROKER);
    loop {
        tokio::select! {
            () = sleep_until(until) => return,
            _ = looks.tick() => if broker.counters().reconnects != reconnects { return },
        }
    }
}
