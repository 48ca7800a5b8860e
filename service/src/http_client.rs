//! The HTTP client between processes of the network.

use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConfig, RootCertStore};

use crate::error::ServiceError;

/// A client with a connect time-out of 3 s and `idle` as the longest silence while reading, which trusts the bundled roots of the
/// web's certificate authorities.
///
/// # Errors
/// When the TLS settings are refused.
pub fn build(idle: Duration) -> Result<reqwest::Client, ServiceError> {
    builder()?
        .read_timeout(idle)
        .build()
        .map_err(ServiceError::HttpClient)
}

/// The same, and redirects are not followed: nobody is asked but who is meant.
///
/// # Errors
/// As [`build`].
pub fn build_direct(idle: Duration) -> Result<reqwest::Client, ServiceError> {
    let direct = builder()?
        .read_timeout(idle)
        .redirect(reqwest::redirect::Policy::none());
    direct.build().map_err(ServiceError::HttpClient)
}

/// The chain of causes of a client error, without the address, which may hold what is nobody's business.
#[must_use]
pub fn without_url(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

/// The same, to be completed.
///
/// # Errors
/// When the TLS settings are refused.
pub fn builder() -> Result<reqwest::ClientBuilder, ServiceError> {
    let roots = RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| ServiceError::Config(format!("TLS: {e}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .connect_timeout(Duration::from_secs(3))
        // Processes of the network speak to one another directly, whatever proxy the environment names.
        .no_proxy()
        .user_agent(concat!("fdn/", env!("CARGO_PKG_VERSION")));
    Ok(builder)
}
