//! Verifies a server's certificate with a custom function instead of by host name. The handshake signatures are verified as rustls does by
//! default.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};

/// What a server presented, and the name that it was addressed by.
#[derive(Clone, Copy, Debug)]
pub struct PresentedChain<'a> {
    /// Its own certificate.
    pub own: &'a CertificateDer<'a>,
    /// The intermediate certificates of its chain.
    pub intermediates: &'a [CertificateDer<'a>],
    /// The host that the client connected to.
    pub name: &'a ServerName<'a>,
    /// The stapled OCSP response (RFC 6960); usually empty.
    pub ocsp: &'a [u8],
    /// The current time.
    pub now: UnixTime,
}

impl PresentedChain<'_> {
    /// Verifies that one of these authorities signed the server's certificate and that it is valid now, whatever its name.
    ///
    /// # Errors
    /// When none of them did, or the certificate cannot be parsed.
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

/// Decides whether the right server answers.
pub type VerifyChain = Box<dyn Fn(&PresentedChain<'_>) -> Result<(), rustls::Error> + Send + Sync>;

/// A certificate verifier that accepts exactly the servers that the function accepts.
pub struct CustomVerifier {
    provider: Arc<CryptoProvider>,
    verify: VerifyChain,
}

impl CustomVerifier {
    /// Creates a verifier with this function.
    #[must_use]
    pub fn new(provider: Arc<CryptoProvider>, verify: VerifyChain) -> Arc<Self> {
        Arc::new(Self { provider, verify })
    }
}

impl fmt::Debug for CustomVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomVerifier").finish_non_exhaustive()
    }
}

impl ServerCertVerifier for CustomVerifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        (self.verify)(&PresentedChain {
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
