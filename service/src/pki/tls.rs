//! TLS between machines at the edge and controllers: version 1.3, HTTP/2, both sides present a certificate of the network's authority.
//!
//! Machines and controllers have changing addresses, also through forwarders; the identity is the URI name in the certificate
//! (RFC 5280, section 4.2.1.6). So a machine checks that a [`ControllerIdentity`] answers, whatever the address, and a controller that the client
//! is a
//! [`Machine`] whose serial number was not revoked: a node's certificate is not accepted as a controller's. A controller that calls a node checks
//! that
//! exactly this node answers: the host name identifies the node, and contains its address ([`host`]).

use std::net::IpAddr;
use std::sync::Arc;

use fdn_core::enrol::{ControllerIdentity, Machine, NodeIdentity};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore,
    ServerConfig, SignatureScheme,
};

use super::verifier::{CustomVerifier, PresentedChain};
use super::{Facts, failed};
use crate::error::ServiceError;
use crate::secret::Secret;

/// The ALPN protocol id of HTTP/2.
const ALPN: &[u8] = b"h2";

/// Returns whether a serial number was revoked.
pub type RevocationCheck = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Returns whether a machine with a valid certificate was removed.
pub type RemovalCheck = Arc<dyn Fn(&Facts<Machine>) -> bool + Send + Sync>;

/// A certificate with its key, and the authorities that its owner trusts; all PEM.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The certificates of the trusted authorities, concatenated.
    pub authorities: String,
    /// The owner's own certificate.
    pub certificate: String,
    /// The private key.
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

    /// The TLS settings of a machine that connects to controllers.
    ///
    /// # Errors
    /// When a certificate or the key cannot be used.
    pub fn client(&self) -> Result<ClientConfig, ServiceError> {
        self.client_of(Box::new(|certificate, _| {
            Facts::<ControllerIdentity>::of_der(certificate)
                .map(drop)
                .map_err(|_| CertificateError::ApplicationVerificationFailure)
        }))
    }

    /// The TLS settings of a controller that connects to nodes, at names returned by [`host`].
    ///
    /// # Errors
    /// As for [`Self::client`].
    pub fn client_of_nodes(&self, revoked: RevocationCheck) -> Result<ClientConfig, ServiceError> {
        let mut config = self.client_of(Box::new(move |certificate, name| {
            let wrong = CertificateError::ApplicationVerificationFailure;
            let facts = Facts::<NodeIdentity>::of_der(certificate).map_err(|_| wrong.clone())?;
            match name {
                _ if revoked(&facts.serial) => Err(CertificateError::Revoked),
                ServerName::DnsName(name)
                    if parse_host(name.as_ref())
                        .is_some_and(|(node, _)| node == facts.identity) =>
                {
                    Ok(())
                }
                _ => Err(wrong),
            }
        }))?;
        // The name must not be visible on the network. A resumed session would not present its certificate again.
        config.enable_sni = false;
        config.resumption = rustls::client::Resumption::disabled();
        Ok(config)
    }

    fn client_of(&self, verify: VerifyPeer) -> Result<ClientConfig, ServiceError> {
        let provider = Arc::new(ring::default_provider());
        let (roots, known) = (self.roots()?, Arc::clone(&provider));
        let verify = move |chain: &PresentedChain<'_>| {
            chain.signed_by(&roots, &known)?;
            Ok(verify(chain.own, chain.name)?)
        };
        let verifier = CustomVerifier::new(Arc::clone(&provider), Box::new(verify));
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

    /// The TLS settings of a controller that machines connect to. `removed` is called at every handshake, before the machine has proved possession
    /// of its
    /// key.
    ///
    /// # Errors
    /// As for [`Self::client`].
    pub fn server(&self, removed: RemovalCheck) -> Result<ServerConfig, ServiceError> {
        let provider = Arc::new(ring::default_provider());
        let inner =
            WebPkiClientVerifier::builder_with_provider(self.roots()?, Arc::clone(&provider))
                .build()
                .map_err(failed)?;
        let verifier = Arc::new(OnlyMachines { inner, removed });
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(failed)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(certificates(&self.certificate)?, self.key()?)
            .map_err(failed)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        // With a resumed session, the certificate would not be checked against the revoked ones again.
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

/// The suffix of the names returned by [`host`]. They are never looked up in DNS: they contain the address.
const ZONE: &str = ".node.fdn";

/// The host name for connections to this node at this address, with a client from [`Credentials::client_of_nodes`].
#[must_use]
pub fn host(node: &NodeIdentity, address: IpAddr) -> String {
    let bytes = match address {
        IpAddr::V4(address) => hex::encode(address.octets()),
        IpAddr::V6(address) => hex::encode(address.octets()),
    };
    format!("{}.{}.{bytes}{ZONE}", node.node, node.cluster)
}

/// The node and the address in such a name.
#[must_use]
pub fn parse_host(host: &str) -> Option<(NodeIdentity, IpAddr)> {
    let mut parts = host.strip_suffix(ZONE)?.split('.');
    let (node, cluster, bytes) = (parts.next()?, parts.next()?, parts.next()?);
    let bytes = hex::decode(bytes).ok()?;
    let address = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(bytes) => IpAddr::from(bytes),
        Err(_) => IpAddr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?),
    };
    let node = NodeIdentity {
        cluster: cluster.parse().ok()?,
        node: node.parse().ok()?,
    };
    parts.next().is_none().then_some((node, address))
}

/// Decides whether the right peer answers, by its certificate and the name that was connected to.
type VerifyPeer =
    Box<dyn Fn(&CertificateDer<'_>, &ServerName<'_>) -> Result<(), CertificateError> + Send + Sync>;

