//! A server's certificate judged by a function of ours instead of by the host's name. The signatures of its handshake are checked as rustls checks them by
//! itself.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};

/// What a server shows, and what it was called by.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// Its own certificate.
    pub own: &'a CertificateDer<'a>,
    /// Those that lead from it to an authority.
    pub intermediates: &'a [CertificateDer<'a>],
    /// The host that was connected to.
    pub name: &'a ServerName<'a>,
    /// What an authority says of it now, in its own words (RFC 6960); mostly nothing.
    pub ocsp: &'a [u8],
    /// Now.
    pub now: UnixTime,
}

impl Shown<'_> {
    /// Whether one of these authorities vouches for the server's certificate now, whatever its name.
    ///
    /// # Errors
    /// When none does, or the certificate is none.
    pub fn signed_by(
        &self,
        roots: &RootCertStore,
        provider: &CryptoProvider,
    ) -> Result<(), rustls::Error> {
        let own = ParsedCertificate::try_from(self.own)?;
        let algorithms = provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(
            &own,
            roots,
            self.intermediates,
            self.now,
            algorithms,
        )
    }
}

/// Says whether the right one answers.
pub type Judge = Box<dyn Fn(&Shown<'_>) -> Result<(), rustls::Error> + Send + Sync>;

/// Lets nobody answer but whom the judge lets.
pub struct Judged {
    provider: Arc<CryptoProvider>,
    judge: Judge,
}

impl Judged {
    /// With this judge.
    #[must_use]
    pub fn new(provider: Arc<CryptoProvider>, judge: Judge) -> Arc<Self> {
        Arc::new(Self { provider, judge })
    }
}

impl fmt::Debug for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judged").finish_non_exhaustive()
    }
}

impl ServerCertVerifier for Judged {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        (self.judge)(&Shown {
            own,
            intermediates,
            name,
            ocsp,
            now,
        })?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
