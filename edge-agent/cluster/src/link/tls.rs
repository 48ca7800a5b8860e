//! TLS between nodes: both sides show a certificate of the cluster's authority that names cluster and node.
//!
//! Nodes are reached at addresses that change; the identity is the name in the certificate's subject alternative names, a URI
//! (RFC 5280, section 4.2.1.6), as in SPIFFE. So that name is checked instead of a host name, on both sides. The files are read again
//! when they have changed, so that a renewed certificate applies from the next connection on.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use fdn_service::pki::verifier::{CustomVerifier, PresentedChain};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::error::ClusterError;
use crate::settings::TlsSettings;
use fdn_core::enrol::NodeIdentity;

/// The protocol id of HTTP/2.
const ALPN: &[u8] = b"h2";

/// The TLS configurations of both sides, as read from files.
#[derive(Clone)]
pub struct Tls {
    /// For outgoing connections. The caller must check the other side's certificate with [`identity`] after the handshake.
    pub client: Arc<ClientConfig>,
    /// For incoming connections. The same applies to them.
    pub server: Arc<ServerConfig>,
}

/// The TLS configuration and its files.
pub struct TlsSource {
    settings: TlsSettings,
    current: Mutex<(Option<SystemTime>, Tls)>,
}

impl TlsSource {
    /// Reads the files.
    ///
    /// # Errors
    /// When one of them cannot be used.
    pub fn open(settings: &TlsSettings) -> Result<Self, ClusterError> {
        let tls = load(settings)?;
        Ok(Self {
            current: Mutex::new((changed(settings), tls)),
            settings: settings.clone(),
        })
    }

    /// The present configuration. If changed files cannot be read, the previous one is kept.
    #[must_use]
    pub fn current(&self) -> Tls {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = changed(&self.settings);
        if changed != current.0 {
            match load(&self.settings) {
                Ok(tls) => *current = (changed, tls),
                Err(error) => tracing::warn!(%error, "the renewed certificate is not used"),
            }
        }
        current.1.clone()
    }
}

/// The latest modification time of the files.
fn changed(settings: &TlsSettings) -> Option<SystemTime> {
    let files = [&settings.ca, &settings.certificate, &settings.key];
    let times = files.map(|file| {
        std::fs::metadata(file)
            .and_then(|data| data.modified())
            .ok()
    });
    times.into_iter().flatten().max()
}

fn load(settings: &TlsSettings) -> Result<Tls, ClusterError> {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&settings.ca)? {
        roots
            .add(certificate)
            .map_err(|error| bad(&settings.ca, &error))?;
    }
    let roots = Arc::new(roots);
    let chain = certificates(&settings.certificate)?;
    let key =
        PrivateKeyDer::from_pem_file(&settings.key).map_err(|error| bad(&settings.key, &error))?;
    let of = |error: rustls::Error| bad(&settings.certificate, &error);
    let clients =
        WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()
            .map_err(|error| bad(&settings.ca, &error))?;
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(of)?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain.clone(), key.clone_key())
        .map_err(of)?;
    server.alpn_protocols = vec![ALPN.to_vec()];
    // Which node it belongs to is checked after the handshake.
    let known = Arc::clone(&provider);
    let verify = move |presented: &PresentedChain<'_>| presented.signed_by(&roots, &known);
    let verifier = CustomVerifier::new(Arc::clone(&provider), Box::new(verify));
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(of)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_auth_cert(chain, key)
        .map_err(of)?;
    client.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Tls {
        client: Arc::new(client),
        server: Arc::new(server),
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ClusterError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| bad(path, &error))?;
    if read.is_empty() {
        return Err(bad(path, &"there is no certificate in it"));
    }
    Ok(read)
}

fn bad(path: &Path, reason: &dyn std::fmt::Display) -> ClusterError {
    ClusterError::Certificate {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

/// The identity of the holder of these certificates: the only one in the first; `None` if there is none or more than one.
#[must_use]
pub fn identity(chain: Option<&[CertificateDer<'_>]>) -> Option<NodeIdentity> {
    let certificate = webpki::EndEntityCert::try_from(chain?.first()?).ok()?;
    let mut identities = certificate
        .valid_uri_names()
        .filter_map(|uri| uri.parse().ok());
    let first = identities.next()?;
    identities.next().is_none().then_some(first)
}