/// A verifier that accepts only machines of the network that were not removed.
struct OnlyMachines {
    inner: Arc<dyn ClientCertVerifier>,
    removed: RemovalCheck,
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
            Ok(facts) if (self.removed)(&facts) => Err(CertificateError::Revoked.into()),
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

    /// The authorities of two networks.
    fn networks() -> [Authority; 2] {
        let now = crate::now();
        let end = Timestamp(now.get() + 864_000_000);
        std::array::from_fn(|_| Authority::create(now, end).expect("an authority"))
    }

    fn machine(text: &str) -> Bearer {
        Bearer::Machine(text.parse().expect("a machine"))
    }

    fn controller() -> Bearer {
        Bearer::Controller("fdn://controller/c".parse().expect("a controller"))
    }

    /// Whether a handshake between the two succeeds, with all bytes passed between them.
    fn meets(client: ClientConfig, server: ServerConfig) -> Result<(), rustls::Error> {
        meets_at("192.0.2.1", client, server)
    }

    fn meets_at(
        name: &str,
        client: ClientConfig,
        server: ServerConfig,
    ) -> Result<(), rustls::Error> {
        let name = ServerName::try_from(name.to_owned()).expect("a name");
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
        let [network, other] = networks();
        let open: RevocationCheck = Arc::new(|_| false);
        let (node, serial) = credentials(&network, machine("fdn://cluster/eu/node/a"));
        let (dns, _) = credentials(&network, machine("fdn://cluster/eu/dns/ns"));
        let (thief, _) = credentials(&network, machine("fdn://cluster/eu/node/b"));
        let (centre, _) = credentials(&network, controller());
        let (foreign, _) = credentials(&other, controller());
        let (stranger, _) = credentials(&other, machine("fdn://cluster/eu/node/a"));
        let met = |client: &Credentials, server: &Credentials, revoked: &RevocationCheck| {
            let client = client.client().expect("a client");
            let revoked = Arc::clone(revoked);
            let removed: RemovalCheck = Arc::new(move |facts| revoked(&facts.serial));
            let server = server.server(removed).expect("a server");
            meets(client, server).is_ok()
        };
        assert!(met(&node, &centre, &open) && met(&dns, &centre, &open));
        assert!(!met(&node, &thief, &open), "a node is no controller");
        assert!(!met(&node, &foreign, &open), "another network's");
        assert!(!met(&stranger, &centre, &open));
        assert!(!met(&centre, &centre, &open), "a controller is no machine");
        let revoked: RevocationCheck = Arc::new(move |found| found == serial);
        assert!(!met(&node, &centre, &revoked) && met(&dns, &centre, &revoked));
    }

    #[test]
    fn controllers_ask_the_node_that_they_mean_and_nobody_else() {
        let [network, other] = networks();
        let open: RevocationCheck = Arc::new(|_| false);
        let (node, serial) = credentials(&network, machine("fdn://cluster/eu/node/a"));
        let (dns, _) = credentials(&network, machine("fdn://cluster/eu/dns/a"));
        let (stranger, _) = credentials(&other, machine("fdn://cluster/eu/node/a"));
        let (centre, _) = credentials(&network, controller());
        let met = |name: &str, server: &Credentials, revoked: &RevocationCheck| {
            let client = centre
                .client_of_nodes(Arc::clone(revoked))
                .expect("a client");
            // Whether the node accepts the controller is not tested here.
            let key = server.key().expect("a key");
            let chain = certificates(&server.certificate).expect("a certificate");
            let server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_protocol_versions(&[&rustls::version::TLS13])
                .expect("TLS 1.3")
                .with_no_client_auth()
                .with_single_cert(chain, key)
                .expect("a server");
            meets_at(name, client, server).is_ok()
        };
        let at = |node: &str, address: &str| {
            let node = node.parse().expect("a node");
            host(&node, address.parse().expect("an address"))
        };
        let right = at("fdn://cluster/eu/node/a", "192.0.2.7");
        assert_eq!(right, "a.eu.c0000207.node.fdn");
        assert!(met(&right, &node, &open));
        assert!(met(
            &at("fdn://cluster/eu/node/a", "2001:db8::1"),
            &node,
            &open
        ));
        for wrong in [
            at("fdn://cluster/eu/node/b", "192.0.2.7"),
            at("fdn://cluster/us/node/a", "192.0.2.7"),
            "192.0.2.7".to_owned(),
            "a.example.org".to_owned(),
        ] {
            assert!(!met(&wrong, &node, &open), "{wrong}");
        }
        for wrong in [&dns, &stranger, &centre] {
            assert!(!met(&right, wrong, &open));
        }
        let revoked: RevocationCheck = Arc::new(move |found| found == serial);
        assert!(!met(&right, &node, &revoked));
    }

    #[test]
    fn a_hosts_name_holds_node_and_address() {
        let node: NodeIdentity = "fdn://cluster/eu-west/node/n-1".parse().expect("a node");
        for address in ["192.0.2.7", "2001:db8::1", "::1"] {
            let address: IpAddr = address.parse().expect("an address");
            let host = host(&node, address);
            assert_eq!(parse_host(&host), Some((node.clone(), address)), "{host}");
        }
        for bad in [
            "",
            ".node.fdn",
            "a.eu.node.fdn",
            "a.eu.c00002.node.fdn",
            "a.eu.x.node.fdn",
            "b.a.eu.c0000207.node.fdn",
            "a.eu.c0000207.fdn",
            "_.eu.c0000207.node.fdn",
        ] {
            assert_eq!(parse_host(bad), None, "{bad}");
        }
    }
}
