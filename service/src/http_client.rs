//! HTTP clients for connections between the processes of the network.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::error::ServiceError;

/// A client with a connect timeout of 3 s and a read timeout of `idle`, which trusts the bundled public certificate authorities.
///
/// # Errors
/// When the TLS settings are refused.
pub fn build(idle: Duration) -> Result<reqwest::Client, ServiceError> {
    build_trusting(idle, None)
}

/// Like [`build`], but trusts only the authorities in `ca_file`, if there is one.
///
/// # Errors
/// As for [`builder_trusting`].
pub fn build_trusting(
    idle: Duration,
    ca_file: Option<&Path>,
) -> Result<reqwest::Client, ServiceError> {
    builder_trusting(ca_file)?
        .read_timeout(idle)
        .build()
        .map_err(ServiceError::HttpClient)
}

/// Like [`build`], but does not follow redirects.
///
/// # Errors
/// As for [`build`].
pub fn build_direct(idle: Duration) -> Result<reqwest::Client, ServiceError> {
    let direct = builder()?
        .read_timeout(idle)
        .redirect(reqwest::redirect::Policy::none());
    direct.build().map_err(ServiceError::HttpClient)
}

/// A controller's client for nodes, over HTTP/2, addressed by the names that [`crate::pki::tls::host`] returns. `idle` is the read timeout. A node
/// that stops acknowledging during a request is given up. All concurrent requests to a node share one connection: unread data of one answer delays
/// the
/// others once it exceeds `windows`, the flow control windows of one answer and of all of them, in bytes.
///
/// # Errors
/// When the TLS settings are refused.
pub fn of_nodes(
    tls: ClientConfig,
    idle: Duration,
    windows: (u32, u32),
) -> Result<reqwest::Client, ServiceError> {
    let client = based_on(tls)
        .read_timeout(idle)
        .http2_initial_stream_window_size(windows.0)
        .http2_initial_connection_window_size(windows.1)
        .redirect(reqwest::redirect::Policy::none())
        .dns_resolver(NodeNameResolver)
        .https_only(true)
        .http2_prior_knowledge()
        .http2_keep_alive_interval(KEEP_ALIVE)
        .http2_keep_alive_timeout(KEEP_ALIVE);
    client.build().map_err(ServiceError::HttpClient)
}

/// How often a node is pinged while an answer is awaited, and how long its reply may take.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Resolves the names of nodes, which contain their addresses.
struct NodeNameResolver;

impl reqwest::dns::Resolve for NodeNameResolver {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let found = crate::pki::tls::parse_host(name.as_str());
        Box::pin(async move {
            let (_, address) = found.ok_or("no node is named so")?;
            // The port of the request is used.
            let addresses: reqwest::dns::Addrs =
                Box::new(std::iter::once(std::net::SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}

/// A client error with its chain of causes, without the URL, which may contain confidential data.
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

/// A builder with the settings of [`build`] except for the read timeout.
///
/// # Errors
/// When the TLS settings are refused.
pub fn builder() -> Result<reqwest::ClientBuilder, ServiceError> {
    builder_trusting(None)
}

/// Like [`builder`], but trusts only the authorities in `ca_file`, if there is one.
///
/// # Errors
/// When the file does not hold PEM certificates of authorities, or the TLS settings are refused.
pub fn builder_trusting(ca_file: Option<&Path>) -> Result<reqwest::ClientBuilder, ServiceError> {
    let roots = match ca_file {
        Some(file) => authorities(file)?,
        None => RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        },
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| ServiceError::Config(format!("TLS: {e}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(based_on(tls))
}

/// Like [`builder`], but with the TLS settings `tls`.
pub fn based_on(tls: ClientConfig) -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .connect_timeout(Duration::from_secs(3))
        // Processes of the network connect to each other directly, ignoring any proxy in the environment.
        .no_proxy()
        .user_agent(concat!("fdn/", env!("CARGO_PKG_VERSION")))
}

/// Reads the authorities' certificates in a file.
fn authorities(file: &Path) -> Result<RootCertStore, ServiceError> {
    let failed = |reason: &dyn std::fmt::Display| ServiceError::Authorities {
        path: file.to_owned(),
        reason: reason.to_string(),
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|cause| failed(&cause))? {
        let certificate = certificate.map_err(|cause| failed(&cause))?;
        roots.add(certificate).map_err(|cause| failed(&cause))?;
    }
    if roots.is_empty() {
        return Err(failed(&"there is no certificate in it"));
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use fdn_core::{Coded as _, ErrorCode};

    use super::*;

    #[test]
    fn a_file_without_authorities_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("ca.pem");
        let refused = || {
            let refused = build_trusting(Duration::from_secs(1), Some(&file));
            refused.expect_err("no authority")
        };
        for text in [
            None,
            Some("nothing of the kind"),
            Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        ] {
            if let Some(text) = text {
                std::fs::write(&file, text).expect("written");
            }
            let error = refused();
            assert!(error.to_string().contains("ca.pem"), "{text:?}: {error}");
            assert_eq!(error.code(), ErrorCode::ConfigInvalid);
        }
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec!["own.test".to_owned()]);
        let certificate = params.and_then(|params| params.self_signed(&key));
        std::fs::write(&file, certificate.expect("a certificate").pem()).expect("written");
        build_trusting(Duration::from_secs(1), Some(&file)).expect("an authority");
    }
}
