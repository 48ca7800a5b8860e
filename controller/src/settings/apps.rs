//! Settings of what belongs to apps: secrets, rollouts, domains, records.

use std::net::SocketAddr;
use std::path::PathBuf;

use fdn_core::{ByteSize, DurationMs, txt};
use serde::{Deserialize, Serialize};

use crate::Error;

/// Secrets of functions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SecretSettings {
    /// The file with the master keys, 64 hexadecimal digits each, the one that wraps first; `master.key` beside `network.key_file` if absent,
    /// and made if it does not exist.
    pub master_key_file: Option<PathBuf>,
    /// The variable of the environment with the master keys, instead of a file.
    pub master_key_variable: Option<String>,
    /// The most secrets of one app.
    pub per_app: usize,
    /// The largest value.
    pub value_limit: ByteSize,
    /// How long values that earlier releases stored stay where those find them, once they were moved.
    pub keep_old: DurationMs,
}

impl SecretSettings {
    /// Checks what the types alone cannot.
    ///
    /// # Errors
    /// The setting that makes no sense.
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

/// Versions that are held to objectives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RolloutSettings {
    /// How often they are looked at.
    pub interval: DurationMs,
}

impl RolloutSettings {
    /// Checks what the types alone cannot.
    ///
    /// # Errors
    /// The setting that makes no sense.
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

/// Host names of apps beside their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DomainSettings {
    /// The resolvers that are asked for proofs; those of the machine if there is none.
    pub resolvers: Vec<SocketAddr>,
    /// How long to wait for an answer of one.
    pub timeout: DurationMs,
    /// The most names of one app, proven or not.
    pub per_app: usize,
    /// How often it is looked for names that are due.
    pub interval: DurationMs,
    /// How many names are looked at in one go.
    pub batch: u32,
    /// How long after a look at a proof that was found it is looked at again.
    pub recheck: DurationMs,
    /// The same of one that was not.
    pub retry: DurationMs,
    /// How long an app goes on answering to a name whose proof is missing.
    pub grace: DurationMs,
    /// How long a claim that nobody proves is kept.
    pub pending_for: DurationMs,
}

impl DomainSettings {
    /// Checks what the types alone cannot.
    ///
    /// # Errors
    /// The setting that makes no sense.
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

/// Text records that are set through the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecordSettings {
    /// The most values of one name.
    pub values_per_name: usize,
    /// Bytes of one value at most.
    #[serde(alias = "value_octets")]
    pub value_bytes: u16,
    /// The most names with records below apps of one tenant.
    pub names_per_tenant: u32,
    /// The most names with records that are the network's own.
    pub names_of_network: u32,
    /// How often records are looked for whose time is over.
    pub interval: DurationMs,
    /// How many of them are taken away in one go.
    pub batch: u32,
}

impl RecordSettings {
    /// Checks what the types alone cannot.
    ///
    /// # Errors
    /// The setting that makes no sense.
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
