use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use actix_web::{App, HttpResponse, HttpServer, web};
use fdn_core::enrol::{IssuedCertificate, JoinToken, NodeAddresses, RenewRequest, RenewResponse};
use fdn_core::{Coded as _, ErrorCode, JoinTokenId, Problem, Revision};
use fdn_link::join::{RenewParts, Renewer};
use fdn_link::{Body, ControllerLink, LinkError};
use fdn_service::certificate::CertificateFiles;
use fdn_service::now;
use fdn_service::pki::{Authority, Bearer, PublicKey, Subject};
use fdn_service::tls_listener::TlsListener;
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::Settings;

mod private;

const DAY: u64 = 86_400_000;

/// The part of a controller that enrols machines.
struct FakeApi {
    url: String,
    authority: Arc<Authority>,
    asked: Arc<Mutex<Vec<EnrolRequest>>>,
    refusal: Arc<Mutex<Option<ErrorCode>>>,
}

impl FakeApi {
    async fn open() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        Self::open_on(listener, None).await
    }

    /// The same over TLS, with a certificate issued by `authority`.
    async fn open_secure(authority: &Authority, folder: &TempDir) -> Self {
        Self::open_showing(authority, folder, "").await
    }

    /// The same, with further certificates after its own.
    async fn open_showing(authority: &Authority, folder: &TempDir, after: &str) -> Self {
        let key = NodeKey::fresh().expect("a key");
        let issued = issue(authority, "n-1", &key.public(), now().get());
        let files = CertificateFiles {
            certificate_file: folder.path().join("api.crt"),
            key_file: folder.path().join("api.key"),
        };
        let shown = issued.certificate + after;
        std::fs::write(&files.certificate_file, shown).expect("written");
        fdn_service::secret::write(&files.key_file, &key.to_pem()).expect("written");
        let at = (([127, 0, 0, 1], 0).into(), "listen");
        let every = std::time::Duration::from_secs(60);
        let secure = TlsListener::open(at, (&[files], "certificates"), every).expect("opened");
        let unread = prometheus::IntCounter::new("unread", "unread").expect("a counter");
        let (listener, config, _) = secure.split(unread);
        Self::open_on(listener, Some(config)).await
    }

    async fn open_on(listener: std::net::TcpListener, tls: Option<rustls::ServerConfig>) -> Self {
        let expires = Timestamp(now().get() + 3650 * DAY);
        let authority = Arc::new(Authority::create(now(), expires).expect("an authority"));
        let asked: Arc<Mutex<Vec<EnrolRequest>>> = Arc::default();
        let refusal: Arc<Mutex<Option<ErrorCode>>> = Arc::default();
        let kept = Arc::clone(&authority);
        let parts = (authority, Arc::clone(&asked), Arc::clone(&refusal));
        let address = listener.local_addr().expect("address");
        let scheme = if tls.is_some() { "https" } else { "http" };
        let server = HttpServer::new(move || {
            App::new()
                .app_data(web::Data::new(parts.clone()))
                .route("/v1/nodes/enrol", web::post().to(enrol))
                .route("/v1/nodes/renew", web::post().to(renew))
        })
        .workers(1)
        .disable_signals();
        let server = match tls {
            Some(config) => server.listen_rustls_0_23(listener, config),
            None => server.listen(listener),
        };
        tokio::spawn(server.expect("listening").run());
        Self {
            url: format!("{scheme}://{address}"),
            authority: kept,
            asked,
            refusal,
        }
    }

    fn asked(&self) -> usize {
        self.asked.lock().expect("lock").len()
    }
}

type Parts = (
    Arc<Authority>,
    Arc<Mutex<Vec<EnrolRequest>>>,
    Arc<Mutex<Option<ErrorCode>>>,
);

async fn enrol(body: web::Json<EnrolRequest>, parts: web::Data<Parts>) -> HttpResponse {
    let (authority, asked, refusal) = parts.get_ref();
    asked.lock().expect("lock").push(body.clone());
    if let Some(code) = refusal.lock().expect("lock").take() {
        let problem = Problem::new(code, "no");
        return HttpResponse::Forbidden().json(problem);
    }
    HttpResponse::Ok().json(answer(authority, &body))
}

