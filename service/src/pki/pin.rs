//! Trusts a server by the SHA-256 digest of its authority's certificate, of which nothing else is known. The server presents that certificate as
//! the
//! last of its chain; its own certificate is validated against it as against any authority, including the server's name. So 64 digits are enough to
//! say
//! whom to trust, and an attacker in between would have to present another chain, which is rejected.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fdn_core::Digest;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{CertificateError, ClientConfig, RootCertStore};

use super::failed;
use super::verifier::{CustomVerifier, PresentedChain};
use crate::error::ServiceError;

/// The digest of the single certificate (PEM) in a file.
///
/// # Errors
/// When it cannot be read, or does not hold exactly one.
pub fn of_file(file: &Path) -> Result<Digest, ServiceError> {
    let unusable = |reason: String| ServiceError::Authorities {
        path: file.to_owned(),
        reason,
    };
    let read = CertificateDer::pem_file_iter(file).map_err(|e| unusable(e.to_string()))?;
    let read = read.collect::<Result<Vec<_>, _>>();
    match read.map_err(|e| unusable(e.to_string()))?.as_slice() {
        [one] => Ok(Digest::of(one)),
        several => Err(unusable(format!(
            "it must hold one certificate, the authority's, and holds {}",
            several.len()
        ))),
    }
}

/// The authority that a server must be signed by.
#[derive(Debug)]
pub struct AuthorityPin {
    digest: Digest,
    provider: Arc<CryptoProvider>,
    /// Its certificate (PEM), once a server was accepted.
    accepted: OnceLock<String>,
    /// Whether a server presented a chain without it.
    mismatch: AtomicBool,
}

impl AuthorityPin {
    /// Pins the authority whose certificate (DER) has this SHA-256 digest.
    #[must_use]
    pub fn new(digest: Digest) -> Arc<Self> {
        Arc::new(Self {
            digest,
            provider: Arc::new(ring::default_provider()),
            accepted: OnceLock::new(),
            mismatch: AtomicBool::new(false),
        })
    }

    /// The TLS settings of a client that trusts only this authority.
    ///
    /// # Errors
    /// When the TLS settings are refused.
    pub fn client(self: &Arc<Self>) -> Result<ClientConfig, ServiceError> {
        let config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(failed)?;
        let (pin, provider) = (Arc::clone(self), Arc::clone(&self.provider));
        let verifier = CustomVerifier::new(provider, Box::new(move |chain| pin.verify(chain)));
        Ok(config
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth())
    }

    /// Accepts a server whose chain contains the authority's certificate and is valid with that as the only trusted root.
    fn verify(&self, chain: &PresentedChain<'_>) -> Result<(), rustls::Error> {
        let mut all = chain.intermediates.iter().chain([chain.own]);
        let Some(authority) = all.find(|one| Digest::of(one) == self.digest) else {
            self.mismatch.store(true, Ordering::Relaxed);
            return Err(CertificateError::UnknownIssuer.into());
        };
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let (roots, provider) = (Arc::new(roots), Arc::clone(&self.provider));
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider)
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        verifier.verify_server_cert(
            chain.own,
            chain.intermediates,
            chain.name,
            chain.ocsp,
            chain.now,
        )?;
        self.accepted.get_or_init(|| pem(authority));
        Ok(())
    }

    /// The authority's certificate (PEM), once a server was accepted because of it.
    #[must_use]
    pub fn authority_pem(&self) -> Option<&str> {
        self.accepted.get().map(String::as_str)
    }

    /// Whether a server presented a chain that does not contain the authority's certificate.
    #[must_use]
    pub fn mismatched(&self) -> bool {
        self.mismatch.load(Ordering::Relaxed)
    }
}

/// A certificate in PEM form (RFC 7468: 64 characters per line).
fn pem(certificate: &[u8]) -> String {
    let text = STANDARD.encode(certificate);
    let mut lines = vec!["-----BEGIN CERTIFICATE-----"];
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        lines.push(line);
        rest = after;
    }
    lines.push("-----END CERTIFICATE-----\n");
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use fdn_core::Timestamp;

    use super::*;
    use crate::pki::Authority;

    #[test]
    fn the_digest_is_of_the_one_certificate_in_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("ca.pem");
        let end = Timestamp(crate::now().get() + 86_400_000);
        let authority = Authority::create(crate::now(), end).expect("an authority");
        let text = authority.certificate();
        std::fs::write(&file, text).expect("written");
        let der = CertificateDer::from_pem_slice(text.as_bytes()).expect("a certificate");
        assert_eq!(of_file(&file).expect("one"), Digest::of(&der));
        let again = pem(&der);
        let read = CertificateDer::from_pem_slice(again.as_bytes()).expect("a certificate");
        assert_eq!(read, der);
        for bad in [text.repeat(2), String::new(), "nothing".to_owned()] {
            std::fs::write(&file, bad).expect("written");
            let refused = of_file(&file).expect_err("not one").to_string();
            assert!(refused.contains("ca.pem"), "{refused}");
        }
    }
}
