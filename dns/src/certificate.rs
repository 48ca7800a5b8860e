//! The certificate of the encrypted transports: read at the start, and again whenever its files have changed.
//!
//! Connections that are open keep the one that they began with; new ones get the new one. What cannot be read changes nothing: the certificate
//! that is held goes on, and the log and a metric say so. Files are rarely replaced both at once, so a certificate beside another's
//! key is looked at again the next time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use fdn_core::Coded;
use fdn_service::secret::{self, Secret};
use prometheus::IntCounter;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::error::Error;

/// Where the certificate comes from.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file of the certificate and those that lead to an authority.
    pub certificate: PathBuf,
    /// The file of its key.
    pub key: PathBuf,
    /// Pause between two looks at both.
    pub every: Duration,
}

/// The texts of both files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Texts {
    certificate: String,
    key: Secret,
}

impl Source {
    /// Reads both files.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub fn read(&self) -> Result<Texts, Error> {
        let certificate =
            std::fs::read_to_string(&self.certificate).map_err(|cause| self.failed(cause))?;
        let key = secret::read(&self.key).map_err(|cause| self.failed(cause))?;
        Ok(Texts { certificate, key })
    }

    fn parse(&self, texts: &Texts, provider: &CryptoProvider) -> Result<CertifiedKey, Error> {
        let chain: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(texts.certificate.as_bytes())
                .collect::<Result<_, _>>()
                .map_err(|cause| self.failed(cause))?;
        if chain.is_empty() {
            return Err(self.failed("there is no certificate in it"));
        }
        let key = PrivateKeyDer::from_pem_slice(texts.key.expose().as_bytes())
            .map_err(|cause| self.failed(cause))?;
        CertifiedKey::from_der(chain, key, provider).map_err(|cause| self.failed(cause))
    }

    fn failed(&self, reason: impl std::fmt::Display) -> Error {
        Error::Certificate {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            reason: reason.to_string(),
        }
    }
}

/// The certificate of the moment, for handshakes that begin in it.
#[derive(Debug)]
struct Shown(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// A certificate that is looked after.
pub struct Certificate {
    source: Source,
    texts: Texts,
    shown: Arc<Shown>,
    provider: Arc<CryptoProvider>,
}

impl Certificate {
    /// Reads the certificate.
    ///
    /// # Errors
    /// When a file cannot be read, or both do not belong together.
    pub fn open(source: Source) -> Result<Self, Error> {
        let provider = Arc::new(default_provider());
        let texts = source.read()?;
        let key = source.parse(&texts, &provider)?;
        Ok(Self {
            source,
            texts,
            shown: Arc::new(Shown(ArcSwap::from_pointee(key))),
            provider,
        })
    }

    /// What connections are accepted with that speak `protocol` (RFC 7301). It always shows the certificate of the moment.
    ///
    /// # Errors
    /// When the operating system gives no randomness.
    pub fn config(&self, protocol: &[u8]) -> Result<Arc<ServerConfig>, Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(|cause| self.source.failed(cause))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&self.shown) as _);
        config.alpn_protocols = vec![protocol.to_vec()];
        config.ticketer = Ticketer::new().map_err(|cause| self.source.failed(cause))?;
        Ok(Arc::new(config))
    }

    /// Looks at the files until `shutdown`; `unread` counts the looks that fail.
    pub async fn run(mut self, unread: IntCounter, shutdown: CancellationToken) {
        let mut ticks = interval(self.source.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Whether the last look failed, so that it is said once.
        let mut failed = false;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = shutdown.cancelled() => return,
            }
            let (source, known) = (self.source.clone(), self.texts.clone());
            let provider = Arc::clone(&self.provider);
            let looked = spawn_blocking(move || {
                let texts = source.read()?;
                if texts == known {
                    return Ok(None);
                }
                let key = source.parse(&texts, &provider)?;
                Ok::<_, Error>(Some((texts, key)))
            });
            match looked.await {
                Ok(Ok(fresh)) => {
                    failed = false;
                    if let Some((texts, key)) = fresh {
                        self.texts = texts;
                        self.shown.0.store(Arc::new(key));
                        info!(certificate = %self.source.certificate.display(), "a new certificate is shown");
                    }
                }
                Ok(Err(cause)) => {
                    unread.inc();
                    if !std::mem::replace(&mut failed, true) {
                        error!(code = %cause.code(), %cause, "the certificate cannot be read; going on with the one held");
                    }
                }
                // The runtime ends.
                Err(_) => return,
            }
        }
    }
}
