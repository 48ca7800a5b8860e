//! API and console over TLS: both TLS versions, HTTP/2 and HTTP/1.1, a new certificate without a restart, and clients that do not speak TLS.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fdn_controller::{Controller, Settings};
use fdn_core::enrol::JoinToken;
use fdn_core::{Coded as _, Digest, DurationMs, ErrorCode, Timestamp};
use fdn_link::join::{ApiAccess, JoinError};
use fdn_runtime::Compiler;
use fdn_service::certificate::CertificateFiles;
use fdn_service::pki::{Authority, Bearer, NodeKey, Subject, pin};
use fdn_service::secret;
use fdn_testkit::wait;
use reqwest::{Client, Method, StatusCode, Version};
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::version::{TLS12, TLS13};
use rustls::{ALL_VERSIONS, ClientConfig, RootCertStore, SupportedProtocolVersion};
use tempfile::TempDir;

use crate::broker::TestBroker;
use crate::machines::Machine;
use crate::rig::{Backend, Rig, settings};

/// An authority that only the test's clients trust.
fn authority() -> Authority {
    let now = fdn_service::now();
    Authority::create(now, Timestamp(now.get() + 86_400_000)).expect("an authority")
}

/// Writes a new key and a certificate for `address` to files.
fn issue(authority: &Authority, folder: &Path, file: &str, address: &str) -> CertificateFiles {
    let now = fdn_service::now();
    let key = NodeKey::fresh().expect("a key");
    let subject = Subject {
        bearer: Bearer::Controller("fdn://controller/api".parse().expect("a name")),
        addresses: vec![address.parse().expect("an address")],
        names: Vec::new(),
    };
    let end = Timestamp(now.get() + 3_600_000);
    let issued = authority.issue(&subject, &key.public(), now, end);
    let files = CertificateFiles {
        certificate_file: folder.join(format!("{file}.crt")),
        key_file: folder.join(format!("{file}.key")),
    };
    let certificate = issued.expect("a certificate").certificate;
    std::fs::write(&files.certificate_file, certificate).expect("written");
    secret::write(&files.key_file, &key.to_pem()).expect("written");
    files
}

