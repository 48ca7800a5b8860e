//! A failing gateway leaves the answers, and returns later.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fdn_core::message::{Message, NetworkDesired};
use fdn_core::{DurationMs, Revision};
use fdn_dns::health::client::Scheme;
use fdn_dns::{Dns, Settings};
use fdn_testkit::process::Program;
use fdn_testkit::{ports, wait};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::certificates::Certificates;
use crate::common::{FakeController, Fixture, Http, app, cluster, dig, get, network, settings};

const CLIENT: &str = "192.0.2.0/24";

fn often(settings: &mut Settings) {
    settings.health.interval = DurationMs::from_millis(30);
    settings.health.timeout = DurationMs::from_secs(60);
    settings.health.fall = 2;
}

async fn gateway(address: [u8; 4], port: u16, healthy: &Arc<AtomicBool>) -> Http {
    let healthy = Arc::clone(healthy);
    Http::start(SocketAddr::from((address, port)), move |head| {
        assert!(
            head.is_empty() || head.starts_with("GET /healthz "),
            "{head}"
        );
        (
            if healthy.load(Ordering::Relaxed) {
                200
            } else {
                503
            },
            String::new(),
        )
    })
    .await
}

fn desired(eu: &[SocketAddr], us: &[SocketAddr]) -> Message {
    let clusters = vec![
        cluster("eu-west", 53.35, -6.26, eu),
        cluster("us-east", 39.04, -77.49, us),
    ];
    Message::NetworkDesired(NetworkDesired {
        clusters,
        revision: Revision(1),
        ..network(1)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_whose_gateways_stop_leaves_and_returns() {
    let fine = Arc::new(AtomicBool::new(true));
    let eu = gateway([127, 0, 1, 1], 0, &fine).await;
    let us = gateway([127, 0, 2, 1], 0, &fine).await;
    let fixture = Fixture::start(often).await;
    fixture.publish(desired(&[eu.address], &[us.address])).await;
    fixture
        .publish(app("hello", 2, &[(CLIENT, "eu-west")]))
        .await;
    fixture
        .answers("hello.fn.test", CLIENT, &["127.0.1.1"])
        .await;

    let port = eu.address.port();
    eu.stop().await;
    fixture
        .answers("hello.fn.test", CLIENT, &["127.0.2.1"])
        .await;
    let (_, metrics) = fixture.admin("/metrics").await;
    assert!(
        metrics.contains(&format!(
            "cluster=\"eu-west\",gateway=\"127.0.1.1:{port}\"}} 0"
        )),
        "{metrics}"
    );
    let (_, told) = fixture
        .admin("/lookup?name=hello.fn.test&client=192.0.2.1")
        .await;
    assert!(told.contains("bound_is_dead"), "{told}");

    let eu = gateway([127, 0, 1, 1], port, &fine).await;
    fixture
        .answers("hello.fn.test", CLIENT, &["127.0.1.1"])
        .await;
    fixture.dns.stop().await;
    eu.stop().await;
    us.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_listens_but_is_not_healthy_leaves_alone() {
    let (fine, sick) = (
        Arc::new(AtomicBool::new(true)),
        Arc::new(AtomicBool::new(true)),
    );
    let first = gateway([127, 0, 1, 1], 0, &fine).await;
    let second = gateway([127, 0, 1, 2], 0, &sick).await;
    let fixture = Fixture::start(often).await;
    fixture
        .publish(desired(&[first.address, second.address], &[]))
        .await;
    fixture.publish(app("hello", 2, &[])).await;
    fixture
        .answers("hello.fn.test", CLIENT, &["127.0.1.1", "127.0.1.2"])
        .await;
    sick.store(false, Ordering::Relaxed);
    fixture
        .answers("hello.fn.test", CLIENT, &["127.0.1.1"])
        .await;
    // After the last one is gone, nothing is alive, and everything is served.
    fine.store(false, Ordering::Relaxed);
    fixture
        .answers("hello.fn.test", CLIENT, &["127.0.1.1", "127.0.1.2"])
        .await;
    sick.store(true, Ordering::Relaxed);
    fixture
        .answers("hello.fn.test", CLIENT, &["127.0.1.2"])
        .await;
    fixture.dns.stop().await;
    first.stop().await;
    second.stop().await;
}

/// A gateway that is always alive, and reports that it takes no calls while `refuses` is set.
async fn refusing(address: [u8; 4], refuses: &Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind(SocketAddr::from((address, 0))).await;
    let listener = listener.expect("a socket");
    let address = listener.local_addr().expect("an address");
    let refuses = Arc::clone(refuses);
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let refuses = Arc::clone(&refuses);
            tokio::spawn(async move {
                let mut head = [0; 1024];
                if connection.read(&mut head).await.unwrap_or(0) == 0 {
                    return;
                }
                let why = match refuses.load(Ordering::Relaxed) {
                    true => "x-fdn-refuses: no space left\r\n",
                    false => "",
                };
                let answer = format!(
                    "HTTP/1.1 200 OK\r\n{why}content-length: 0\r\nconnection: close\r\n\r\n"
                );
                drop(connection.write_all(answer.as_bytes()).await);
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_lives_and_takes_no_calls_leaves_until_it_does() {
    let (takes, refuses) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let first = refusing([127, 0, 1, 1], &takes).await;
    let second = refusing([127, 0, 1, 2], &refuses).await;
    let fixture = Fixture::start(often).await;
    fixture.publish(desired(&[first, second], &[])).await;
    fixture.publish(app("hello", 2, &[])).await;
    let both = ["127.0.1.1", "127.0.1.2"];
    fixture.answers("hello.fn.test", CLIENT, &both).await;
    refuses.store(true, Ordering::Relaxed);
    fixture
        .answers("hello.fn.test", CLIENT, &["127.0.1.1"])
        .await;
    refuses.store(false, Ordering::Relaxed);
    fixture.answers("hello.fn.test", CLIENT, &both).await;
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_leaves_the_network_is_no_longer_watched() {
    let fine = Arc::new(AtomicBool::new(true));
    let eu = gateway([127, 0, 1, 1], 0, &fine).await;
    let fixture = Fixture::start(often).await;
    fixture
        .publish(desired(
            &[eu.address, SocketAddr::from(([127, 0, 1, 9], 9))],
            &[],
        ))
        .await;
    fixture.publish(app("hello", 2, &[])).await;
    fixture
        .answers("hello.fn.test", CLIENT, &["127.0.1.1"])
        .await;
    let Message::NetworkDesired(mut next) = desired(&[eu.address], &[]) else {
        panic!("a network")
    };
    next.revision = Revision(3);
    fixture.publish(Message::NetworkDesired(next)).await;
    wait::until("the metric of the gateway to go", async || {
        let (_, metrics) = fixture.admin("/metrics").await;
        if metrics.contains("127.0.1.9:9") {
            Err("it is there")
        } else {
            Ok(())
        }
    })
    .await;
    fixture.dns.stop().await;
    eu.stop().await;
}

/// A TLS acceptor with the certificate in these files.
fn acceptor(certificates: &Certificates) -> TlsAcceptor {
    let chain = CertificateDer::pem_file_iter(certificates.certificate()).expect("read");
    let key = PrivateKeyDer::from_pem_file(certificates.key()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain.map(|one| one.expect("one")).collect(), key);
    TlsAcceptor::from(Arc::new(config.expect("they belong together")))
}

/// A healthy gateway that speaks TLS only, with the current certificate.
async fn secure_gateway(address: [u8; 4], shown: &Arc<Mutex<TlsAcceptor>>) -> SocketAddr {
    let listener = TcpListener::bind(SocketAddr::from((address, 0)))
        .await
        .expect("a free address");
    let (address, shown) = (listener.local_addr().expect("address"), Arc::clone(shown));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = shown.lock().expect("no panic").clone();
            tokio::spawn(async move {
                // A client that only connects, or rejects the certificate, disconnects.
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let mut head = [0; 1024];
                let read = stream.read(&mut head).await.unwrap_or(0);
                assert!(head[..read].starts_with(b"GET /healthz HTTP/1.1"));
                let text = b"HTTP/1.1 200 x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                drop(stream.write_all(text).await);
            });
        }
    });
    address
}

/// The settings of the program itself, with the state in `dir`.
fn over_https(dir: &Path, listen: u16, admin: u16, authority: &Path) -> String {
    format!(
        "data_dir = {:?}\nlisten = [\"127.0.0.1:{listen}\"]\nadmin = \"127.0.0.1:{admin}\"\n\
         [health]\ninterval = \"30ms\"\ntimeout = \"60s\"\nscheme = \"https\"\nca_file = {:?}\n",
        dir.display().to_string(),
        authority.display().to_string(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn over_https_a_certificate_of_another_authority_fails_and_the_log_says_so() {
    let (ours, other) = (Certificates::new(), Certificates::new());
    other.issue("127.0.1.1");
    let shown = Arc::new(Mutex::new(acceptor(&other)));
    let eu = secure_gateway([127, 0, 1, 1], &shown).await;
    ours.issue("127.0.2.1");
    let us = secure_gateway([127, 0, 2, 1], &Arc::new(Mutex::new(acceptor(&ours)))).await;
    // The state was written by an earlier server.
    let first = Fixture::start(|_| {}).await;
    first.publish(desired(&[eu], &[us])).await;
    first.publish(app("hello", 2, &[(CLIENT, "eu-west")])).await;
    first.answers("hello.fn.test", CLIENT, &["127.0.1.1"]).await;
    let Fixture { dns, dir, .. } = first;
    dns.stop().await;

    let (listen, admin) = (ports::local(), ports::local());
    let file = dir.path().join("dns.toml");
    crate::alone::join(dir.path());
    let text = over_https(dir.path(), listen, admin, &ours.authority());
    std::fs::write(&file, text).expect("written");
    let program = Program::new(
        env!("CARGO_BIN_EXE_fdn-dns"),
        ["--config".into(), file.into_os_string()],
    );
    let mut process = program.start(&dir.path().join("log")).expect("started");
    let said = async |what: &str| {
        let line = |log: String| {
            let line = log.lines().find(|line| line.contains(what));
            line.map(str::to_owned).ok_or(log.clone())
        };
        wait::until(what, async || line(process.log())).await
    };
    let line = said("leaves the answers").await;
    // Both authorities have the same name: only the signature distinguishes them.
    assert!(
        line.contains("eu-west") && line.contains("invalid peer certificate: BadSignature"),
        "{line}"
    );
    let (server, admin) = (
        SocketAddr::from(([127, 0, 0, 1], listen)),
        SocketAddr::from(([127, 0, 0, 1], admin)),
    );
    let subnet = format!("+subnet={CLIENT}");
    wait::until("the other to be answered", async || {
        let answer = dig(server, &["hello.fn.test", "+short", &subnet]).await;
        let (_, metrics) = get(admin, "/metrics").await;
        let shown = [(eu, 0), (us, 1)]
            .map(|(gateway, up)| metrics.contains(&format!("gateway=\"{gateway}\"}} {up}\n")));
        if answer.trim() == "127.0.2.1" && shown == [true; 2] {
            Ok(())
        } else {
            Err(format!("{answer}\n{metrics}\n{}", process.log()))
        }
    })
    .await;
    // A certificate of the right authority for its address brings it back.
    ours.issue("127.0.1.1");
    *shown.lock().expect("no panic") = acceptor(&ours);
    assert!(said("returns to the answers").await.contains("eu-west"));
    process.stop(Duration::from_secs(30)).expect("stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_without_authorities_is_refused_with_its_setting() {
    let dir = tempfile::tempdir().expect("folder");
    let file = dir.path().join("ca.pem");
    let refused = async || {
        let mut settings = settings(dir.path());
        settings.health.scheme = Scheme::Https;
        settings.health.ca_file = Some(file.clone());
        let started = Dns::start(settings, Some(FakeController::new().0)).await;
        started.map(drop).expect_err("no authority").to_string()
    };
    for text in [
        None,
        Some("nothing of the kind"),
        Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
    ] {
        if let Some(text) = text {
            std::fs::write(&file, text).expect("written");
        }
        let reason = refused().await;
        assert!(reason.contains("health.ca_file"), "{text:?}: {reason}");
    }
}
