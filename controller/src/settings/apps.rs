//! Settings of apps: secrets, rollouts, domains, records.

use std::net::SocketAddr;
use std::path::PathBuf;

use fdn_core::{ByteSize, DurationMs, txt};
use serde::{Deserialize, Serialize};

use crate::Error;

/// Secrets of functions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SecretSettings {
    /// The file with the master keys, 64 hexadecimal digits each, the wrapping one first; `master.key` beside `network.key_file` if absent, and
    /// created if it does not exist.
    pub master_key_file: Option<PathBuf>,
    /// The environment variable with the master keys, instead of a file.
    pub master_key_variable: Option<String>,
    /// The most secrets of one app.
    pub per_app: usize,
    /// The largest value.
    pub value_limit: ByteSize,
    /// How long secret values stored by earlier releases remain in the old place after they were moved.
    pub keep_old: DurationMs,
}

impl SecretSettings {
    /// Checks what the types alone cannot ensure.
    ///
    /// # Errors
    /// When a setting is not valid.
    pub(super) fn check(&self) -> Result<(), Error> {
        super::rule(
            self.per_app > 0 && self.value_limit.as_bytes() > 0,
            "secrets.per_app and secrets.value_limit must be positive",
        )
    }
}

impl Default for SecretSettings {
    fn default() -> Self {
        Self {
            master_key_file: None,
            master_key_variable: None,
            per_app: 128,
            value_limit: ByteSize::from_bytes(64 << 10),
            keep_old: DurationMs::from_secs(3600),
        }
    }
}

/// Watching new versions against objectives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RolloutSettings {
    /// How often the watched versions are checked.
    pub interval: DurationMs,
}

impl RolloutSettings {
    /// Checks what the types alone cannot ensure.
    ///
    /// # Errors
    /// When a setting is not valid.
    pub(super) fn check(&self) -> Result<(), Error> {
        super::rule(
            self.interval.as_millis() >= 10,
            "rollouts.interval must be at least 10ms",
        )
    }
}

impl Default for RolloutSettings {
    fn default() -> Self {
        Self {
            interval: DurationMs::from_secs(2),
        }
    }
}

/// Custom domains of apps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DomainSettings {
    /// The resolvers asked for proofs; the host's own if empty.
    pub resolvers: Vec<SocketAddr>,
    /// How long a resolver may take to answer.
    pub timeout: DurationMs,
    /// The most names of one app, verified or not.
    pub per_app: usize,
    /// How often the store is searched for names that are due for a check.
    pub interval: DurationMs,
    /// The most names checked in one go.
    pub batch: u32,
    /// How long after a check that found the proof the name is checked again.
    pub recheck: DurationMs,
    /// How long after a check that did not find the proof the name is checked again.
    pub retry: DurationMs,
    /// How long an app keeps a verified name whose proof is missing.
    pub grace: DurationMs,
    /// How long an unverified claim is kept.
    pub pending_for: DurationMs,
}

impl DomainSettings {
    /// Checks what the types alone cannot ensure.
    ///
    /// # Errors
    /// When a setting is not valid.
    pub(super) fn check(&self) -> Result<(), Error> {
        let spans = [self.timeout, self.interval, self.recheck, self.retry];
        super::rule(
            spans.iter().all(|span| span.as_millis() >= 10),
            "domains.timeout, interval, recheck and retry must be at least 10ms",
        )?;
        super::rule(
            self.per_app > 0 && self.batch > 0,
            "domains.per_app and domains.batch must be at least 1",
        )
    }
}

impl Default for DomainSettings {
    fn default() -> Self {
        Self {
            resolvers: Vec::new(),
            timeout: DurationMs::from_secs(5),
            per_app: 20,
            interval: DurationMs::from_secs(30),
            batch: 100,
            recheck: DurationMs::from_secs(6 * 3600),
            retry: DurationMs::from_secs(300),
            grace: DurationMs::from_secs(72 * 3600),
            pending_for: DurationMs::from_secs(7 * 86_400),
        }
    }
}

/// TXT records that are set through the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecordSettings {
    /// The most values of one name.
    pub values_per_name: usize,
    /// The most bytes of one value.
    #[serde(alias = "value_octets")]
    pub value_bytes: u16,
    /// The most names with records below apps of one tenant.
    pub names_per_tenant: u32,
    /// The most names with records that belong to the network itself.
    pub names_of_network: u32,
    /// How often expired records are looked for.
    pub interval: DurationMs,
    /// The most records removed in one go.
    pub batch: u32,
}

impl RecordSettings {
    /// Checks what the types alone cannot ensure.
    ///
    /// # Errors
    /// When a setting is not valid.
    pub(super) fn check(&self) -> Result<(), Error> {
        super::rule(
            (1..=txt::VALUES_MAX).contains(&self.values_per_name),
            &format!(
                "records.values_per_name must be from 1 to {}",
                txt::VALUES_MAX
            ),
        )?;
        super::rule(
            (1..=txt::VALUE_MAX).contains(&usize::from(self.value_bytes)),
            &format!("records.value_bytes must be from 1 to {}", txt::VALUE_MAX),
        )?;
        super::rule(
            self.interval.as_millis() >= 10 && self.batch > 0,
            "records.interval must be at least 10ms, and records.batch at least 1",
        )
    }
}

impl Default for RecordSettings {
    fn default() -> Self {
        Self {
            values_per_name: 8,
            value_bytes: 255,
            names_per_tenant: 64,
            names_of_network: 256,
            interval: DurationMs::from_secs(5),
            batch: 100,
        }
    }
}
