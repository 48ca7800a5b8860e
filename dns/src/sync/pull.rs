//! Pulling the controller's snapshot over HTTP: at start, every half minute, and after the broker was away.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use fdn_bus::SharedBroker;
use fdn_service::secret::Secret;
use rand::RngExt;
use reqwest::Client;
use tokio::sync::{Notify, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, interval, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use url::Url;

use super::ledger::Snapshot;

/// The first pause after a failure; it doubles up to the interval.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Pieces of a snapshot that are read ahead of being understood.
const AHEAD: usize = 16;
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
    async fn pull(&self, client: &Client) -> Result<Snapshot, String> {
        let mut request = client.get(self.url.clone());
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.expose());
        }
        let mut response = request.send().await.map_err(|cause| chain(&cause))?;
        if !response.status().is_success() {
            return Err(format!("status {}", response.status()));
        }
        let (pieces, body) = mpsc::channel(AHEAD);
        let parsed =
            spawn_blocking(move || serde_json::from_reader(io::BufReader::new(Body::new(body))));
        let mut length = 0;
        while let Some(chunk) = response.chunk().await.map_err(|cause| chain(&cause))? {
            length += chunk.len();
            if length > self.limit {
                return Err(format!(
                    "the snapshot is larger than {} octets; raise sync.snapshot_limit",
                    self.limit
                ));
            }
            // Whoever reads has stopped: it tells why.
            if pieces.send(chunk.to_vec()).await.is_err() {
                break;
            }
        }
        drop(pieces);
        parsed
            .await
            .map_err(|cause| cause.to_string())?
            .map_err(|cause| format!("the snapshot cannot be read: {cause}"))
    }
}

/// A body as it arrives, for a reader that blocks: a snapshot of millions of bindings is never in memory as text.
struct Body {
    pieces: mpsc::Receiver<Vec<u8>>,
    piece: io::Cursor<Vec<u8>>,
}

impl Body {
    fn new(pieces: mpsc::Receiver<Vec<u8>>) -> Self {
        Self {
            pieces,
            piece: io::Cursor::default(),
        }
    }
}

impl Read for Body {
    fn read(&mut self, octets: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.piece.read(octets)?;
            if read > 0 || octets.is_empty() {
                return Ok(read);
            }
            match self.pieces.blocking_recv() {
                Some(piece) => self.piece = io::Cursor::new(piece),
                None => return Ok(0),
            }
        }
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

/// Pulls until `shutdown` or until nobody takes the snapshots any more. `asked` wakes it before its time, once a second at most.
pub async fn run(
    source: Source,
    client: Client,
    broker: SharedBroker,
    snapshots: mpsc::Sender<Snapshot>,
    asked: Arc<Notify>,
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
            let until = Instant::now() + pause.mul_f64(jitter);
            // While the controller is away, asking does not bring it back: the pauses between attempts stay.
            tokio::select! {
                () = wait(until, &broker, reconnects) => {}
                () = asked.notified(), if !away => tokio::time::sleep(FIRST_RETRY).await,
            }
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
