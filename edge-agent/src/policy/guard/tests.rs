//! Which calls a guard admits, and what functions see of them.

use actix_http::test::TestRequest;
use fdn_core::policy::{ApiKey, key};
use fdn_core::{Digest, KeyId};

use super::*;
use crate::gateway::head::{Ids, to_guest};
use crate::metrics::Metrics;

fn guard(policy: &str) -> (Guard, String) {
    let metrics = Metrics::new(&"n-1".parse().expect("node")).expect("metrics");
    let app: AppName = "hello".parse().expect("app");
    let id = KeyId::from_uuid(uuid::Uuid::from_u128(1));
    let text = key::text(id, "secret");
    let spec = GatewaySpec {
        policy: toml::from_str(policy).expect(policy),
        keys: vec![ApiKey {
            id,
            name: "ci".parse().expect("name"),
            hash: Digest::of(text.as_bytes()),
            expires_at: None,
        }],
        ..GatewaySpec::default()
    };
    let state = PolicyState::new(
        &app,
        &spec.policy,
        &PolicySettings::default(),
        &metrics.policy,
        None,
        Arc::default(),
    );
    (Guard::new(app, spec, Arc::new(state)), text)
}

fn peer(trusted: bool) -> Peer {
    Peer::new(Some("192.0.2.7".parse().expect("address")), trusted)
}

/// The function learns the caller's identity only from the gateway, and never sees the key.
#[tokio::test]
async fn the_function_sees_the_identity_and_not_the_key() {
    let (guard, text) = guard("authentication.kind = \"api_key\"");
    for (name, value) in [
        ("x-api-key", text.clone()),
        ("authorization", format!("Bearer {text}")),
    ] {
        let mut request = TestRequest::default();
        request.append_header((name, value));
        request.append_header(("x-fdn-identity", "key:root"));
        let request = request.finish();
        let Decision::Pass(pass) = guard.check(request.head(), &peer(false)).await else {
            panic!("refused");
        };
        let ids = Ids::of(request.head().headers());
        let sent = to_guest(request.head(), "hello", &ids, &peer(false), pass.identity());
        let sent = sent.expect("a request");
        assert_eq!(sent.headers()["x-fdn-identity"], "key:ci");
        assert!(!sent.headers().contains_key(name));
    }
    // Without a policy, too, clients must not be able to claim an identity.
    let mut request = TestRequest::default();
    request.append_header(("x-fdn-identity", "key:root"));
    let request = request.finish();
    let ids = Ids::of(request.head().headers());
    let sent = to_guest(
        request.head(),
        "hello",
        &ids,
        &peer(false),
        Identity::default(),
    );
    assert!(
        !sent
            .expect("a request")
            .headers()
            .contains_key("x-fdn-identity")
    );
}

/// Behind a trusted proxy the client's address is the one that the proxy reports; the client's own claims do not count.
#[tokio::test]
async fn addresses_are_those_of_clients() {
    let (guard, _) = guard("addresses.allow = [\"198.51.100.0/24\"]");
    for (trusted, forwarded, admitted) in [
        (true, "203.0.113.1, 198.51.100.9", true),
        (true, "198.51.100.9, 203.0.113.1", false),
        (false, "198.51.100.9", false),
        (true, "rubbish", false),
    ] {
        let mut request = TestRequest::default();
        request.append_header(("x-forwarded-for", forwarded));
        let request = request.finish();
        let decision = guard.check(request.head(), &peer(trusted)).await;
        assert_eq!(
            matches!(decision, Decision::Pass(_)),
            admitted,
            "{forwarded}"
        );
    }
}

/// A gateway that a call is handed on to takes the client's address from the gateway that handed it on, not from the client.
#[test]
fn a_call_that_is_handed_on_keeps_its_clients_address() {
    let mut request = TestRequest::default();
    request.append_header(("x-forwarded-for", "198.51.100.1, 203.0.113.9"));
    let request = request.finish();
    for (trusted, known) in [(true, "203.0.113.9"), (false, "192.0.2.7")] {
        let told = client_text(request.head(), &peer(trusted));
        assert_eq!(told, known);
        let there = Peer::forwarded(told);
        let known: IpAddr = known.parse().expect("address");
        assert_eq!(there.ip, Some(known), "for the call's record");
        assert_eq!(client_address(request.head(), &there), Some(known));
        assert_eq!(client_text(request.head(), &there), there.address);
    }
}

/// A place is released when the pass that holds it is dropped.
#[tokio::test]
async fn places_are_given_back() {
    let (guard, _) = guard("concurrency = 1");
    let request = TestRequest::default().finish();
    let check = || guard.check(request.head(), &FREE);
    static FREE: Peer = Peer {
        address: bytes::Bytes::from_static(b"unknown"),
        ip: None,
        trusted: false,
        proxy: false,
        secure: false,
    };
    let Decision::Pass(first) = check().await else {
        panic!("refused");
    };
    let permit = first.permit.clone();
    drop(first);
    assert!(matches!(check().await, Decision::Refused(..)));
    drop(permit);
    assert!(matches!(check().await, Decision::Pass(_)));
}
