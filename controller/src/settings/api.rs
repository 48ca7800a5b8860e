//! Conventions of the API, and its listener.

use fdn_core::{ClientPrefix, DurationMs};
use fdn_service::certificate::CertificateFiles;
use serde::{Deserialize, Serialize};

use super::rule;
use crate::Error;

/// Conventions of the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApiSettings {
    /// Rows of a list when the caller does not say how many.
    pub page: u32,
    /// The most rows of a list at a time.
    pub page_max: u32,
    /// For how long a request with an idempotency key is remembered.
    pub idempotency_keep: DurationMs,
    /// How long such a request may run before the same one may begin anew.
    pub idempotency_lease: DurationMs,
    /// The most such requests of one caller that are remembered; the oldest make room.
    pub idempotency_keys: u32,
    /// Proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<ClientPrefix>,
    /// Connections in all, beyond which new ones wait in the kernel; and requests at once, of which over HTTP/2 one connection may have many.
    pub max_connections: usize,
    /// TLS.
    pub tls: ApiTlsSettings,
}

/// What the listener of API and console shows: TLS 1.2 and 1.3 with a certificate, plain HTTP without one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApiTlsSettings {
    /// To each client the one that names the host it asks for, else the first.
    pub certificates: Vec<CertificateFiles>,
    /// The pause between two looks at their files.
    pub check_interval: DurationMs,
    /// How long a handshake may take.
    pub handshake: DurationMs,
    /// How long a browser asks this host over TLS alone after each answer over TLS (RFC 6797); with 0s it forgets that.
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
    /// Checks what the types alone cannot.
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
