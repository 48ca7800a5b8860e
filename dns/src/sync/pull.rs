//! Pulling the controller's snapshot over HTTP: at start, every half minute, and after the broker was away. A snapshot that is already here
//! is not sent again (`If-None-Match`, RFC 9110, section 13.1.2): the controller only confirms it.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use fdn_bus::SharedBroker;
use fdn_core::Revision;
use fdn_service::secret::Secret;
use rand::RngExt;
use reqwest::header::{ETAG, HeaderValue, IF_NONE_MATCH};
use reqwest::{Client, Response, StatusCode};
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

/// What a pull brought.
#[derive(Debug)]
pub enum Pulled {
    /// The whole state.
    Snapshot(Snapshot),
    /// Everything is as in the snapshot of this revision.
    Unchanged(Revision),
}

/// What the controller calls the snapshot that was pulled last.
#[derive(Clone, Debug)]
struct Held {
    tag: HeaderValue,
    revision: Revision,
}

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
    /// One pull. `held` becomes the snapshot that was pulled; nothing is sent again as long as it is still the newest.
    ///
    /// # Errors
    /// Says what went wrong, without the token.
    async fn pull(&self, client: &Client, held: &mut Option<Held>) -> Result<Pulled, String> {
        let mut request = client.get(self.url.clone());
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.expose());
        }
        if let Some(held) = held {
            request = request.header(IF_NONE_MATCH, held.tag.clone());
        }
        let response = request.send().await.map_err(|cause| chain(&cause))?;
        match (response.status(), &*held) {
            (StatusCode::NOT_MODIFIED, Some(held)) => Ok(Pulled::Unchanged(held.revision)),
            (status, _) if status.is_success() => {
                let tag = response.headers().get(ETAG).cloned();
                let snapshot = self.read(response).await?;
                let revision = snapshot.revision;
                *held = tag.map(|tag| Held { tag, revision });
                Ok(Pulled::Snapshot(snapshot))
            }
            (status, _) => Err(format!("status {status}")),
        }
    }

    /// Reads a snapshot away from the threads that answer.
    async fn read(&self, mut response: Response) -> Result<Snapshot, String> {
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
    snapshots: mpsc::Sender<Pulled>,
    asked: Arc<Notify>,
    shutdown: CancellationToken,
) {
    let work = async {
        let mut away = false;
        let mut retry = FIRST_RETRY;
        let mut held = None;
        loop {
            let reconnects = broker.counters().reconnects;
            let pause = match source.pull(&client, &mut held).await {
                Ok(pulled) => {
                    if away {
                        info!(url = %source.url, "the controller answers again");
                    }
                    (away, retry) = (false, FIRST_RETRY);
                    if snapshots.send(pulled).await.is_err() {
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
                // Whoever asks needs the whole, also of a revision that was pulled before.
                () = asked.notified(), if !away => {
                    held = None;
                    tokio::time::sleep(FIRST_RETRY).await;
                }
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
