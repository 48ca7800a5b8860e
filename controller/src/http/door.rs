//! The listener of API and console: plain, or with TLS where there is a certificate.

use std::net::{SocketAddr, TcpListener};

use fdn_service::ServiceError;
use fdn_service::listen;
use fdn_service::secure::Secure;

use crate::settings::Settings;

/// What the settings call the address.
pub(super) const SETTING: &str = "listen";

/// A bound listener.
pub(crate) enum Door {
    /// Without TLS.
    Plain(TcpListener),
    /// With it.
    Secure(Box<Secure>),
}

impl Door {
    /// Binds the listener, and reads its certificates if there are any.
    ///
    /// # Errors
    /// When the address is taken, or a certificate cannot be used.
    pub(crate) fn open(settings: &Settings) -> Result<Self, ServiceError> {
        let tls = &settings.api.tls;
        if tls.certificates.is_empty() {
            return Ok(Self::Plain(listen::tcp(settings.listen, SETTING)?));
        }
        let secure = Secure::open(
            (settings.listen, SETTING),
            (&tls.certificates, "api.tls.certificates"),
            tls.check_interval.as_duration(),
        )?;
        Ok(Self::Secure(Box::new(secure)))
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the operating system does not tell.
    pub(crate) fn address(&self) -> Result<SocketAddr, std::io::Error> {
        match self {
            Self::Plain(listener) => listener.local_addr(),
            Self::Secure(secure) => Ok(secure.address()),
        }
    }
}
