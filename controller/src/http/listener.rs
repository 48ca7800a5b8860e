//! The listener of API and console: with TLS if there are certificates, else plain.

use std::net::{SocketAddr, TcpListener};

use fdn_service::ServiceError;
use fdn_service::listen;
use fdn_service::tls_listener::TlsListener;

use crate::settings::Settings;

/// The name of the setting with the address.
pub(super) const SETTING: &str = "listen";

/// A bound listener.
pub(crate) enum ApiListener {
    /// Without TLS.
    Plain(TcpListener),
    /// With TLS.
    Secure(Box<TlsListener>),
}

impl ApiListener {
    /// Binds the listener, and reads its certificates if there are any.
    ///
    /// # Errors
    /// When the address is in use, or a certificate cannot be used.
    pub(crate) fn open(settings: &Settings) -> Result<Self, ServiceError> {
        let tls = &settings.api.tls;
        if tls.certificates.is_empty() {
            return Ok(Self::Plain(listen::tcp(settings.listen, SETTING)?));
        }
        let secure = TlsListener::open(
            (settings.listen, SETTING),
            (&tls.certificates, "api.tls.certificates"),
            tls.check_interval.as_duration(),
        )?;
        Ok(Self::Secure(Box::new(secure)))
    }

    /// The address on which it listens.
    ///
    /// # Errors
    /// When the operating system cannot tell.
    pub(crate) fn address(&self) -> Result<SocketAddr, std::io::Error> {
        match self {
            Self::Plain(listener) => listener.local_addr(),
            Self::Secure(secure) => Ok(secure.address()),
        }
    }
}