/// A client that trusts only `authority`, with a handshake for each request.
fn client(
    authority: &Authority,
    versions: &[&'static SupportedProtocolVersion],
    protocols: &[&str],
) -> Client {
    let mut roots = RootCertStore::empty();
    let pem = authority.certificate().as_bytes();
    let root = CertificateDer::from_pem_slice(pem).expect("a certificate");
    roots.add(root).expect("an authority");
    let mut tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
    tls.resumption = rustls::client::Resumption::disabled();
    let builder = Client::builder().tls_backend_preconfigured(tls).no_proxy();
    let client = builder.pool_max_idle_per_host(0).build();
    client.expect("a client")
}

/// A controller with TLS.
struct Case {
    authority: Authority,
    rig: Rig,
}

impl Case {
    async fn start(change: impl FnOnce(&mut Settings)) -> Self {
        let (authority, folder) = (authority(), Arc::new(tempfile::tempdir().expect("folder")));
        std::fs::write(folder.path().join("api-ca.pem"), authority.certificate()).expect("written");
        let mut settings = settings(folder.path(), Backend::Sqlite).await;
        let tls = &mut settings.api.tls;
        tls.certificates = vec![issue(&authority, folder.path(), "api", "127.0.0.1")];
        tls.check_interval = DurationMs::from_millis(10);
        change(&mut settings);
        let rig = Rig::start_on(settings, Arc::new(TestBroker::default()), folder);
        Self {
            authority,
            rig: Box::pin(rig).await,
        }
    }

    fn folder(&self) -> &TempDir {
        &self.rig.folder
    }

    fn reissue(&self, address: &str) {
        issue(&self.authority, self.folder().path(), "api", address);
    }

    /// The result of a new client's handshake and request: the HTTP version.
    async fn ask(&self, client: &Client) -> Result<Version, reqwest::Error> {
        let request = client.get(self.rig.url("/v1/network"));
        let answer = request.bearer_auth(&self.rig.token).send().await?;
        Ok(answer.error_for_status()?.version())
    }

    async fn meets(&self) -> Result<Version, reqwest::Error> {
        self.ask(&client(&self.authority, ALL_VERSIONS, &["h2", "http/1.1"]))
            .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_is_asked_over_tls_by_both_versions_of_it_and_of_http() {
    let case = Case::start(|_| {}).await;
    for versions in [&[&TLS12][..], &[&TLS13][..]] {
        for (protocols, expected) in [
            (&["h2", "http/1.1"][..], Version::HTTP_2),
            (&["http/1.1"][..], Version::HTTP_11),
            (&[][..], Version::HTTP_11),
        ] {
            let client = client(&case.authority, versions, protocols);
            let version = case.ask(&client).await.expect("an answer");
            assert_eq!(version, expected, "{versions:?} {protocols:?}");
        }
    }
    let stranger = client(&authority(), ALL_VERSIONS, &["h2"]);
    let refused = case.ask(&stranger).await.expect_err("another authority's");
    assert!(refused.is_connect(), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_over_tls_is_for_tls_alone_also_on_ones_own_machine() {
    let case = Case::start(|_| {}).await;
    let rig = &case.rig;
    let body = serde_json::json!({ "user": "admin", "password": rig.password });
    for protocols in [&["h2"][..], &["http/1.1"][..]] {
        let browser = client(&case.authority, ALL_VERSIONS, protocols);
        let login = browser.post(rig.url("/v1/session")).json(&body);
        let answer = login.send().await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK);
        let cookie = answer.headers()["set-cookie"].to_str().expect("text");
        assert!(
            cookie.starts_with("__Host-fdn-session=") && cookie.ends_with("; Secure"),
            "{cookie}"
        );
        let pair = cookie.split(';').next().expect("a pair").to_owned();
        let own = browser.get(rig.url("/v1/session")).header("cookie", pair);
        let answer = own.send().await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::OK);
    }
    // Over plain HTTP on the same machine, browsers would refuse such a cookie.
    let plain = Rig::start().await;
    let login = plain.anonymous(Method::POST, "/v1/session");
    let body = serde_json::json!({ "user": "admin", "password": plain.password });
    let answer = login.json(&body).send().await.expect("an answer");
    let cookie = answer.headers()["set-cookie"].to_str().expect("text");
    assert!(cookie.starts_with("fdn-session=") && !cookie.contains("Secure"));
}

#[tokio::test(flavor = "multi_thread")]
async fn browsers_are_told_to_stay_with_tls_where_it_is_spoken() {
    for (hsts, expected) in [(None, "max-age=15552000"), (Some(0), "max-age=0")] {
        let case = Case::start(|settings| {
            let default = settings.api.tls.hsts;
            settings.api.tls.hsts = hsts.map_or(default, DurationMs::from_secs);
        });
        let case = case.await;
        for protocols in [&["h2"][..], &["http/1.1"][..]] {
            let browser = client(&case.authority, ALL_VERSIONS, protocols);
            // The console, an API response, a refusal, and an unknown path.
            for (path, status) in [
                ("/", 200),
                ("/healthz", 200),
                ("/v1/apps", 401),
                ("/v1/none", 404),
            ] {
                let answer = browser.get(case.rig.url(path)).send().await;
                let answer = answer.expect("an answer");
                assert_eq!(answer.status(), status, "{path}");
                let told = answer.headers().get("strict-transport-security");
                let told = told.expect(path).to_str().expect("text");
                assert_eq!(told, expected, "{path}");
            }
        }
    }
    // Browsers must not accept the header without TLS, and a proxy in front sets its own (RFC 6797, 7.2).
    let plain = Rig::start().await;
    let answer = plain.anonymous(Method::GET, "/healthz").send().await;
    let answer = answer.expect("an answer");
    assert!(answer.headers().get("strict-transport-security").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_certificate_counts_without_a_restart() {
    let case = Case::start(|_| {}).await;
    case.meets().await.expect("an answer");
    // A certificate for an address that is not the controller's: the client must refuse it.
    case.reissue("192.0.2.1");
    wait::until("the new certificate to be shown", async || {
        match case.meets().await {
            Err(error) if error.is_connect() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    case.reissue("127.0.0.1");
    wait::until("the next certificate to be shown", async || {
        case.meets().await.map(drop)
    })
    .await;
    let unread = &case.rig.controller.state().metrics.certificate_errors;
    let before = unread.get();
    std::fs::write(case.folder().path().join("api.crt"), "broken").expect("written");
    wait::until("the broken file to be counted", async || {
        if unread.get() > before {
            Ok(())
        } else {
            Err(format!("{} times", unread.get()))
        }
    })
    .await;
    case.meets().await.expect("the one that is held goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_speak_tls_is_closed_and_harms_nobody() {
    let short = DurationMs::from_millis(200);
    let case = Case::start(|settings| settings.api.tls.handshake = short).await;
    let address = case.rig.controller.address();
    let strange = tokio::task::spawn_blocking(move || {
        let connect = || {
            let stream = TcpStream::connect(address).expect("connected");
            let patience = Some(Duration::from_secs(60));
            stream.set_read_timeout(patience).expect("set");
            stream
        };
        let (mut silent, mut plain) = (connect(), connect());
        plain
            .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .expect("written");
        for stream in [&mut silent, &mut plain] {
            let mut answer = Vec::new();
            // The connection is reset or closed, after an alert at most, and not kept open.
            let ended = stream.read_to_end(&mut answer);
            let waits = |error: std::io::Error| {
                matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
            };
            assert!(!ended.is_err_and(waits), "it is not closed");
            assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
        }
    });
    strange.await.expect("closed");
    case.meets().await.expect("an answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_certificate_a_controller_does_not_start() {
    let (authority, folder) = (authority(), tempfile::tempdir().expect("folder"));
    let one = issue(&authority, folder.path(), "one", "127.0.0.1");
    let other = issue(&authority, folder.path(), "other", "127.0.0.1");
    let mut settings = settings(folder.path(), Backend::Sqlite).await;
    settings.api.tls.certificates = vec![CertificateFiles {
        certificate_file: one.certificate_file,
        key_file: other.key_file,
    }];
    let broker = Arc::new(TestBroker::default());
    let started = Controller::start_with(settings, broker, Compiler::InProcess).await;
    let error = started.err().expect("refused").to_string();
    assert!(
        error.contains("other.key") && error.contains("api.tls.certificates"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_joins_by_the_authority_that_its_token_names() {
    let case = Case::start(|settings| {
        let file = settings.api.tls.certificates[0].certificate_file.clone();
        let ca = file.with_file_name("api-ca.pem");
        let text = |file: &Path| std::fs::read_to_string(file).expect("read");
        std::fs::write(&file, text(&file) + &text(&ca)).expect("written");
        settings.enrolment.ca_file = Some(ca);
    })
    .await;
    let rig = &case.rig;
    rig.cluster("eu-1").await;
    let made = rig.token("eu-1", 2).await.token;
    let token: JoinToken = made.parse().expect("a token");
    let digest = pin::of_file(&case.folder().path().join("api-ca.pem"));
    assert_eq!(token.authority, Some(digest.expect("a certificate")));
    let controller = |token: &JoinToken| {
        let controller = fdn_link::join::Controller::new(&rig.url(""), ApiAccess::default());
        controller.and_then(|one| one.pinned_to(token))
    };
    let request = Machine::new().request("n-1", &token.shown());
    let another = token.clone().with_authority(Some(Digest::of(b"another")));
    let refused = controller(&another).expect("a controller");
    let refused = refused.enrol(&request).await.map(drop);
    assert!(matches!(refused, Err(JoinError::Impostor { .. })));
    let known = controller(&token).expect("a controller");
    known.enrol(&request).await.expect("let in");
    // A machine that presents the whole token is admitted as well.
    let request = Machine::new().request("n-2", &made);
    let answer = rig.enrol(&request).send().await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authority_that_tokens_cannot_name_is_said_at_the_start() {
    let folder = tempfile::tempdir().expect("folder");
    let mut settings = settings(folder.path(), Backend::Sqlite).await;
    let file = folder.path().join("two.pem");
    std::fs::write(&file, authority().certificate().repeat(2)).expect("written");
    settings.enrolment.ca_file = Some(file);
    let broker = Arc::new(TestBroker::default());
    let starting = Controller::start_with(settings, broker, Compiler::InProcess);
    let refused = Box::pin(starting).await.map(drop).expect_err("two");
    assert_eq!(refused.code(), ErrorCode::ConfigInvalid);
    assert!(refused.to_string().contains("two.pem"), "{refused}");
}
