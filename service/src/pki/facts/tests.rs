use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, client::WebPkiServerVerifier};

use super::*;
use crate::pki::{Authority, Bearer, NodeKey, PublicKey, Subject};

const NOW: Timestamp = Timestamp(1_800_000_000_000);
const DAY: u64 = 86_400_000;

fn after(days: u64) -> Timestamp {
    Timestamp(NOW.get() + days * DAY)
}

fn subject() -> Subject {
    Subject {
        bearer: Bearer::Machine(
            "fdn://cluster/eu-west/node/eu-west-1"
                .parse()
                .expect("an identity"),
        ),
        addresses: vec![
            "192.0.2.7".parse().expect("address"),
            "192.0.2.7".parse().expect("address"),
            "2001:db8::7".parse().expect("address"),
        ],
        names: vec!["node-7.example.org".parse().expect("name")],
    }
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate")
}

fn roots(authority: &Authority) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots
        .add(der(authority.certificate()))
        .expect("an authority");
    Arc::new(roots)
}

fn at(time: Timestamp) -> UnixTime {
    UnixTime::since_unix_epoch(std::time::Duration::from_millis(time.get()))
}

#[test]
fn a_certificate_says_whose_it_is_and_rustls_takes_it_on_both_ends() {
    let folder = tempfile::tempdir().expect("folder");
    let key = NodeKey::read_or_create(&folder.path().join("node.key")).expect("a key");
    let authority = Authority::create(NOW, after(3650)).expect("an authority");
    let request = key
        .request(&"eu-west-1".parse().expect("node"))
        .expect("a request");
    let public = PublicKey::of_request(&request).expect("its key");
    assert_eq!(public, key.public());
    let issued = authority
        .issue(&subject(), &public, NOW, after(30))
        .expect("issued");
    let facts: Facts = Facts::of_pem(&issued.certificate).expect("facts");
    assert_eq!(
        Bearer::Machine(facts.identity.clone().into()),
        subject().bearer
    );
    assert_eq!(facts.serial, issued.serial);
    assert_eq!((facts.issued_at, facts.expires_at), (NOW, after(30)));

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = WebPkiServerVerifier::builder_with_provider(roots(&authority), provider.clone())
        .build()
        .expect("a verifier");
    let client = WebPkiClientVerifier::builder_with_provider(roots(&authority), provider)
        .build()
        .expect("a verifier");
    let certificate = der(&issued.certificate);
    for name in ["192.0.2.7", "2001:db8::7", "node-7.example.org"] {
        let name = ServerName::try_from(name).expect("a name");
        server
            .verify_server_cert(&certificate, &[], &name, &[], at(after(1)))
            .expect("counts");
        assert!(
            server
                .verify_server_cert(&certificate, &[], &name, &[], at(after(31)))
                .is_err(),
            "it has ended"
        );
    }
    client
        .verify_client_cert(&certificate, &[], at(after(1)))
        .expect("counts");
    let other = Authority::create(NOW, after(3650)).expect("another");
    let stranger = WebPkiClientVerifier::builder_with_provider(
        roots(&other),
        Arc::new(rustls::crypto::ring::default_provider()),
    )
    .build()
    .expect("a verifier");
    assert!(
        stranger
            .verify_client_cert(&certificate, &[], at(after(1)))
            .is_err(),
        "another network's authority does not know it"
    );
}

#[test]
fn an_authority_comes_back_from_what_was_kept() {
    let made = Authority::create(NOW, after(3650)).expect("made");
    let back = Authority::load(made.certificate(), made.key()).expect("loaded");
    let folder = tempfile::tempdir().expect("folder");
    let key = NodeKey::read_or_create(&folder.path().join("key")).expect("a key");
    let issued = back
        .issue(&subject(), &key.public(), NOW, after(1))
        .expect("issued");
    let verifier = WebPkiClientVerifier::builder_with_provider(
        roots(&made),
        Arc::new(rustls::crypto::ring::default_provider()),
    )
    .build()
    .expect("a verifier");
    verifier
        .verify_client_cert(&der(&issued.certificate), &[], at(NOW))
        .expect("signed by the same authority");
    assert!(
        <Facts>::of_pem(made.certificate()).is_err(),
        "an authority is no node"
    );
}

#[test]
fn requests_that_prove_nothing_are_refused() {
    let folder = tempfile::tempdir().expect("folder");
    let key = NodeKey::read_or_create(&folder.path().join("key")).expect("a key");
    let good = key.request(&"a".parse().expect("node")).expect("a request");
    let line = good.lines().nth(2).expect("three lines").to_owned();
    let swapped: String = line.chars().rev().collect();
    for bad in [
        String::new(),
        "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n".into(),
        good.replace(&line, &swapped),
    ] {
        assert!(PublicKey::of_request(&bad).is_err(), "{bad}");
    }
    let other = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("another kind");
    let request = rcgen::CertificateParams::default()
        .serialize_request(&other)
        .expect("a request")
        .pem()
        .expect("PEM");
    assert!(PublicKey::of_request(&request).is_err());
}

#[test]
fn a_signature_is_of_one_key_and_one_text() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("node.key");
    let key = NodeKey::read_or_create(&path).expect("made");
    let again = NodeKey::read_or_create(&path).expect("read");
    assert_eq!(key.public(), again.public(), "a key is made once");
    let signature = key.sign("text").expect("signed");
    let public = PublicKey::from_text(&again.public().to_text()).expect("own text");
    assert!(public.verifies("text", &signature));
    assert!(!public.verifies("another", &signature));
    assert!(!public.verifies("text", "AAAA") && !public.verifies("text", "not base64"));
    let stranger = NodeKey::read_or_create(&folder.path().join("other")).expect("made");
    assert!(!stranger.public().verifies("text", &signature));
    std::fs::write(&path, "rubbish").expect("written");
    let error = NodeKey::read(&path).expect_err("no key").to_string();
    assert!(error.contains("join again"), "{error}");
}
