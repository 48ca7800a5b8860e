//! The gateway with TLS: the certificate that names the host, HTTP/2 and HTTP/1.1, a new certificate without a restart, and clients that do not
//! speak TLS.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fdn_core::DurationMs;
use fdn_core::manifest::Manifest;
use fdn_core::message::AppPhase;
use fdn_edge_agent::{Agent, Settings};
use fdn_service::certificate::CertificateFiles;
use fdn_testkit::{components, wait};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use reqwest::{Client, Version};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};

use crate::support::{Network, host};

/// An authority that only the test knows.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    /// Writes a new key and a certificate for `name` into files.
    fn issue(&self, folder: &Path, file: &str, name: &str) -> CertificateFiles {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let signed = params.signed_by(&key, &self.0).expect("a certificate");
        let files = CertificateFiles {
            certificate_file: folder.join(format!("{file}.crt")),
            key_file: folder.join(format!("{file}.key")),
        };
        std::fs::write(&files.certificate_file, signed.pem()).expect("written");
        std::fs::write(&files.key_file, key.serialize_pem()).expect("written");
        files
    }

    /// A client that trusts this authority only, finds the app at `address` and speaks `protocols`.
    fn client(&self, app: &str, address: SocketAddr, protocols: &[&str]) -> Client {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("an authority");
        let mut tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
        let builder = Client::builder().tls_backend_preconfigured(tls).no_proxy();
        // A connection per request, so that each has a handshake.
        let builder = builder.pool_max_idle_per_host(0);
        let client = builder.resolve(&host(app), address).build();
        client.expect("a client")
    }
}

struct Case {
    network: Network,
    agent: Agent,
    authority: Authority,
}

impl Case {
    async fn start(change: impl FnOnce(&mut Settings)) -> Self {
        let network = Network::start().await;
        let authority = Authority::new();
        let folder = network.folder.path();
        let mut settings = network.settings("eu-west-1");
        let tls = &mut settings.gateway.tls;
        tls.listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        tls.certificates = vec![
            authority.issue(folder, "other", "www.example.org"),
            authority.issue(folder, "zone", "*.fn.test"),
        ];
        tls.check_interval = DurationMs::from_millis(10);
        change(&mut settings);
        let agent = network.agent(settings).await;
        let revision = network
            .deploy(
                "hello",
                1,
                &components::hello("hi there"),
                Manifest::default(),
            )
            .await;
        network
            .until_phase("hello", revision, |phase| *phase == AppPhase::Ready)
            .await;
        Self {
            network,
            agent,
            authority,
        }
    }

    fn address(&self) -> SocketAddr {
        self.agent.secure_address().expect("it listens")
    }

    fn client(&self, protocols: &[&str]) -> Client {
        self.authority.client("hello", self.address(), protocols)
    }

    async fn call(&self, client: &Client) -> Result<(Version, String), reqwest::Error> {
        let url = format!("https://{}:{}/", host("hello"), self.address().port());
        let answer = client.get(url).send().await?.error_for_status()?;
        Ok((answer.version(), answer.text().await?))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_app_is_called_over_tls_by_both_versions_of_http() {
    let case = Case::start(|_| {}).await;
    let client = case.client(&["h2", "http/1.1"]);
    let (version, text) = case.call(&client).await.expect("an answer");
    assert_eq!((version, text.as_str()), (Version::HTTP_2, "hi there"));
    let old = case.client(&["http/1.1"]);
    let (version, text) = case.call(&old).await.expect("an answer");
    assert_eq!((version, text.as_str()), (Version::HTTP_11, "hi there"));
    // The listener without TLS still works.
    assert_eq!(case.network.text(&case.agent, "hello").await, "hi there");
    case.agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_certificate_counts_without_a_restart() {
    let case = Case::start(|_| {}).await;
    let folder = case.network.folder.path();
    // A new client each time: one that resumes its session is not shown a certificate.
    let call = async || case.call(&case.client(&["h2", "http/1.1"])).await;
    call().await.expect("an answer");
    // A certificate for a name that is not the app's: the client must refuse it.
    case.authority.issue(folder, "zone", "*.elsewhere.test");
    wait::until("the new certificate to be shown", async || {
        match call().await {
            Err(error) if error.is_connect() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    case.authority.issue(folder, "zone", "*.fn.test");
    wait::until("the next certificate to be shown", async || {
        call().await.map(drop)
    })
    .await;
    case.agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_speak_tls_is_closed_and_harms_nobody() {
    let case = Case::start(|settings| {
        settings.gateway.tls.handshake = DurationMs::from_millis(200);
    })
    .await;
    let address = case.address();
    let strange = tokio::task::spawn_blocking(move || {
        let connect = || {
            let stream = TcpStream::connect(address).expect("connected");
            let patience = Some(Duration::from_secs(60));
            stream.set_read_timeout(patience).expect("set");
            stream
        };
        let (mut silent, mut plain) = (connect(), connect());
        plain
            .write_all(b"GET / HTTP/1.1\r\nhost: hello.fn.test\r\n\r\n")
            .expect("written");
        for stream in [&mut silent, &mut plain] {
            let mut answer = Vec::new();
            // Reset or closed, after an alert at most, and not left waiting.
            let ended = stream.read_to_end(&mut answer);
            let waits = |error: std::io::Error| {
                matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
            };
            assert!(!ended.is_err_and(waits), "it is not closed");
            assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
        }
    });
    strange.await.expect("closed");
    let client = case.client(&["h2", "http/1.1"]);
    case.call(&client).await.expect("an answer");
    case.agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_certificate_an_agent_does_not_start() {
    let network = Network::start().await;
    let authority = Authority::new();
    let folder = network.folder.path();
    let (one, other) = (
        authority.issue(folder, "one", "one.test"),
        authority.issue(folder, "other", "other.test"),
    );
    let mixed = CertificateFiles {
        certificate_file: one.certificate_file,
        key_file: other.key_file,
    };
    for (certificates, expected) in [
        (Vec::new(), "gateway.tls.certificates"),
        (vec![mixed], "other.key"),
    ] {
        let mut settings = network.settings("eu-west-1");
        settings.gateway.tls.listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
        settings.gateway.tls.certificates = certificates;
        let started = Agent::start(settings).await;
        let error = started.err().expect("refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
}
