//! Asking a gateway for its health: over which protocol, and whose certificates are believed.

use std::error::Error as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fdn_service::{ServiceError, http_client};
use reqwest::Response;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// What gateways tell their health over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheme {
    /// HTTP, as their admin listeners speak it.
    #[default]
    Http,
    /// HTTP inside TLS. A certificate names the address that is asked: gateways have no names here.
    Https,
}

/// Asks gateways for their health.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    scheme: Scheme,
}

impl Client {
    /// A client that waits no longer than `idle` for anything. It believes the authorities in `ca_file`, or without one those of the web.
    ///
    /// # Errors
    /// When the file holds no certificates that can be used.
    pub fn new(idle: Duration, scheme: Scheme, ca_file: Option<&Path>) -> Result<Self, Error> {
        let mut builder = http_client::builder()?.read_timeout(idle);
        if let Some(file) = ca_file {
            builder = builder.tls_backend_preconfigured(trusting(file)?);
        }
        let http = builder.build().map_err(ServiceError::HttpClient)?;
        Ok(Self { http, scheme })
    }

    /// What the gateway with this health address answers.
    pub(super) async fn ask(&self, address: SocketAddr) -> reqwest::Result<Response> {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        let url = format!("{scheme}://{address}/healthz");
        self.http.get(url).send().await
    }
}

/// TLS that believes the authorities whose certificates are in a file, and no others.
fn trusting(file: &Path) -> Result<ClientConfig, Error> {
    let failed = |reason: &dyn std::fmt::Display| Error::Setting {
        key: "health.ca_file",
        reason: format!(
            "names {}, which must hold certificates of authorities in PEM form: {reason}",
            file.display()
        ),
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|cause| failed(&cause))? {
        let certificate = certificate.map_err(|cause| failed(&cause))?;
        roots.add(certificate).map_err(|cause| failed(&cause))?;
    }
    if roots.is_empty() {
        return Err(failed(&"there is none in it"));
    }
    let tls = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|cause| failed(&cause))?;
    Ok(tls.with_root_certificates(roots).with_no_client_auth())
}

/// Why a request failed, with what that came of: the outermost error says no more than that it did.
pub(super) fn reason(cause: reqwest::Error) -> String {
    let cause = cause.without_url();
    let mut text = cause.to_string();
    let mut next = cause.source();
    while let Some(inner) = next {
        text = format!("{text}: {inner}");
        next = inner.source();
    }
    text
}
