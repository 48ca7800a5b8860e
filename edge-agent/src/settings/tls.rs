//! The node's certificate.

use std::path::PathBuf;

use fdn_core::DurationMs;
use fdn_link::IdentityFiles;
use serde::{Deserialize, Serialize};

/// The node's certificate; `fdn-edge-agent join` writes all of these files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsSettings {
    /// The certificates that other nodes are checked against.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The node's certificate. It is replaced by the next one in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// Its key, which never leaves the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// The pause before a renewal that failed is tried again; it doubles with each failure.
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
    /// The files, if all are named.
    #[must_use]
    pub fn files(&self) -> Option<IdentityFiles> {
        Some(IdentityFiles {
            ca: self.ca.clone()?,
            certificate: self.certificate.clone()?,
            key: self.key.clone()?,
        })
    }

    /// Whether either all files are named or none.
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
