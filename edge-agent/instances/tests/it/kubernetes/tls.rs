//! The API server as in practice: behind TLS, with a certificate of the cluster's own authority, and if it requires one, a client certificate.
//!
//! The simulated server uses plain HTTP; a proxy in front of it terminates TLS and requests certificates.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fdn_instances::Runtime;
use fdn_instances::kubernetes::{Access, KubernetesOptions, KubernetesRuntime};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    SanType,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::{GRACE, NAMESPACE, NODE, Pods, image_named};
use crate::subject::{Program, ask, owner, spec};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    CertifiedIssuer::self_signed(params, key).expect("a certificate")
}

/// A certificate and its key, as files.
struct Identity {
    certificate: PathBuf,
    key: PathBuf,
}

fn identity(folder: &Path, name: &str, ca: &Authority, usage: ExtendedKeyUsagePurpose) -> Identity {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST))];
    params.extended_key_usages = vec![usage];
    let signed = params.signed_by(&key, ca).expect("a certificate");
    Identity {
        certificate: written(folder, &format!("{name}.pem"), &signed.pem()),
        key: written(folder, &format!("{name}.key"), &key.serialize_pem()),
    }
}

fn written(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("written");
    path
}

/// Terminates TLS in front of a plain server. With `clients`, only for clients with a certificate of that authority.
struct Doorkeeper {
    address: SocketAddr,
    let_in: Arc<AtomicUsize>,
}

impl Doorkeeper {
    async fn start(plain: SocketAddr, own: &Identity, clients: Option<&Authority>) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("the provider knows them");
        let builder = match clients {
            Some(ca) => {
                let mut roots = RootCertStore::empty();
                roots.add(ca.der().clone()).expect("an authority");
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.expect("an authority"))
            }
            None => builder.with_no_client_auth(),
        };
        let certificate = CertificateDer::from_pem_file(&own.certificate).expect("PEM");
        let key = PrivateKeyDer::from_pem_file(&own.key).expect("PEM");
        let config = builder.with_single_cert(vec![certificate], key);
        let acceptor = TlsAcceptor::from(Arc::new(config.expect("they belong together")));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("bound");
        let let_in = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&let_in);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, count) = (acceptor.clone(), Arc::clone(&count));
                tokio::spawn(async move {
                    let Ok(mut inside) = acceptor.accept(stream).await else {
                        return;
                    };
                    count.fetch_add(1, Ordering::SeqCst);
                    if let Ok(mut server) = TcpStream::connect(plain).await {
                        drop(copy_bidirectional(&mut inside, &mut server).await);
                    }
                });
            }
        });
        Self { address, let_in }
    }
}

/// The test cluster's kubeconfig with another server and other credentials.
fn kubeconfig(pods: &Pods, name: &str, server: SocketAddr, ca: &Path, user: &Value) -> PathBuf {
    let folder = pods.folder.path();
    let text = std::fs::read_to_string(folder.join("kubeconfig")).expect("it was written");
    let mut config: Value = serde_json::from_str(&text).expect("it is JSON");
    config["clusters"][0]["cluster"] =
        json!({ "server": format!("https://{server}"), "certificate-authority": ca });
    let known = config["users"][0]["user"].as_object_mut().expect("a user");
    known.extend(user.as_object().cloned().unwrap_or_default());
    written(folder, name, &config.to_string())
}

/// The address of the simulated server, according to its own kubeconfig.
fn plain(pods: &Pods) -> SocketAddr {
    let path = pods.folder.path().join("kubeconfig");
    let text = std::fs::read_to_string(path).expect("it was written");
    let config: Value = serde_json::from_str(&text).expect("it is JSON");
    let server = config["clusters"][0]["cluster"]["server"].as_str();
    let address = server.and_then(|url| url.strip_prefix("http://"));
    address.and_then(|text| text.parse().ok()).expect("a URL")
}

async fn connect(path: PathBuf) -> Result<KubernetesRuntime, fdn_instances::RuntimeError> {
    let options = KubernetesOptions {
        access: Access::Kubeconfig {
            path,
            context: None,
        },
        namespace: NAMESPACE.to_owned(),
        node: NODE.to_owned(),
        network_policies: true,
        attempts: 1,
        ..KubernetesOptions::default()
    };
    KubernetesRuntime::connect(owner(), options).await
}

/// Starts, calls and stops an instance: requests, the watch, logs.
async fn serves(runtime: &KubernetesRuntime) {
    let starting = runtime.start(spec(image_named("probe"), Program::Hello));
    let instance = starting.await.expect("it starts");
    assert_eq!(ask(&*instance, "/hello").await, "hello");
    instance.stop(GRACE).await.expect("it stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_the_clusters_own_authority_is_trusted_and_no_other() {
    let pods = Pods::new().await;
    let (ca, stranger) = (authority(), authority());
    let folder = pods.folder.path().to_owned();
    let known = written(&folder, "ca.pem", &ca.pem());
    let other = written(&folder, "other.pem", &stranger.pem());
    let own = identity(&folder, "server", &ca, ExtendedKeyUsagePurpose::ServerAuth);
    let door = Doorkeeper::start(plain(&pods), &own, None).await;
    let config = |name, ca: &Path| kubeconfig(&pods, name, door.address, ca, &json!({}));
    let runtime = connect(config("trusted", &known)).await;
    serves(&runtime.expect("its authority signed the server")).await;
    let let_in = door.let_in.load(Ordering::SeqCst);
    assert!(let_in > 0, "it went this way");
    let refused = connect(config("strange", &other)).await;
    assert!(refused.is_err(), "somebody else's authority");
    assert_eq!(
        door.let_in.load(Ordering::SeqCst),
        let_in,
        "no token was shown to a server that is not known"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_wants_a_certificate_gets_the_agents() {
    let pods = Pods::new().await;
    let (ca, clients) = (authority(), authority());
    let folder = pods.folder.path().to_owned();
    let known = written(&folder, "ca.pem", &ca.pem());
    let own = identity(&folder, "server", &ca, ExtendedKeyUsagePurpose::ServerAuth);
    let client = ExtendedKeyUsagePurpose::ClientAuth;
    let agent = identity(&folder, "agent", &clients, client.clone());
    let strange = identity(&folder, "strange", &ca, client);
    let door = Doorkeeper::start(plain(&pods), &own, Some(&clients)).await;
    let with = |name, identity: Option<&Identity>| {
        let user = identity.map_or_else(
            || json!({}),
            |one| json!({ "client-certificate": one.certificate, "client-key": one.key }),
        );
        kubeconfig(&pods, name, door.address, &known, &user)
    };
    let runtime = connect(with("own", Some(&agent))).await;
    serves(&runtime.expect("it shows its certificate")).await;
    let let_in = door.let_in.load(Ordering::SeqCst);
    for (name, identity) in [("none", None), ("strange", Some(&strange))] {
        assert!(connect(with(name, identity)).await.is_err(), "{name}");
    }
    assert_eq!(door.let_in.load(Ordering::SeqCst), let_in);
}
