//! The certificates of enrolment between agents: a node with one of the cluster is accepted, one without or with a revoked one is not.

use std::net::SocketAddr;
use std::path::Path;

use fdn_core::Timestamp;
use fdn_core::fleet::{FleetDesired, Revoked};
use fdn_edge_agent::Settings;
use fdn_service::pki::Facts;
use fdn_testkit::wait;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    SanType,
};

use crate::bursts::{burst, container};
use crate::peers::deployed;
use crate::support::Network;
use crate::support::peers::{Meeting, Member, address, is_whole, settings, until_status};

pub(crate) type Authority = CertifiedIssuer<'static, KeyPair>;

pub(crate) fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    CertifiedIssuer::self_signed(params, key).expect("an authority")
}

/// Gives a node a certificate, as enrolment does.
pub(crate) fn certify(settings: &mut Settings, folder: &Path, authority: &Authority) {
    let node = settings.node.as_str();
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    let name = format!("fdn://cluster/{}/node/{node}", settings.cluster);
    params.subject_alt_names = vec![SanType::URI(name.try_into().expect("a name"))];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let certificate = params.signed_by(&key, authority).expect("a certificate");
    let write = |name: &str, text: String| {
        let path = folder.join(format!("{node}-{name}"));
        std::fs::write(&path, text).expect("written");
        Some(path)
    };
    settings.tls.ca = write("ca.pem", authority.pem());
    settings.tls.certificate = write("cert.pem", certificate.pem());
    settings.tls.key = write("key.pem", key.serialize_pem());
    settings.peers.cluster.plaintext = false;
}

async fn start(
    network: &Network,
    node: &str,
    room: u64,
    seed: Option<SocketAddr>,
    authority: &Authority,
    meeting: &Meeting,
) -> (Member, String) {
    let mut settings = settings(network, node, room, seed);
    certify(&mut settings, network.folder.path(), authority);
    let path = settings.tls.certificate.clone().expect("there is one");
    let text = std::fs::read_to_string(path).expect("read");
    let serial = <Facts>::of_pem(&text).expect("facts").serial;
    let starting = Box::pin(Member::start(network, settings, "met", meeting));
    (starting.await, serial)
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_go_by_certificates_and_a_revoked_one_ends_them() {
    let network = Network::start().await;
    let (ca, meeting) = (authority(), Meeting::of(8));
    let (first, _) = start(&network, "n-1", 2, None, &ca, &meeting).await;
    let seed = Some(address(&first.agent));
    let (second, serial) = start(&network, "n-2", 4, seed, &ca, &meeting).await;
    let (third, _) = start(&network, "n-3", 4, seed, &ca, &meeting).await;
    for member in [&first, &second, &third] {
        until_status(&member.agent, |status| is_whole(status, 3)).await;
    }
    deployed(&network, "met", container(), 3).await;
    let (good, others) = burst(&network, &first.agent, "met", 20).await;
    assert_eq!((good, others), (20, Vec::new()));
    assert!(second.load.most() + third.load.most() >= 6);

    // With a certificate of another authority, and without one.
    let (stranger, _) = start(&network, "n-4", 4, seed, &authority(), &meeting).await;
    let refused = r"fdn_cluster_streams_refused_total";
    wait::until("the stranger to be refused", async || {
        match network.metric(&first.agent, refused).await {
            Some(times) if times >= 2.0 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    until_status(&stranger.agent, |status| !status.joined).await;
    let plain = network.client.get(format!(
        "http://{}/fdn.peer.v1/watch/0000000000000001",
        address(&first.agent)
    ));
    assert!(
        plain.send().await.is_err(),
        "without TLS there is no answer"
    );

    let fleet = FleetDesired {
        revision: network.next_revision(),
        revoked: vec![Revoked {
            serial,
            node: "n-2".parse().expect("node"),
            expires_at: Timestamp(u64::MAX),
        }],
        authorities: vec![ca.pem()],
        ..FleetDesired::default()
    };
    network.tell_fleet(fleet).await;
    for member in [&first, &third] {
        until_status(&member.agent, |status| is_whole(status, 2)).await;
    }
    let before = second.engine.starts();
    let (good, others) = burst(&network, &first.agent, "met", 20).await;
    assert_eq!((good, others), (20, Vec::new()));
    assert_eq!(
        second.engine.starts(),
        before,
        "nothing starts there any more"
    );
    for member in [first, second, third, stranger] {
        member.agent.stop().await;
    }
}
