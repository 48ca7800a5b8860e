//! Settings of the encrypted transports: DNS over TLS and over HTTPS.

use std::net::SocketAddr;
use std::path::PathBuf;

use fdn_core::DurationMs;
use fdn_service::certificate::CertificateFiles;
use serde::{Deserialize, Serialize};

use super::Settings;
use crate::error::Error;
use crate::handler::streams::Limits;

/// The most concurrent requests on one connection.
const STREAMS_MAX: u32 = 1000;

/// The encrypted transports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EncryptedSettings {
    /// The listening addresses of DNS over TLS (RFC 7858).
    pub tls: Vec<SocketAddr>,
    /// The listening addresses of DNS over HTTPS (RFC 8484).
    pub https: Vec<SocketAddr>,
    /// The file with the certificate chain (PEM).
    pub certificate_file: Option<PathBuf>,
    /// The file with the certificate's private key (PEM).
    pub key_file: Option<PathBuf>,
    /// The interval at which both files are re-read.
    pub check_interval: DurationMs,
    /// The most concurrent connections per address.
    pub connections: usize,
    /// The most concurrent connections of one client.
    pub per_client: usize,
    /// How long a whole message may take to arrive, or an answer to be accepted. A tenth of this while three quarters of the connections
    /// are in use.
    pub idle: DurationMs,
    /// How long a handshake may take. A tenth of this while three quarters of `handshakes` are in progress.
    pub handshake: DurationMs,
    /// The most concurrent handshakes per address.
    pub handshakes: usize,
    /// The most concurrent requests on one HTTPS connection.
    pub streams: u32,
}

impl Default for EncryptedSettings {
    fn default() -> Self {
        Self {
            tls: Vec::new(),
            https: Vec::new(),
            certificate_file: None,
            key_file: None,
            check_interval: DurationMs::from_secs(10),
            connections: 1000,
            per_client: 64,
            idle: DurationMs::from_secs(10),
            handshake: DurationMs::from_secs(5),
            handshakes: 256,
            streams: 100,
        }
    }
}

impl EncryptedSettings {
    /// The certificate's files; `None` if no encrypted transport is configured.
    ///
    /// # Errors
    /// When an address is configured but a file is not.
    pub fn source(&self) -> Result<Option<CertificateFiles>, Error> {
        if self.tls.is_empty() && self.https.is_empty() {
            return Ok(None);
        }
        let needed = |key, file: &Option<PathBuf>| {
            file.clone().ok_or_else(|| Error::Setting {
                key,
                reason: "is needed for encrypted.tls and encrypted.https".to_owned(),
            })
        };
        Ok(Some(CertificateFiles {
            certificate_file: needed("encrypted.certificate_file", &self.certificate_file)?,
            key_file: needed("encrypted.key_file", &self.key_file)?,
        }))
    }
}

impl Settings {
    /// Checks the settings of the encrypted transports, without reading files.
    pub(super) fn validate_encrypted(&self) -> Result<(), Error> {
        let encrypted = &self.encrypted;
        let fail = |key, reason: &str| {
            Err(Error::Setting {
                key,
                reason: reason.to_owned(),
            })
        };
        for (key, count) in [
            ("encrypted.connections", encrypted.connections),
            ("encrypted.per_client", encrypted.per_client),
            ("encrypted.handshakes", encrypted.handshakes),
        ] {
            // A process cannot have more file descriptors anyway.
            if !(1..=1_000_000).contains(&count) {
                return fail(key, "must be between 1 and 1000000");
            }
        }
        for (key, time) in [
            ("encrypted.check_interval", encrypted.check_interval),
            ("encrypted.idle", encrypted.idle),
            ("encrypted.handshake", encrypted.handshake),
        ] {
            if time.as_millis() == 0 {
                return fail(key, "must be longer than 0s");
            }
        }
        if !(1..=STREAMS_MAX).contains(&encrypted.streams) {
            return fail("encrypted.streams", "must be between 1 and 1000");
        }
        encrypted.source().map(drop)
    }

    /// The limits of the encrypted connections.
    #[must_use]
    pub fn encrypted_limits(&self) -> Limits {
        Limits {
            connections: self.encrypted.connections,
            per_client: self.encrypted.per_client,
            idle: self.encrypted.idle.as_duration(),
            request: self.tcp.request.as_usize(),
        }
    }
}
