//! Certificates: nodes of one authority talk, others do not.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fdn_cluster::peer::{Answering, PREFIX, PeerBody, Peers, StillWelcome};
use fdn_cluster::settings::{TimingSettings, TlsSettings};
use fdn_cluster::{
    Cluster, ClusterParts, ClusterSettings, Host, ScalingTask, Settlement, StartOrder, TaskId,
};
use fdn_core::enrol::NodeIdentity;
use fdn_core::{DurationMs, MebiBytes, MilliCpu, NodeId, Resources};
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Incoming;
use prometheus::Registry;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    SanType,
};

struct Idle;

impl Host for Idle {
    fn start(&mut self, _: StartOrder) {}

    fn end(&mut self, _: TaskId) {}
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Writes a certificate that names a node, its key and its authority.
fn certify(
    folder: &Path,
    ca: &CertifiedIssuer<'_, KeyPair>,
    cluster: &str,
    node: &str,
) -> TlsSettings {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    let name = format!("fdn://cluster/{cluster}/node/{node}");
    params.subject_alt_names = vec![SanType::URI(name.try_into().unwrap())];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let certificate = params.signed_by(&key, ca).unwrap();
    let write = |name: &str, text: String| {
        let path = folder.join(format!("{node}-{name}"));
        std::fs::write(&path, text).unwrap();
        path
    };
    TlsSettings {
        ca: write("ca.pem", ca.pem()),
        certificate: write("cert.pem", certificate.pem()),
        key: write("key.pem", key.serialize_pem()),
    }
}

/// No pause of a busy machine is taken for a death, and a refused node retries soon.
fn timing() -> TimingSettings {
    TimingSettings {
        wanted: DurationMs::from_secs(100),
        lease: DurationMs::from_secs(60),
        suspect_after: DurationMs::from_secs(40),
        dead_after: DurationMs::from_secs(120),
        election: DurationMs::from_secs(1),
        connect: DurationMs::from_secs(30),
        reconnect_most: DurationMs::from_millis(500),
        keep_alive: DurationMs::from_secs(60),
        ..TimingSettings::default()
    }
}

/// Answers every request of a node for as long as its certificate is not revoked.
#[derive(Clone, Default)]
struct Revocable(Arc<AtomicBool>);

impl Peers for Revocable {
    fn welcome(&self, _: &NodeIdentity, _: &[u8]) -> Option<StillWelcome> {
        let revoked = Arc::clone(&self.0);
        let still_welcome = move || !revoked.load(Ordering::SeqCst);
        still_welcome().then(|| Arc::new(still_welcome) as StillWelcome)
    }

    fn answer(&self, _: NodeId, request: Request<Incoming>) -> Answering {
        let is_endless = request.uri().path().ends_with("endless");
        Box::pin(async move {
            Response::new(if is_endless {
                type Piece = Result<Frame<Bytes>, Box<dyn std::error::Error + Send + Sync>>;
                StreamBody::new(futures::stream::pending::<Piece>()).boxed_unsync()
            } else {
                empty()
            })
        })
    }
}

fn empty() -> PeerBody {
    let body = Empty::<Bytes>::new();
    body.map_err(|never| match never {}).boxed_unsync()
}

async fn start(node: &str, tls: TlsSettings, seed: Option<SocketAddr>) -> Cluster {
    start_with(node, tls, seed, None).await
}

async fn start_with(
    node: &str,
    tls: TlsSettings,
    seed: Option<SocketAddr>,
    peers: Option<Arc<dyn Peers>>,
) -> Cluster {
    let settings = ClusterSettings {
        timing: timing(),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        seeds: seed.into_iter().collect(),
        founder: seed.is_none(),
        tls: Some(tls),
        ..ClusterSettings::default()
    };
    Cluster::start(ClusterParts {
        cluster: "test".parse().unwrap(),
        node: node.parse().unwrap(),
        capacity: Resources::new(MilliCpu(1000), MebiBytes(1000)),
        settings,
        host: Idle,
        peers,
        leases: None,
        registry: Registry::new(),
    })
    .await
    .unwrap()
}

async fn wait<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let waiting = async {
        let mut look = tokio::time::interval(Duration::from_millis(20));
        while !condition().await {
            look.tick().await;
        }
    };
    let waited = tokio::time::timeout(crate::process::PATIENCE, waiting).await;
    waited.unwrap_or_else(|_| panic!("in time: {what}"));
}

async fn members(cluster: &Cluster) -> usize {
    cluster.status().await.unwrap().members.len()
}

