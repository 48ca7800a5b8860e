//! The certificates of a listener: read at startup, and again whenever their files change.
//!
//! With several certificates, a client gets the one for the host that it asks for (RFC 6066, section 3), by exact name before wildcard (RFC
//! 9525, section 6.3), otherwise the first. Open connections keep the certificate that they began with; new ones get the new one. An unreadable
//! file changes
//! nothing: the current certificate stays in use, and the failure is logged and counted. The two files are rarely replaced at the same time, so a
//! certificate that does not match its key is read again at the next check.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use fdn_core::Coded;
use prometheus::IntCounter;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::error::ServiceError;
use crate::secret::{self, Secret};

/// The files of one certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertificateFiles {
    /// The certificate chain, from the certificate to the one signed by an authority (PEM).
    pub certificate_file: PathBuf,
    /// The private key (PEM).
    pub key_file: PathBuf,
}

/// The content of both files.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PemTexts {
    certificate: String,
    key: Secret,
}

/// The files of one certificate, and the section of the settings that names them.
#[derive(Clone, Debug)]
struct Source {
    files: CertificateFiles,
    setting: &'static str,
}

impl Source {
    fn read(&self) -> Result<PemTexts, ServiceError> {
        let certificate = std::fs::read_to_string(&self.files.certificate_file)
            .map_err(|cause| self.failed(cause))?;
        let key = secret::read(&self.files.key_file).map_err(|cause| self.failed(cause))?;
        Ok(PemTexts { certificate, key })
    }

    fn parse(
        &self,
        texts: &PemTexts,
        provider: &CryptoProvider,
    ) -> Result<CertifiedKey, ServiceError> {
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

    fn failed(&self, reason: impl std::fmt::Display) -> ServiceError {
        ServiceError::CertificateFiles {
            certificate: self.files.certificate_file.clone(),
            key: self.files.key_file.clone(),
            setting: self.setting,
            reason: reason.to_string(),
        }
    }
}

/// The host names in a certificate, in lower case, including wildcards.
fn names(certificate: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
        return Vec::new();
    };
    let Ok(Some(names)) = certificate.subject_alternative_name() else {
        return Vec::new();
    };
    let names = names.value.general_names.iter();
    names
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        })
        .collect()
}

/// The current certificates.
#[derive(Debug)]
struct CertificateSet {
    first: Arc<CertifiedKey>,
    by_name: BTreeMap<String, Arc<CertifiedKey>>,
}

impl CertificateSet {
    /// A set of at least one certificate; `None` if there is none. If a name is in several certificates, the first one wins.
    fn new(keys: &[Arc<CertifiedKey>]) -> Option<Self> {
        let mut by_name = BTreeMap::new();
        for key in keys {
            for name in key.cert.first().map(|leaf| names(leaf)).unwrap_or_default() {
                by_name.entry(name).or_insert_with(|| Arc::clone(key));
            }
        }
        Some(Self {
            first: Arc::clone(keys.first()?),
            by_name,
        })
    }

    fn of(&self, name: Option<&str>) -> Arc<CertifiedKey> {
        let found = name.and_then(|name| {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            let wildcard = || {
                let (_, rest) = name.split_once('.')?;
                self.by_name.get(&format!("*.{rest}"))
            };
            self.by_name.get(&name).or_else(wildcard)
        });
        Arc::clone(found.unwrap_or(&self.first))
    }
}

/// The current certificates, for new handshakes.
#[derive(Debug)]
struct CertificateResolver(ArcSwap<CertificateSet>);

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load().of(hello.server_name()))
    }
}

/// A certificate that is kept up to date.
#[derive(Clone)]
struct LoadedCertificate {
    source: Source,
    texts: PemTexts,
    key: Arc<CertifiedKey>,
}

/// Certificates that are kept up to date with their files.
pub struct Certificates {
    loaded: Vec<LoadedCertificate>,
    every: Duration,
    resolver: Arc<CertificateResolver>,
    provider: Arc<CryptoProvider>,
}

impl Certificates {
    /// Reads the certificates, of which there must be at least one; `setting` is the section of the settings that names them.
    /// [`Certificates::run`] checks their files every `every`.
    ///
    /// # Errors
    /// When a file cannot be read, or a certificate and its key do not match.
    pub fn open(
        files: Vec<CertificateFiles>,
        setting: &'static str,
        every: Duration,
    ) -> Result<Self, ServiceError> {
        let provider = Arc::new(default_provider());
        let mut loaded = Vec::with_capacity(files.len());
        for files in files {
            let source = Source { files, setting };
            let texts = source.read()?;
            let key = Arc::new(source.parse(&texts, &provider)?);
            loaded.push(LoadedCertificate { source, texts, key });
        }
        let set = set_of(&loaded).ok_or_else(|| {
            ServiceError::Config(format!(
                "a listener with TLS needs a certificate in {setting}"
            ))
        })?;
        Ok(Self {
            loaded,
            every,
            resolver: Arc::new(CertificateResolver(ArcSwap::from_pointee(set))),
            provider,
        })
    }

