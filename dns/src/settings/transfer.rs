//! Settings of zone transfers and of notices to secondaries.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fdn_core::DurationMs;
use fdn_service::secret;
use serde::{Deserialize, Serialize};

use super::{RecordName, Settings};
use crate::error::Error;
use crate::handler::transfer::Transfers;
use crate::handler::tsig::{Algorithm, Key, Keyring};
use crate::notify::{NotifyTiming, Secondary};

/// The shortest secret, in bytes (RFC 8945, section 10: at least half of the shortest signature here).
const SECRET_MIN: usize = 16;
/// The most keys, the most secondaries, and the most attempts of a notice.
const KEYS_MAX: usize = 100;
const SECONDARIES_MAX: usize = 100;
const ATTEMPTS_MAX: u32 = 10;

/// Transfers and notices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TransferSettings {
    /// TSIG keys: requests signed with one of them may transfer the zone's fixed part (RFC 8945).
    pub keys: Vec<TransferKey>,
    /// Secondaries that are notified when the zone's serial number changes (RFC 1996).
    pub notify: Vec<NotifySettings>,
    /// How often a notice is sent at most.
    pub notify_attempts: u32,
    /// The timeout of the first attempt; it doubles with each further one.
    pub notify_timeout: DurationMs,
    /// The pause between two notices to one secondary.
    pub notify_pause: DurationMs,
}

impl Default for TransferSettings {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            notify: Vec::new(),
            notify_attempts: 5,
            notify_timeout: DurationMs::from_secs(2),
            notify_pause: DurationMs::from_secs(5),
        }
    }
}

/// A TSIG key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransferKey {
    /// The key's name, the same at both ends.
    pub name: RecordName,
    /// The algorithm of its signatures.
    pub algorithm: Algorithm,
    /// The file with the secret, in base64.
    pub secret_file: PathBuf,
}

/// A secondary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotifySettings {
    /// The address that it listens on.
    pub address: SocketAddr,
    /// The name of the key that notices are signed with; absent: they are not signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<RecordName>,
}

impl Settings {
    /// Checks the transfer settings, without reading files.
    pub(super) fn validate_transfer(&self) -> Result<(), Error> {
        let transfer = &self.transfer;
        let fail = |key, reason: String| Err(Error::Setting { key, reason });
        let named =
            |name: &RecordName| transfer.keys.iter().filter(|key| key.name == *name).count();
        if transfer.keys.len() > KEYS_MAX {
            return fail("transfer.keys", format!("must be at most {KEYS_MAX}"));
        }
        if let Some(twice) = transfer.keys.iter().find(|key| named(&key.name) > 1) {
            return fail("transfer.keys", format!("names {} twice", twice.name));
        }
        if transfer.notify.len() > SECONDARIES_MAX {
            return fail(
                "transfer.notify",
                format!("must be at most {SECONDARIES_MAX}"),
            );
        }
        let mut keys = transfer.notify.iter().filter_map(|one| one.key.as_ref());
        if let Some(unknown) = keys.find(|name| named(name) == 0) {
            return fail(
                "transfer.notify",
                format!("names the key {unknown}, which is not in transfer.keys"),
            );
        }
        if !(1..=ATTEMPTS_MAX).contains(&transfer.notify_attempts) {
            return fail(
                "transfer.notify_attempts",
                format!("must be between 1 and {ATTEMPTS_MAX}"),
            );
        }
        for (key, time) in [
            ("transfer.notify_timeout", transfer.notify_timeout),
            ("transfer.notify_pause", transfer.notify_pause),
        ] {
            if time.as_millis() == 0 {
                return fail(key, "must be longer than 0s".to_owned());
            }
        }
        Ok(())
    }

    /// The zone transfers and their keys, with the secrets read from their files.
    ///
    /// # Errors
    /// When a secret cannot be read, or the zone's settings are invalid.
    pub fn transfers(&self) -> Result<Transfers, Error> {
        let keys = self
            .transfer
            .keys
            .iter()
            .map(key)
            .collect::<Result<_, _>>()?;
        let zone = self.zone_data(self.listen[0].ip())?;
        Ok(Transfers::new(Keyring::new(keys), &zone))
    }

    /// The secondaries that are notified of changes.
    #[must_use]
    pub fn secondaries(&self, transfers: &Transfers) -> Vec<Secondary> {
        let secondary = |one: &NotifySettings| Secondary {
            address: one.address,
            key: one
                .key
                .as_ref()
                .and_then(|name| transfers.keys().named(name.name()).cloned()),
        };
        self.transfer.notify.iter().map(secondary).collect()
    }

    /// The timing of notices.
    #[must_use]
    pub const fn notify_timing(&self) -> NotifyTiming {
        NotifyTiming {
            attempts: self.transfer.notify_attempts,
            timeout: self.transfer.notify_timeout.as_duration(),
            pause: self.transfer.notify_pause.as_duration(),
        }
    }
}

fn key(settings: &TransferKey) -> Result<Arc<Key>, Error> {
    let text = secret::read(&settings.secret_file)?;
    let secret = STANDARD.decode(text.expose());
    match secret {
        Ok(secret) if secret.len() >= SECRET_MIN => Ok(Arc::new(Key::new(
            settings.name.name(),
            settings.algorithm,
            &secret,
        ))),
        _ => Err(Error::Setting {
            key: "transfer.keys.secret_file",
            reason: format!(
                "must name a file with at least {SECRET_MIN} bytes in base64; {} is not one",
                settings.secret_file.display()
            ),
        }),
    }
}