#[tokio::test]
async fn nodes_of_one_authority_form_a_cluster_and_others_stay_outside() {
    let folder = tempfile::tempdir().unwrap();
    let ca = authority();
    let certify = |cluster, node| certify(folder.path(), &ca, cluster, node);
    let a = start("a", certify("test", "a"), None).await;
    let b = start("b", certify("test", "b"), Some(a.address())).await;
    wait("b has joined", || async {
        members(&a).await == 2 && members(&b).await == 2
    })
    .await;

    // By another authority; of another cluster; under a name that is not the certificate's.
    let other = self::certify(folder.path(), &authority(), "test", "c");
    let c = start("c", other, Some(a.address())).await;
    let d = start("d", certify("elsewhere", "d"), Some(a.address())).await;
    let e = start("e", certify("test", "not-e"), Some(a.address())).await;
    let refused = || a.metrics().streams_refused.get();
    wait("each was refused more than once", || async {
        refused() >= 6
    })
    .await;
    for stranger in [&c, &d, &e] {
        assert!(!stranger.status().await.unwrap().joined);
    }
    assert_eq!((members(&a).await, members(&b).await), (2, 2));

    // Tasks submitted at one node start on either.
    let task = |label| ScalingTask {
        label,
        demand: Resources::new(MilliCpu(500), MebiBytes(100)),
        ..ScalingTask::default()
    };
    wait("there is a head", || async {
        b.status().await.unwrap().head.is_some()
    })
    .await;
    let mut outcomes = a.scale((0..4).map(task).collect()).await.unwrap();
    let mut on = Vec::new();
    while let Some(outcome) = outcomes.next().await {
        match outcome.result {
            Settlement::Started { node, trace } => {
                assert!(!trace.is_empty(), "it says how it got there");
                on.push(node.to_string());
            }
            other => panic!("{other:?}"),
        }
    }
    on.sort();
    assert_eq!(on, ["a", "a", "b", "b"]);
}

#[tokio::test]
async fn a_revoked_certificate_ends_the_connection_that_was_made_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let ca = authority();
    let certify = |node| certify(folder.path(), &ca, "test", node);
    let peers = Revocable::default();
    let answers: Arc<dyn Peers> = Arc::new(peers.clone());
    let a = start_with("a", certify("a"), None, Some(answers)).await;
    // A node that founds a cluster of its own: it opens no stream to the first.
    let b = start("b", certify("b"), None).await;
    let name = "a".parse().unwrap();
    let mut connection = b.dialer().connect(&name, a.address()).await.unwrap();
    let request = || {
        let request = Request::post(format!("http://fdn{PREFIX}x"));
        request.body(empty()).unwrap()
    };
    let answer = connection.sender.send_request(request()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let refused = a.metrics().streams_refused.get();

    peers.0.store(true, Ordering::SeqCst);
    let answer = connection.sender.send_request(request()).await;
    let is_served = answer.is_ok_and(|answer| answer.status() != StatusCode::FORBIDDEN);
    assert!(!is_served, "no request is served any more");
    let ended = connection.closer.cancelled();
    let ended = tokio::time::timeout(crate::process::PATIENCE, ended).await;
    ended.expect("the connection ends");
    assert_eq!(a.metrics().streams_refused.get(), refused + 1);
}

#[tokio::test]
async fn a_revoked_certificate_ends_what_is_open_at_either_end() {
    let folder = tempfile::tempdir().unwrap();
    let ca = authority();
    let certify = |node| certify(folder.path(), &ca, "test", node);
    let (at_a, at_b) = (Revocable::default(), Revocable::default());
    let peers = |revocable: &Revocable| Some(Arc::new(revocable.clone()) as Arc<dyn Peers>);
    let a = start_with("a", certify("a"), None, peers(&at_a)).await;
    // A node that founds a cluster of its own: it opens no stream to the first.
    let b = start_with("b", certify("b"), None, peers(&at_b)).await;
    let name = "a".parse().unwrap();
    // First at the node that has asked, then at the one that answers.
    for revocable in [at_b, at_a] {
        let mut connection = b.dialer().connect(&name, a.address()).await.unwrap();
        let request = Request::post(format!("http://fdn{PREFIX}endless"));
        let request = request.body(empty()).unwrap();
        let answer = connection.sender.send_request(request).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        revocable.0.store(true, Ordering::SeqCst);
        let ended = tokio::time::timeout(crate::process::PATIENCE, answer.into_body().collect());
        let ended = ended.await.expect("it ends");
        assert!(ended.is_err(), "it is cut off");
        connection.closer.cancelled().await;
        revocable.0.store(false, Ordering::SeqCst);
    }
}
