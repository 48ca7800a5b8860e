//! Reads the key file again and again, and lets keys change their stage as time goes by.
//!
//! What cannot be read changes nothing: the keys that are held go on, with their stages, and the log and a metric say so.

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

/// Where keys come from, and how long things are remembered.
#[derive(Clone, Debug)]
pub struct Source {
    /// The zone.
    pub zone: HostName,
    /// The key file.
    pub path: PathBuf,
    /// What opens it.
    pub master: MasterSource,
    /// How long things are remembered.
    pub timing: Timing,
    /// Pause between two looks at the file.
    pub every: Duration,
}

impl Source {
    /// Reads and opens the keys.
    ///
    /// # Errors
    /// When that cannot be done.
    pub fn keys(&self) -> Result<Vec<TimedKey>, KeyError> {
        KeyFile::read(&self.path, &self.zone)?.open(&self.master.keys(false)?)
    }

    /// The keys as they stand at `now`.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn ring(&self, now: Timestamp) -> Result<Ring, KeyError> {
        self.standing(self.keys()?, now)
    }

    fn standing(&self, keys: Vec<TimedKey>, now: Timestamp) -> Result<Ring, KeyError> {
        Ring::new(self.zone.clone(), keys, now, &self.timing).ok_or_else(|| KeyError::Format {
            path: self.path.clone(),
            zone: self.zone.clone(),
            reason: "there is none".to_owned(),
        })
    }
}

/// Looks after the keys of a signer until `shutdown`.
pub async fn run(source: Source, signer: Arc<Signer>, shutdown: CancellationToken) {
    let mut ticks = interval(source.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // What was read last, so that keys are opened only when the file changed; and whether that failed, so that it is said once.
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
            // The runtime ends.
            Err(_) => return,
        };
        if let Ok(ring) = source.standing(keys, fdn_service::now()) {
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
