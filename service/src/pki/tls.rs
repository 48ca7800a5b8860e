//! TLS between machines at the edge and controllers: version 1.3, HTTP/2, both sides show a certificate of the network's authority.
//!
//! Machines and controllers are reached by addresses that change, also through forwarders; what counts is the URI name in the certificate
//! (RFC 5280, section 4.2.1.6). So a machine checks that a [`ControllerIdentity`] answers, whatever the address, and a controller that a
//! [`Machine`] calls whose serial number was not revoked: a node's certificate makes nobody a controller.

use std::sync::Arc;

use fdn_core::enrol::{ControllerIdentity, Machine};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore,
    ServerConfig, SignatureScheme,
};

use super::{Facts, failed};
use crate::error::ServiceError;
use crate::secret::Secret;

/// HTTP/2.
const ALPN: &[u8] = b"h2";

/// Says whether a serial number was revoked.
pub type Revoked = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// A certificate with its key, and whom its bearer trusts; all PEM.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The certificates of authorities, one after another.
    pub authorities: String,
    /// The bearer's own certificate.
    pub certificate: String,
    /// Its key.
    pub key: Secret,
}

impl Credentials {
    fn roots(&self) -> Result<Arc<RootCertStore>, ServiceError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.authorities)? {
            roots.add(certificate).map_err(failed)?;
        }
        Ok(Arc::new(roots))
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, ServiceError> {
        PrivateKeyDer::from_pem_slice(self.key.expose().as_bytes())
            .map_err(|_| failed("the key is no key (PEM)"))
    }

    /// For a machine that calls controllers.
    ///
    /// # Errors
    /// When a certificate or the key cannot be used.
    pub fn client(&self) -> Result<ClientConfig, ServiceError> {
        let provider = Arc::new(ring::default_provider());
        let verifier = Arc::new(OnlyControllers {
            roots: self.roots()?,
            provider: Arc::clone(&provider),
        });
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(failed)?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_auth_cert(certificates(&self.certificate)?, self.key()?)
            .map_err(failed)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
    }

    /// For a controller that machines call.
    ///
    /// # Errors
    /// As [`Self::client`].
    pub fn server(&self, revoked: Revoked) -> Result<ServerConfig, ServiceError> {
        let provider = Arc::new(ring::default_provider());
        let inner =
            WebPkiClientVerifier::builder_with_provider(self.roots()?, Arc::clone(&provider))
                .build()
                .map_err(failed)?;
        let verifier = Arc::new(OnlyMachines { inner, revoked });
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(failed)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(certificates(&self.certificate)?, self.key()?)
            .map_err(failed)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        // A resumed session would not show its certificate to the list of revoked ones again.
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

fn certificates(text: &str) -> Result<Vec<CertificateDer<'static>>, ServiceError> {
    let read = CertificateDer::pem_slice_iter(text.as_bytes());
    let read = read.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    if read.is_empty() {
        return Err(failed("there is no certificate in the text"));
    }
    Ok(read)
}

/// Lets nobody answer but controllers of the network.
#[derive(Debug)]
struct OnlyControllers {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for OnlyControllers {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            now,
            self.provider.signature_verification_algorithms.all,
        )?;
        Facts::<ControllerIdentity>::of_der(end_entity)
            .map(|_| ServerCertVerified::assertion())
            .map_err(|_| CertificateError::ApplicationVerificationFailure.into())
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

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        None
    }
}

/// Lets nobody call but machines of the network that were not removed.
struct OnlyMachines {
    inner: Arc<dyn ClientCertVerifier>,
    revoked: Revoked,
}

impl std::fmt::Debug for OnlyMachines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnlyMachines(…)")
    }
}

