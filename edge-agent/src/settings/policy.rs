//! Settings for policies of apps at the gateway.

use fdn_core::{ByteSize, DurationMs};
use serde::{Deserialize, Serialize};

/// Limits on the resources that policies use on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PolicySettings {
    /// The most clients whose rates are counted separately, for each app with a client rate; the others share one.
    pub clients: usize,
    /// The interval at which counts towards quotas are written to disk.
    pub quota_save: DurationMs,
    /// The interval at which an identity provider's keys are fetched.
    pub jwks_interval: DurationMs,
    /// The minimum time between two fetches of the same keys, whatever tokens arrive.
    pub jwks_least: DurationMs,
    /// The timeout of a fetch.
    pub jwks_timeout: DurationMs,
    /// The largest key set, in bytes.
    pub jwks_size: ByteSize,
    /// The most identity providers whose keys are followed.
    pub jwks_sets: usize,
    /// Whether keys may also be fetched over http: for tests.
    pub jwks_http: bool,
}

impl Default for PolicySettings {
    fn default() -> Self {
        Self {
            clients: 16_384,
            quota_save: DurationMs::from_secs(5),
            jwks_interval: DurationMs::from_secs(600),
            jwks_least: DurationMs::from_secs(30),
            jwks_timeout: DurationMs::from_secs(5),
            jwks_size: ByteSize::from_bytes(256 << 10),
            jwks_sets: 256,
            jwks_http: false,
        }
    }
}

impl PolicySettings {
    /// Checks that the values can work.
    ///
    /// # Errors
    /// Names the first invalid key and what it must be.
    pub const fn check(&self) -> Result<(), &'static str> {
        if self.clients == 0 {
            return Err("policy.clients must be at least 1");
        }
        if self.quota_save.as_millis() < 100 {
            return Err("policy.quota_save must be at least 100ms");
        }
        if self.jwks_least.as_millis() < 10
            || self.jwks_least.as_millis() > self.jwks_interval.as_millis()
        {
            return Err("policy.jwks_least must be at least 10ms and at most policy.jwks_interval");
        }
        if self.jwks_timeout.as_millis() == 0 {
            return Err("policy.jwks_timeout must be more than 0");
        }
        Ok(())
    }
}
