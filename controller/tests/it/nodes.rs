//! Certificates and statuses of fake nodes that controllers connect to.

use std::net::TcpListener;
use std::sync::Arc;

use fdn_controller::store::authority::authority_list;
use fdn_core::Timestamp;
use fdn_core::message::NodeStatus;
use fdn_service::pki::{Authority, Bearer, NodeKey, Subject};
use fdn_service::secret::Secret;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::rig::{Rig, node_at};

/// The TLS settings of a fake node, with a certificate for `identity`; accepts clients with a certificate of the network.
pub(crate) async fn shown(rig: &Rig, identity: &str) -> ServerConfig {
    let state = rig.controller.state();
    let mut connection = state.store.read().await.expect("a connection");
    let rows = authority_list(&mut connection).await.expect("read");
    let row = rows.first().expect("an authority");
    let sealed = format!("authority/{}", row.id);
    let sealed = state.key.open(&sealed, &row.sealed_key).expect("opened");
    let authority = Authority::load(&row.certificate, &Secret::new(sealed)).expect("a key");
    let subject = Subject {
        bearer: Bearer::Machine(identity.parse().expect("a machine")),
        addresses: Vec::new(),
        names: Vec::new(),
    };
    let (now, key) = (fdn_service::now(), NodeKey::fresh().expect("a key"));
    let end = Timestamp(now.get() + 86_400_000);
    let issued = authority.issue(&subject, &key.public(), now, end);
    let chain = CertificateDer::from_pem_slice(issued.expect("issued").certificate.as_bytes());
    let key = PrivateKeyDer::from_pem_slice(key.to_pem().expose().as_bytes());
    let root = CertificateDer::from_pem_slice(row.certificate.as_bytes());
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots
        .add(root.expect("a certificate"))
        .expect("an authority");
    let clients =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_client_cert_verifier(clients.build().expect("a verifier"))
        .with_single_cert(
            vec![chain.expect("a certificate")],
            key.expect("a key of a server"),
        )
        .expect("a server")
}

/// A listener, and the status of a node of eu-west that controllers reach there.
pub(crate) fn listener(node: &str) -> (TcpListener, NodeStatus) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    (listener, asked_at(node, port))
}

/// The status of a node of eu-west with an agent of an older release, which controllers cannot ask.
pub(crate) fn older() -> NodeStatus {
    NodeStatus {
        controller_port: None,
        ..node_at("older", "eu-west", 53.35, -6.26)
    }
}

/// The status of a node of eu-west that controllers reach at a port of this machine.
pub(crate) fn asked_at(node: &str, port: u16) -> NodeStatus {
    NodeStatus {
        admin: ([127, 0, 0, 1], 1).into(),
        controller_port: Some(port),
        ..node_at(node, "eu-west", 53.35, -6.26)
    }
}
