//! The node's certificate.

use std::path::PathBuf;

use fdn_core::DurationMs;
use fdn_link::IdentityFiles;
use serde::{Deserialize, Serialize};

/// The node's certificate; `fdn-edge-agent join` writes all of these files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsSettings {
    /// The authorities that the certificates of other nodes are verified against.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The node's certificate. It is renewed before it expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// Its private key, which never leaves the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// The pause before a failed renewal is retried; it doubles with each failure.
    pub renew_retry: DurationMs,
    /// The longest such pause.
    pub renew_retry_max: DurationMs,
}

impl Default for TlsSettings {
    fn default() -> Self {
        Self {
            ca: None,
            certificate: None,
            key: None,
            renew_retry: DurationMs::from_secs(10),
            renew_retry_max: DurationMs::from_secs(600),
        }
    }
}

impl TlsSettings {
    /// The paths of the files, if all are configured.
    #[must_use]
    pub fn files(&self) -> Option<IdentityFiles> {
        Some(IdentityFiles {
            ca: self.ca.clone()?,
            certificate: self.certificate.clone()?,
            key: self.key.clone()?,
        })
    }

    /// Whether either all files are configured or none.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        let (ca, certificate, key) = (
            self.ca.is_some(),
            self.certificate.is_some(),
            self.key.is_some(),
        );
        ca == certificate && certificate == key
    }
}
