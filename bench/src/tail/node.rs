//! A node in a process of its own on the first core, with TLS, and the controller that it joined in this process: nothing but gateway and functions is
//! in what is measured, and its memory is the node's alone.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use fdn_bus::{Limits, MemoryBroker};
use fdn_controller::Controller;
use fdn_core::ByteSize;
use fdn_testkit::ports;
use fdn_testkit::process::Process;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::CertificateDer;
use tempfile::TempDir;

use super::connection::{Connection, Http};
use crate::gateway::pinned;
use crate::response::fleet::{fdn, run};
use crate::{Options, machines};

/// Where the node listens.
const IP: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 1);
const NODE: &str = "tail-1";
const CLUSTER: &str = "tail";
/// How long a part of the network may take to be there.
const READY: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(50);
/// The largest body in MiB: more than is streamed.
const BODY_MIB: u64 = 2048;

pub(super) struct Node {
    // Ends before what it needs.
    process: Process,
    controller: Controller,
    folder: TempDir,
    binaries: PathBuf,
    pub(super) gateway: SocketAddr,
    /// The same with TLS.
    pub(super) secure: SocketAddr,
    pub(super) certificate: Certificate,
}

/// A certificate for all apps.
pub(super) struct Certificate {
    pub(super) file: PathBuf,
    pub(super) key_file: PathBuf,
    pub(super) authority: CertificateDer<'static>,
}

impl Certificate {
    fn issue(folder: &Path) -> Result<Self> {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let params = CertificateParams::new(vec!["*.fn.test".to_owned()])?;
        let signed = params.signed_by(&key, &authority)?;
        let certificate = Self {
            file: folder.join("gateway.crt"),
            key_file: folder.join("gateway.key"),
            authority: authority.der().clone(),
        };
        std::fs::write(&certificate.file, signed.pem())?;
        std::fs::write(&certificate.key_file, key.serialize_pem())?;
        Ok(certificate)
    }
}

impl Node {
    /// Starts controller and node.
    pub(super) async fn start(options: &Options) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("fdn-tail-").tempdir()?;
        let certificate = Certificate::issue(folder.path())?;
        let mut settings = machines::settings(folder.path());
        settings.bounds.body = ByteSize::from_mib(BODY_MIB);
        let broker = Arc::new(MemoryBroker::new(Limits::default()));
        let controller =
            Controller::start_with(settings, broker, fdn_runtime::Compiler::InProcess).await?;
        let port = || ports::free(&[IpAddr::V4(IP)]);
        let (gateway, secure) = (port(), port());
        let place = Place {
            folder: folder.path(),
            binaries: &options.binaries,
        };
        let ports = [gateway, secure, port(), port()];
        let process = place.begin(&controller, &certificate, ports)?;
        let mut node = Self {
            process,
            controller,
            binaries: options.binaries.clone(),
            gateway: SocketAddr::from((IP, gateway)),
            secure: SocketAddr::from((IP, secure)),
            certificate,
            folder,
        };
        let begin = Instant::now();
        while tokio::net::TcpStream::connect(node.gateway).await.is_err() {
            node.still_runs()?;
            ensure!(begin.elapsed() < READY, "the node does not listen");
            tokio::time::sleep(PAUSE).await;
        }
        Ok(node)
    }

    fn still_runs(&mut self) -> Result<()> {
        if let Some(status) = self.process.ended() {
            bail!("the node ended with {status}: {}", self.process.log());
        }
        Ok(())
    }

    /// The process's id: the node's own, as `setpriv` and `taskset` make way for it.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// A folder for files of the benchmark.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Deploys a component with a manifest and waits until the gateway answers for it.
    pub(super) async fn deploy(
        &mut self,
        app: &str,
        component: &Path,
        manifest: &str,
    ) -> Result<()> {
        let path = self.folder.path().join(format!("{app}.toml"));
        std::fs::write(&path, manifest)?;
        let (component, manifest) = (component.display().to_string(), path.display().to_string());
        let deploy = ["deploy", app, &component, "--manifest", &manifest];
        fdn(&self.binaries, self.folder.path(), &deploy)?;
        let begin = Instant::now();
        while let Err(error) = self.answers(app).await {
            self.still_runs()?;
            ensure!(begin.elapsed() < READY, "{app} is not ready: {error:#}");
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    async fn answers(&self, app: &str) -> Result<()> {
        let mut connection = Connection::open(self.gateway, Http::One, None).await?;
        connection.get(&host(app)).await
    }

    pub(super) async fn stop(mut self) -> Result<()> {
        let ended = self.process.stop(READY);
        self.controller.stop().await;
        ended.map(drop)
    }
}

/// The host name of an app.
pub(super) fn host(app: &str) -> String {
    format!("{app}.fn.test")
}

/// Where programs and files are.
struct Place<'a> {
    folder: &'a Path,
    binaries: &'a Path,
}

impl Place<'_> {
    /// Lets the machine in and starts it, with ports for gateway, TLS, operators and controllers.
    fn begin(
        &self,
        controller: &Controller,
        certificate: &Certificate,
        [gateway, secure, admin, controllers]: [u16; 4],
    ) -> Result<Process> {
        let api = format!("http://{}", controller.address());
        let password = self.folder.join("password").display().to_string();
        let login = ["login", &api, "--user", "admin", "--password-file"];
        self.fdn(&[&login[..], &[&password]].concat())?;
        let cluster = ["cluster", "create", CLUSTER, "--region", CLUSTER];
        self.fdn(&[&cluster[..], &["--location", "53.35,-6.26"]].concat())?;
        let token = self.folder.join("node.token");
        std::fs::write(&token, self.fdn(&["node", "token", "--cluster", CLUSTER])?)?;
        let (program, config) = (
            self.binaries.join("fdn-edge-agent"),
            self.folder.join("node.toml"),
        );
        let mut join = Command::new(&program);
        join.args(["join", &api, "--node", NODE, "--no-peers"])
            .arg("--token-file")
            .arg(&token)
            .arg("--data")
            .arg(self.folder.join("node"))
            .arg("--config")
            .arg(&config)
            .args(["--address", &IP.to_string()])
            .args(["--gateway-port", &gateway.to_string()])
            .args(["--admin-port", &admin.to_string()])
            .args(["--controller-port", &controllers.to_string()]);
        run(join)?;
        let tls = format!(
            "\n[gateway.tls]\nlisten = \"{IP}:{secure}\"\n[[gateway.tls.certificates]]\ncertificate_file = \"{}\"\nkey_file = \"{}\"\n",
            certificate.file.display(),
            certificate.key_file.display()
        );
        let joined = std::fs::read_to_string(&config)?;
        std::fs::write(&config, joined + &tls)?;
        let args = vec!["--config".to_owned(), config.display().to_string()];
        pinned(&program, args)
            .env("FDN_LOG", "warn")
            .env("FDN_DEVICES__ENABLED", "false")
            .env("FDN_GATEWAY__BODY_LIMIT", format!("{BODY_MIB}MiB"))
            .start(&self.folder.join("node.log"))
    }

    fn fdn(&self, args: &[&str]) -> Result<String> {
        fdn(self.binaries, self.folder, args)
    }
}