impl ClientCertVerifier for OnlyMachines {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self
            .inner
            .verify_client_cert(end_entity, intermediates, now)?;
        match Facts::<Machine>::of_der(end_entity) {
            Ok(facts) if (self.revoked)(&facts.serial) => Err(CertificateError::Revoked.into()),
            Ok(_) => Ok(verified),
            Err(_) => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use fdn_core::Timestamp;
    use rustls::{ClientConnection, ServerConnection};

    use super::*;
    use crate::pki::{Authority, Bearer, NodeKey, Subject};

    fn credentials(authority: &Authority, bearer: Bearer) -> (Credentials, String) {
        let now = crate::now();
        let key = NodeKey::fresh().expect("a key");
        let subject = Subject {
            bearer,
            addresses: Vec::new(),
            names: Vec::new(),
        };
        let end = Timestamp(now.get() + 86_400_000);
        let issued = authority
            .issue(&subject, &key.public(), now, end)
            .expect("issued");
        let credentials = Credentials {
            authorities: authority.certificate().to_owned(),
            certificate: issued.certificate,
            key: key.to_pem(),
        };
        (credentials, issued.serial)
    }

    fn machine(text: &str) -> Bearer {
        Bearer::Machine(text.parse().expect("a machine"))
    }

    fn controller() -> Bearer {
        Bearer::Controller("fdn://controller/c".parse().expect("a controller"))
    }

    /// Whether both get to know each other, by what octets are carried between them.
    fn meets(client: ClientConfig, server: ServerConfig) -> Result<(), rustls::Error> {
        let name = ServerName::try_from("192.0.2.1").expect("a name");
        let mut client = ClientConnection::new(Arc::new(client), name)?;
        let mut server = ServerConnection::new(Arc::new(server))?;
        for _ in 0..8 {
            let mut wire = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut wire).expect("to memory");
            }
            let mut wire = wire.as_slice();
            while !wire.is_empty() {
                server.read_tls(&mut wire).expect("from memory");
            }
            server.process_new_packets()?;
            let mut wire = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut wire).expect("to memory");
            }
            let mut wire = wire.as_slice();
            while !wire.is_empty() {
                client.read_tls(&mut wire).expect("from memory");
            }
            client.process_new_packets()?;
        }
        client.writer().write_all(b"hello").expect("sent");
        let mut wire = Vec::new();
        client.write_tls(&mut wire).expect("to memory");
        server.read_tls(&mut wire.as_slice()).expect("from memory");
        server.process_new_packets()?;
        let mut heard = [0; 5];
        server.reader().read_exact(&mut heard).expect("heard");
        Ok(())
    }

    #[test]
    fn machines_meet_controllers_and_nobody_else() {
        let now = crate::now();
        let end = Timestamp(now.get() + 864_000_000);
        let network = Authority::create(now, end).expect("an authority");
        let other = Authority::create(now, end).expect("an authority");
        let open: Revoked = Arc::new(|_| false);
        let (node, serial) = credentials(&network, machine("fdn://cluster/eu/node/a"));
        let (dns, _) = credentials(&network, machine("fdn://cluster/eu/dns/ns"));
        let (thief, _) = credentials(&network, machine("fdn://cluster/eu/node/b"));
        let (centre, _) = credentials(&network, controller());
        let (foreign, _) = credentials(&other, controller());
        let (stranger, _) = credentials(&other, machine("fdn://cluster/eu/node/a"));
        let met = |client: &Credentials, server: &Credentials, revoked: &Revoked| {
            let client = client.client().expect("a client");
            let server = server.server(Arc::clone(revoked)).expect("a server");
            meets(client, server).is_ok()
        };
        assert!(met(&node, &centre, &open) && met(&dns, &centre, &open));
        assert!(!met(&node, &thief, &open), "a node is no controller");
        assert!(!met(&node, &foreign, &open), "another network's");
        assert!(!met(&stranger, &centre, &open));
        assert!(!met(&centre, &centre, &open), "a controller is no machine");
        let revoked: Revoked = Arc::new(move |found| found == serial);
        assert!(!met(&node, &centre, &revoked) && met(&dns, &centre, &revoked));
    }
}
