//! Certificates: both sides show one of the cluster's authority, which names cluster and node.
//!
//! Nodes are reached by addresses that change; what counts is the name in the certificate's subject alternative names, a URI
//! (RFC 5280, section 4.2.1.6), as in SPIFFE. So the usual check of a host name is replaced by one of that name, on both sides. Files are read again when they have
//! changed, so that a renewed certificate counts from the next connection on.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use fdn_service::pki::judged::{Judged, Shown};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::error::ClusterError;
use crate::settings::TlsSettings;
use fdn_core::enrol::NodeIdentity;

/// HTTP/2.
const ALPN: &[u8] = b"h2";

/// Both sides' settings, as read from files.
#[derive(Clone)]
pub struct Tls {
    /// For connecting. Whose certificate the other side shows is to be checked by [`identity`] after the handshake.
    pub client: Arc<ClientConfig>,
    /// For being connected to. The same goes for this side.
    pub server: Arc<ServerConfig>,
}

/// The files.
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

    /// What counts now. Files that cannot be read leave what was read before.
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

/// When the latest of the files was changed.
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
    // Whose it is, is checked after the handshake.
    let known = Arc::clone(&provider);
    let judge = move |shown: &Shown<'_>| shown.signed_by(&roots, &known);
    let verifier = Judged::new(Arc::clone(&provider), Box::new(judge));
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

/// Who showed these certificates: the one identity in the first.
#[must_use]
pub fn identity(chain: Option<&[CertificateDer<'_>]>) -> Option<NodeIdentity> {
    let certificate = webpki::EndEntityCert::try_from(chain?.first()?).ok()?;
    let mut identities = certificate
        .valid_uri_names()
        .filter_map(|uri| uri.parse().ok());
    let first = identities.next()?;
    identities.next().is_none().then_some(first)
}
