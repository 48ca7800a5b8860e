//! Re-reads the key file periodically, and updates the keys' stages as time passes.
//!
//! An unreadable file changes nothing: the server goes on with the keys it holds and their stages; the failure is logged and counted.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fdn_core::{Coded, HostName, Timestamp};
use fdn_service::secret;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::Signer;
use super::file::{KeyError, KeyFile, MasterSource};
use super::ring::{KeyState, Ring, TimedKey};
use super::rollover::Timing;

/// The source of the zone's keys, and the timing of roll-overs.
#[derive(Clone, Debug)]
pub struct KeySource {
    /// The zone.
    pub zone: HostName,
    /// The key file.
    pub path: PathBuf,
    /// The source of the master key.
    pub master: MasterSource,
    /// The timing of roll-overs.
    pub timing: Timing,
    /// The interval at which the file is re-read.
    pub every: Duration,
}

impl KeySource {
    /// Reads and unseals the keys.
    ///
    /// # Errors
    /// When they cannot be read or unsealed.
    pub fn keys(&self) -> Result<Vec<TimedKey>, KeyError> {
        KeyFile::read(&self.path, &self.zone)?.open(&self.master.keys(false)?)
    }

    /// The keys with their stages at `now`.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn ring(&self, now: Timestamp) -> Result<Ring, KeyError> {
        self.ring_of(self.keys()?, now)
    }

    fn ring_of(&self, keys: Vec<TimedKey>, now: Timestamp) -> Result<Ring, KeyError> {
        Ring::new(self.zone.clone(), keys, now, &self.timing).ok_or_else(|| KeyError::Format {
            path: self.path.clone(),
            zone: self.zone.clone(),
            reason: "there is none".to_owned(),
        })
    }
}

/// Keeps the keys of a signer up to date until `shutdown`.
pub async fn run(source: KeySource, signer: Arc<Signer>, shutdown: CancellationToken) {
    let mut ticks = interval(source.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The text that was read last, so that keys are unsealed only when the file changed; and whether the last read failed, so that
    // a failure is logged once.
    let (mut text, mut failed) = (None, false);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shutdown.cancelled() => return,
        }
        let (from, known) = (source.clone(), text.clone());
        let looked = spawn_blocking(move || {
            let now_text = secret::read(&from.path)?;
            if known.as_ref() == Some(&now_text) {
                return Ok(None);
            }
            Ok::<_, KeyError>(Some((now_text, from.keys()?)))
        });
        let keys = match looked.await {
            Ok(Ok(Some((fresh, keys)))) => {
                (text, failed) = (Some(fresh), false);
                keys
            }
            Ok(Ok(None)) => {
                failed = false;
                signer.ring().timed()
            }
            Ok(Err(cause)) => {
                signer.metrics().unread.inc();
                if !std::mem::replace(&mut failed, true) {
                    error!(code = %cause.code(), path = %source.path.display(), %cause,
                        "the zone's keys cannot be read; going on with those held");
                }
                signer.ring().timed()
            }
            // The runtime is shutting down.
            Err(_) => return,
        };
        if let Ok(ring) = source.ring_of(keys, fdn_service::now()) {
            swap(&signer, ring);
        }
    }
}

fn swap(signer: &Signer, ring: Ring) {
    let (before, after) = (signer.ring().states(), ring.states());
    if before == after {
        return;
    }
    let known = |key: &KeyState| {
        before
            .iter()
            .any(|old| (old.tag, old.stage) == (key.tag, key.stage))
    };
    for key in after.iter().filter(|key| !known(key)) {
        info!(tag = key.tag, stage = ?key.stage, "a key of the zone changed its stage");
    }
    signer.set_ring(ring);
}
