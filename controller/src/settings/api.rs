//! Settings of the API and its listener.

use fdn_core::{ClientPrefix, DurationMs};
use fdn_service::certificate::CertificateFiles;
use serde::{Deserialize, Serialize};

use super::rule;
use crate::Error;

/// The API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApiSettings {
    /// The number of rows of a list if the caller does not say.
    pub page: u32,
    /// The most rows of a list in one response.
    pub page_max: u32,
    /// For how long a request with an idempotency key is remembered.
    pub idempotency_keep: DurationMs,
    /// How long such a request may run before the same one may begin again.
    pub idempotency_lease: DurationMs,
    /// The most such requests remembered per caller; the oldest make room.
    pub idempotency_keys: u32,
    /// Proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<ClientPrefix>,
    /// The most connections, beyond which new ones wait in the kernel; also the most concurrent requests, since one HTTP/2 connection may carry many.
    pub max_connections: usize,
    /// TLS.
    pub tls: ApiTlsSettings,
}

/// TLS of the listener for API and console: TLS 1.2 and 1.3 with a certificate, plain HTTP without one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApiTlsSettings {
    /// The certificates: each client gets the one that names the requested host, else the first.
    pub certificates: Vec<CertificateFiles>,
    /// How often their files are checked for changes.
    pub check_interval: DurationMs,
    /// How long a handshake may take.
    pub handshake: DurationMs,
    /// How long a browser must use TLS for this host after each response over TLS (HSTS, RFC 6797); 0s makes it forget that.
    pub hsts: DurationMs,
}

impl Default for ApiSettings {
    fn default() -> Self {
        Self {
            page: 100,
            page_max: 1000,
            idempotency_keep: DurationMs::from_secs(24 * 3600),
            idempotency_lease: DurationMs::from_secs(60),
            idempotency_keys: 1000,
            trusted_proxies: Vec::new(),
            max_connections: 20_000,
            tls: ApiTlsSettings::default(),
        }
    }
}

impl Default for ApiTlsSettings {
    fn default() -> Self {
        Self {
            certificates: Vec::new(),
            check_interval: DurationMs::from_secs(10),
            handshake: DurationMs::from_secs(5),
            hsts: DurationMs::from_secs(180 * 24 * 3600),
        }
    }
}

impl ApiSettings {
    /// Checks what the types alone cannot ensure.
    pub(super) fn check(&self) -> Result<(), Error> {
        rule(
            (1..=self.page_max).contains(&self.page),
            "api.page must be at least 1 and at most api.page_max",
        )?;
        rule(
            self.idempotency_keys > 0 && self.idempotency_keep > self.idempotency_lease,
            "api.idempotency_keys must be at least 1, api.idempotency_keep longer than idempotency_lease",
        )?;
        rule(
            self.max_connections > 0,
            "api.max_connections must be at least 1",
        )?;
        rule(
            self.tls.check_interval.as_millis() > 0 && self.tls.handshake.as_millis() > 0,
            "api.tls.check_interval and api.tls.handshake must be longer than 0s",
        )
    }
}