    /// The TLS settings of a server that speaks one of `protocols` (RFC 7301). It always uses the current certificates, and resumes sessions
    /// by tickets (RFC 8446, section 4.6.1).
    ///
    /// # Errors
    /// When the operating system provides no random numbers.
    pub fn config(&self, protocols: &[&[u8]]) -> Result<ServerConfig, ServiceError> {
        let failed = |cause: rustls::Error| ServiceError::Certificate(cause.to_string());
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&self.resolver) as _);
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        config.ticketer = Ticketer::new().map_err(failed)?;
        Ok(config)
    }

    /// Checks the files until `shutdown`; `unread` counts failed checks.
    pub async fn run(mut self, unread: IntCounter, shutdown: CancellationToken) {
        let mut ticks = interval(self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Whether the last check failed, so that a failure is logged once.
        let mut failed = false;
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = shutdown.cancelled() => return,
            }
            let (mut loaded, provider) = (self.loaded.clone(), Arc::clone(&self.provider));
            let reloaded = spawn_blocking(move || {
                let results = loaded.iter_mut().map(|one| reload(one, &provider));
                let results: Vec<_> = results.collect();
                (loaded, results)
            });
            // The runtime is shutting down.
            let Ok((loaded, results)) = reloaded.await else {
                return;
            };
            self.loaded = loaded;
            if results.iter().any(|one| matches!(one, Ok(true)))
                && let Some(set) = set_of(&self.loaded)
            {
                self.resolver.0.store(Arc::new(set));
                info!("a new certificate is shown");
            }
            let causes: Vec<_> = results
                .iter()
                .filter_map(|one| one.as_ref().err())
                .collect();
            if let Some(cause) = causes.first() {
                unread.inc();
                if !failed {
                    error!(code = %cause.code(), %cause, "a certificate cannot be read; going on with the one held");
                }
            }
            failed = !causes.is_empty();
        }
    }
}

fn set_of(loaded: &[LoadedCertificate]) -> Option<CertificateSet> {
    let keys: Vec<_> = loaded.iter().map(|one| Arc::clone(&one.key)).collect();
    CertificateSet::new(&keys)
}

/// Checks the files of a certificate; returns whether there is a new one.
fn reload(loaded: &mut LoadedCertificate, provider: &CryptoProvider) -> Result<bool, ServiceError> {
    let texts = loaded.source.read()?;
    if texts == loaded.texts {
        return Ok(false);
    }
    loaded.key = Arc::new(loaded.source.parse(&texts, provider)?);
    loaded.texts = texts;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn issue(folder: &Path, file: &str, names: &[&str]) -> CertificateFiles {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().expect("a key");
        let certificate = CertificateParams::new(names)
            .and_then(|params| params.self_signed(&key))
            .expect("a certificate");
        let files = CertificateFiles {
            certificate_file: folder.join(format!("{file}.crt")),
            key_file: folder.join(format!("{file}.key")),
        };
        std::fs::write(&files.certificate_file, certificate.pem()).expect("written");
        drop(std::fs::remove_file(&files.key_file));
        secret::write_new(&files.key_file, &Secret::new(key.serialize_pem())).expect("written");
        files
    }

    fn shown(certificates: &Certificates, name: Option<&str>) -> Vec<String> {
        let key = certificates.resolver.0.load().of(name);
        names(&key.cert[0])
    }

    #[test]
    fn a_host_gets_the_certificate_that_names_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = [
            issue(folder.path(), "zone", &["*.fn.test"]),
            issue(folder.path(), "own", &["Own.fn.test", "www.example.org"]),
        ];
        let certificates =
            Certificates::open(files.to_vec(), "tls", Duration::from_secs(1)).expect("opened");
        let first = |name| shown(&certificates, name).remove(0);
        assert_eq!(first(None), "*.fn.test");
        assert_eq!(first(Some("a.fn.test")), "*.fn.test");
        assert_eq!(first(Some("own.FN.test.")), "own.fn.test");
        assert_eq!(first(Some("www.example.org")), "own.fn.test");
        assert_eq!(
            first(Some("a.b.fn.test")),
            "*.fn.test",
            "the first, as of none"
        );
        assert_eq!(first(Some("unknown.test")), "*.fn.test");
    }

    #[test]
    fn no_certificate_and_one_with_another_key_are_refused() {
        let none = Certificates::open(Vec::new(), "tls", Duration::from_secs(1));
        assert!(matches!(none, Err(ServiceError::Config(_))));
        let folder = tempfile::tempdir().expect("a folder");
        let (one, other) = (
            issue(folder.path(), "one", &["one.test"]),
            issue(folder.path(), "other", &["other.test"]),
        );
        let mixed = CertificateFiles {
            certificate_file: one.certificate_file,
            key_file: other.key_file,
        };
        let refused = Certificates::open(vec![mixed], "tls", Duration::from_secs(1));
        let text = refused.err().expect("refused").to_string();
        assert!(
            text.contains("one.crt") && text.contains("other.key"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn a_changed_certificate_is_shown_and_a_broken_one_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = issue(folder.path(), "one", &["one.test"]);
        let certificates = Certificates::open(vec![files.clone()], "tls", Duration::from_millis(1))
            .expect("opened");
        let now = Arc::clone(&certificates.resolver);
        let unread = IntCounter::new("unread", "unread").expect("a counter");
        let stop = CancellationToken::new();
        let running = tokio::spawn(certificates.run(unread.clone(), stop.clone()));
        std::fs::write(&files.certificate_file, "broken").expect("written");
        while unread.get() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(names(&now.0.load().of(None).cert[0]), ["one.test"]);
        issue(folder.path(), "one", &["two.test"]);
        while names(&now.0.load().of(None).cert[0]) != ["two.test"] {
            tokio::task::yield_now().await;
        }
        stop.cancel();
        running.await.expect("ended");
    }
}