/// Issues the next certificate if the request is signed with the key that joined first.
async fn renew(body: web::Json<RenewRequest>, parts: web::Data<Parts>) -> HttpResponse {
    let (authority, asked, _) = parts.get_ref();
    let csr = asked.lock().expect("lock")[0].csr.clone();
    let key = PublicKey::of_request(&csr).expect("a request");
    let text = RenewRequest::signed_text(&body.serial, body.at, &body.addresses);
    if !key.verifies(&text, &body.signature) {
        let problem = Problem::new(ErrorCode::CertificateRefused, "the signature");
        return HttpResponse::Forbidden().json(problem);
    }
    HttpResponse::Ok().json(RenewResponse {
        identity: issue(authority, "n-1", &key, now().get()),
        node_token: "fdn-node.n-1.next".to_owned(),
        seeds: Vec::new(),
    })
}

/// A certificate that is valid for 30 days from `at`.
fn issue(authority: &Authority, node: &str, key: &PublicKey, at: u64) -> IssuedCertificate {
    let subject = Subject {
        bearer: Bearer::Machine(
            format!("fdn://cluster/eu-1/node/{node}")
                .parse()
                .expect("an identity"),
        ),
        addresses: vec!["127.0.0.1".parse().expect("address")],
        names: Vec::new(),
    };
    let (issued_at, expires_at) = (Timestamp(at), Timestamp(at + 30 * DAY));
    let issued = authority
        .issue(&subject, key, issued_at, expires_at)
        .expect("issued");
    IssuedCertificate {
        certificate: issued.certificate,
        serial: issued.serial,
        issued_at,
        expires_at,
        authorities: vec![authority.certificate().to_owned()],
    }
}

fn answer(authority: &Authority, request: &EnrolRequest) -> EnrolResponse {
    let key = PublicKey::of_request(&request.csr).expect("a request");
    EnrolResponse {
        node: request.node.clone(),
        cluster: "eu-1".parse().expect("cluster"),
        region: "eu".parse().expect("region"),
        location: fdn_core::GeoPoint::new(53.0, -6.0).expect("position"),
        identity: issue(authority, request.node.as_str(), &key, now().get()),
        node_token: "fdn-node.n-1.secret".to_owned(),
        controllers: vec![":8601".to_owned(), "c2.example.org:8601".to_owned()],
        seeds: Vec::new(),
        revision: Revision(7),
    }
}

fn args(api: &FakeApi, folder: &TempDir) -> JoinArgs {
    let token = folder.path().join("token");
    let text = JoinToken::new(JoinTokenId::from_uuid(Uuid::from_u128(1)), &"ab".repeat(32));
    std::fs::write(&token, text.expect("a token").expose() + "\n").expect("written");
    JoinArgs {
        url: api.url.clone(),
        token_file: token,
        ca_file: None,
        proxy: None,
        node: Some("n-1".parse().expect("node")),
        cluster: None,
        region: None,
        data: folder.path().join("data"),
        config: folder.path().join("etc/agent.toml"),
        address: None,
        gateway_port: 8080,
        admin_port: 8081,
        peer_port: 8082,
        no_peers: false,
        stage_port: Some(8083),
        controller_port: 8444,
        names: Vec::new(),
        again: false,
        allow_plain_http: false,
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("there").permissions().mode() & 0o777
}

#[tokio::test]
async fn a_machine_joins_a_controller_of_a_private_authority() {
    let folder = tempfile::tempdir().expect("folder");
    let end = Timestamp(now().get() + DAY);
    let private = Authority::create(now(), end).expect("an authority");
    let api = FakeApi::open_secure(&private, &folder).await;
    let mut args = args(&api, &folder);
    let refused = join(&args, now()).await.expect_err("the web's authorities");
    assert_eq!(refused.code(), ErrorCode::ControllerUnreachable);
    assert!(refused.to_string().contains("UnknownIssuer"), "{refused}");
    let file = folder.path().join("private.pem");
    std::fs::write(&file, "nothing of the kind").expect("written");
    args.ca_file = Some(file.clone());
    let refused = join(&args, now()).await.expect_err("no authority");
    assert!(refused.to_string().contains("private.pem"), "{refused}");
    assert_eq!(api.asked(), 0);

    std::fs::write(&file, private.certificate()).expect("written");
    join(&args, now()).await.expect("let in");
    // The given file may go: renewal uses the copy.
    std::fs::remove_file(&file).expect("removed");
    let settings: Settings =
        fdn_service::config::load(Some(&args.config), &[]).expect("a configuration");
    let kept = settings.controller.ca_file.expect("kept");
    assert_eq!(kept, Identity::below(&args.data).api_ca);
    let text = std::fs::read_to_string(&kept).expect("there");
    assert_eq!(text, private.certificate());
    let access = ApiAccess {
        ca_file: Some(kept),
        proxy: None,
    };
    Controller::new(&settings.controller.url, access).expect("a controller");
}

#[tokio::test]
async fn a_machine_that_has_joined_takes_other_authorities_of_the_api() {
    let folder = tempfile::tempdir().expect("folder");
    let end = Timestamp(now().get() + DAY);
    let private = Authority::create(now(), end).expect("an authority");
    let api = FakeApi::open_secure(&private, &folder).await;
    let mut args = args(&api, &folder);
    let file = folder.path().join("private.pem");
    std::fs::write(&file, private.certificate()).expect("written");
    args.ca_file = Some(file.clone());
    join(&args, now()).await.expect("let in");
    // As if the copy was lost, or the API had a certificate of another authority by now.
    let kept = Identity::below(&args.data).api_ca;
    std::fs::remove_file(&kept).expect("removed");
    let next = Authority::create(now(), end).expect("an authority");
    std::fs::write(&file, next.certificate()).expect("written");
    let again = join(&args, now()).await.expect("nothing is asked");
    assert!(matches!(&again, Joined::Before(summary) if summary.unnamed.is_none()));
    let text = std::fs::read_to_string(&kept).expect("there");
    assert_eq!(text, next.certificate());
    assert_eq!(api.asked(), 1);
    // A configuration that names none, like that of a machine that joined without one.
    let written = std::fs::read_to_string(&args.config).expect("read");
    let without = written.lines().filter(|line| !line.starts_with("ca_file"));
    let without: Vec<&str> = without.collect();
    assert!(without.len() < written.lines().count(), "{written}");
    std::fs::write(&args.config, without.join("\n")).expect("written");
    let again = join(&args, now()).await.expect("nothing is asked");
    assert!(matches!(&again, Joined::Before(summary) if summary.unnamed.as_ref() == Some(&kept)));
}

#[tokio::test]
async fn a_machine_joins_once_and_its_key_stays_with_it() {
    let (api, folder) = (FakeApi::open().await, tempfile::tempdir().expect("folder"));
    let args = args(&api, &folder);
    let joined = join(&args, now()).await.expect("let in");
    assert!(matches!(&joined, Joined::New(summary)
        if summary.facts.identity.to_string() == "fdn://cluster/eu-1/node/n-1"));
    let identity = Identity::below(&args.data);
    for path in [&identity.key, &identity.token] {
        assert_eq!(mode(path), 0o600, "{}", path.display());
    }
    let sent = serde_json::to_string(&api.asked.lock().expect("lock")[0]).expect("JSON");
    assert!(!sent.contains("PRIVATE"));
    let settings: Settings =
        fdn_service::config::load(Some(&args.config), &[]).expect("a configuration");
    settings.check().expect("it can work");
    assert_eq!(
        (settings.node.as_str(), settings.cluster.as_str()),
        ("n-1", "eu-1")
    );
    assert_eq!(settings.gateway.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(settings.tls.key.as_ref(), Some(&identity.key));
    assert_eq!(
        settings.centre.controllers,
        ["127.0.0.1:8601", "c2.example.org:8601"]
    );
    let peers = settings.peers.cluster(&settings.tls, &settings.gateway);
    assert!(settings.peers.enabled && peers.tls.is_some());
    assert_eq!(peers.listen.to_string(), "127.0.0.1:8082");
    let text = std::fs::read_to_string(&args.config).expect("read");
    assert!(!text.contains("secret\"") && !text.contains(&"ab".repeat(32)));

    let again = join(&args, now()).await.expect("nothing to do");
    assert!(matches!(again, Joined::Before(_)));
    assert_eq!(api.asked(), 1, "the controller was not asked again");
}

#[tokio::test]
async fn a_machine_takes_part_in_its_cluster_unless_it_is_told_not_to() {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        join: JoinArgs,
    }
    let (api, folder) = (FakeApi::open().await, tempfile::tempdir().expect("folder"));
    let given = args(&api, &folder);
    let typed = |more: &[&str]| {
        let token = given.token_file.display().to_string();
        let words = ["join", &api.url, "--node", "n-1", "--token-file", &token];
        let line = <Line as clap::Parser>::try_parse_from(words.iter().chain(more));
        line.map(|line| line.join)
    };
    for (name, more, expected) in [
        ("all", &[][..], Some("127.0.0.1:8443")),
        ("chosen", &["--peer-port", "9"], Some("127.0.0.1:9")),
        ("none", &["--no-peers"], None),
    ] {
        let mut args = typed(more).expect("arguments");
        args.data = folder.path().join(name);
        args.config = folder.path().join(format!("{name}.toml"));
        join(&args, now()).await.expect("let in");
        let expected = expected.map(|address| address.parse().expect("address"));
        let told = api
            .asked
            .lock()
            .expect("lock")
            .last()
            .map(|asked| asked.addresses.peer);
        assert_eq!(told, Some(expected), "{name}: what the others are told");
        let settings: Settings =
            fdn_service::config::load(Some(&args.config), &[]).expect("a configuration");
        settings.check().expect("it can work");
        let listens = settings.peers.address(&settings.tls, &settings.gateway);
        assert_eq!(listens, expected, "{name}: where it listens");
    }
    assert!(typed(&["--no-peers", "--peer-port", "9"]).is_err());
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_with_the_same_key() {
    let (api, folder) = (FakeApi::open().await, tempfile::tempdir().expect("folder"));
    let args = args(&api, &folder);
    join(&args, now()).await.expect("let in");
    let identity = Identity::below(&args.data);
    let key = std::fs::read(&identity.key).expect("read");
    // As after a crash before the certificate was written, with a configuration that was edited since.
    std::fs::remove_file(&identity.certificate).expect("removed");
    let edited =
        std::fs::read_to_string(&args.config).expect("read") + "\n[log]\nfilter = \"debug\"\n";
    std::fs::write(&args.config, &edited).expect("written");
    assert!(matches!(
        join(&args, now()).await.expect("let in"),
        Joined::New(_)
    ));
    assert_eq!(std::fs::read(&identity.key).expect("read"), key);
    assert_eq!(std::fs::read_to_string(&args.config).expect("read"), edited);
}

#[tokio::test]
async fn a_certificate_that_ended_or_was_revoked_is_no_reason_to_stay_out() {
    let (api, folder) = (FakeApi::open().await, tempfile::tempdir().expect("folder"));
    let args = args(&api, &folder);
    let Joined::New(first) = join(&args, now()).await.expect("let in") else {
        panic!("it was new");
    };
    let late = Timestamp(now().get() + 31 * DAY);
    assert!(matches!(
        join(&args, late).await.expect("let in"),
        Joined::New(_)
    ));
    let identity = Identity::below(&args.data);
    let serial = identity.facts().expect("read").expect("there").serial;
    assert_ne!(serial, first.facts.serial);
    let state = args.data.join("state");
    std::fs::create_dir_all(&state).expect("made");
    let fleet = serde_json::json!({ "revision": 3, "cordoned": [], "authorities": [],
        "revoked": [{ "serial": serial, "node": "n-1", "expires_at": 1 }] });
    std::fs::write(state.join("fleet.json"), fleet.to_string()).expect("written");
    assert!(matches!(
        join(&args, now()).await.expect("let in"),
        Joined::New(_)
    ));
    let again = JoinArgs {
        again: true,
        ..args.clone()
    };
    assert!(matches!(
        join(&again, now()).await.expect("let in"),
        Joined::New(_)
    ));
    assert_eq!(api.asked(), 4);
}

#[tokio::test]
async fn what_stands_in_the_way_is_said_and_nothing_is_overwritten() {
    let (api, folder) = (FakeApi::open().await, tempfile::tempdir().expect("folder"));
    let args = args(&api, &folder);
    let code = async |args: &JoinArgs| {
        let error = join(args, now()).await.expect_err("refused");
        error.code()
    };
    *api.refusal.lock().expect("lock") = Some(ErrorCode::JoinTokenUsedUp);
    assert_eq!(code(&args).await, ErrorCode::JoinTokenUsedUp);
    assert!(!args.config.exists());
    let other = |change: fn(&mut JoinArgs)| {
        let mut args = args.clone();
        change(&mut args);
        args
    };
    let far = other(|a| a.url = "http://controller.example.org".to_owned());
    assert_eq!(code(&far).await, ErrorCode::JoinInsecure);
    let nobody = other(|a| a.url = "http://127.0.0.1:1".to_owned());
    assert_eq!(code(&nobody).await, ErrorCode::ControllerUnreachable);
    for bad in ["127.0.0.1", "ftp://x", "http://user:pass@127.0.0.1"] {
        let mut args = args.clone();
        args.url = bad.to_owned();
        assert_eq!(code(&args).await, ErrorCode::InputInvalid, "{bad}");
    }
    let nowhere = other(|a| a.address = Some([0, 0, 0, 0].into()));
    assert_eq!(code(&nowhere).await, ErrorCode::ConfigInvalid);
    std::fs::write(&args.token_file, "not a token").expect("written");
    assert_eq!(code(&args).await, ErrorCode::InputInvalid);
    std::fs::create_dir_all(args.config.parent().expect("a folder")).expect("made");
    std::fs::write(&args.config, "node = \"someone-else\"\n").expect("written");
    assert_eq!(code(&args).await, ErrorCode::ConfigInvalid);
    let kept = std::fs::read_to_string(&args.config).expect("read");
    assert_eq!(kept, "node = \"someone-else\"\n");
}

#[tokio::test]
async fn one_folder_is_one_node() {
    let (api, folder) = (FakeApi::open().await, tempfile::tempdir().expect("folder"));
    let args = args(&api, &folder);
    join(&args, now()).await.expect("let in");
    let other = JoinArgs {
        node: Some("n-2".parse().expect("node")),
        config: folder.path().join("other.toml"),
        ..args
    };
    let error = join(&other, now()).await.expect_err("refused");
    assert_eq!(error.code(), ErrorCode::NodeNameTaken);
    assert!(error.to_string().contains("n-1"), "{error}");
}

/// A centre to which no controller is connected.
struct Away;

#[async_trait::async_trait]
impl ControllerLink for Away {
    async fn send(
        &self,
        _request: http::Request<bytes::Bytes>,
    ) -> Result<http::Response<Body>, LinkError> {
        Err(LinkError::NotConnected)
    }
}

#[tokio::test]
async fn a_certificate_is_replaced_when_it_is_time() {
    let (api, folder) = (FakeApi::open().await, tempfile::tempdir().expect("folder"));
    let args = args(&api, &folder);
    join(&args, now()).await.expect("let in");
    let settings: Settings =
        fdn_service::config::load(Some(&args.config), &[]).expect("a configuration");
    let identity = Identity::below(&args.data);
    let state = args.data.join("state");
    let node = settings.node.clone();
    let fleet = crate::fleet::Fleet::open(state, node, settings.tls.clone()).expect("opened");
    let fleet = Arc::new(fleet);
    let expires = prometheus::IntGauge::new("expires", "ends").expect("a gauge");
    let told = Arc::clone(&fleet);
    let mut renewer = Renewer::new(RenewParts {
        controllers: Arc::new(Away),
        answer_timeout: std::time::Duration::from_secs(60),
        controller: Some(Controller::new(&api.url, ApiAccess::default()).expect("an address")),
        files: settings.tls.files().expect("all are named"),
        retry: settings.tls.renew_retry,
        retry_max: settings.tls.renew_retry_max,
        token_file: settings.network.token_file.clone(),
        addresses: NodeAddresses {
            gateway: settings.gateway.listen,
            admin: settings.admin.listen,
            peer: None,
            names: Vec::new(),
        },
        renewed: Box::new(move |serial, authorities| told.renewed(serial.to_owned(), authorities)),
        expires: expires.clone(),
    });
    let serial = || identity.facts().expect("read").expect("there").serial;
    let first = serial();
    renewer.step().await;
    assert_eq!(serial(), first, "it is not time");

    // 21 of the certificate's 30 days are over.
    let key = NodeKey::read(&identity.key).expect("a key").public();
    let old = issue(&api.authority, "n-1", &key, now().get() - 21 * DAY);
    std::fs::write(&identity.certificate, &old.certificate).expect("written");
    renewer.step().await;
    assert!(![&first, &old.serial].contains(&&serial()));
    assert_eq!(fleet.view().serial(), Some(serial().as_str()));
    let token = std::fs::read_to_string(&identity.token).expect("read");
    assert_eq!(token, "fdn-node.n-1.next");
    let facts = identity.facts().expect("read").expect("there");
    assert_eq!(
        expires.get(),
        i64::try_from(facts.expires_at.get() / 1000).expect("small")
    );

    // With a key that the controller does not know, the certificate stays and renewal is tried again.
    std::fs::write(&identity.certificate, &old.certificate).expect("written");
    std::fs::remove_file(&identity.key).expect("removed");
    NodeKey::read_or_create(&identity.key).expect("another key");
    let wait = renewer.step().await;
    assert_eq!(serial(), old.serial);
    assert!(wait <= settings.tls.renew_retry.as_duration());
}
