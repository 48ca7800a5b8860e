//! The network as separate processes: controller, DNS and agents on a real PostgreSQL and RabbitMQ. Settings are the shipped ones, except for those that make
//! many clusters of one machine: few slots, each node's own speed, calls that wait as long as they must, every cluster holding every app, and no
//! measured round trips (on this machine all are nothing), so that plans go by the distance, which is what the relays emulate.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fdn_testkit::postgres::PostgresServer;
use fdn_testkit::process::{Process, Program};
use fdn_testkit::rabbitmq::RabbitServer;
use fdn_testkit::{components, dns, ports};
use rustix::process::Signal;
use tempfile::TempDir;

use super::site::{PLACES, SITES, Site, gateway, nodes, one_way, subnet};
use super::steer::Waiting;

/// The zone of the apps.
pub(crate) const ZONE: &str = "fn.test";
/// How long a part of the network may take to be there.
const READY: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(100);

/// The network. Its processes end before what they need.
pub(crate) struct Fleet {
    agents: Vec<Agent>,
    /// Controller and DNS.
    centre: Vec<Process>,
    rabbit: RabbitServer,
    postgres: PostgresServer,
    folder: TempDir,
    binaries: PathBuf,
    api: SocketAddr,
    edge: SocketAddr,
    /// Where DNS answers.
    pub(crate) dns: SocketAddr,
    /// The port of all gateways.
    pub(crate) gateway_port: u16,
    admin_port: u16,
    /// The apps that were deployed.
    apps: Vec<String>,
    /// What nodes do with calls that would wait.
    waiting: Waiting,
    client: reqwest::Client,
}

struct Agent {
    at: (usize, usize),
    process: Option<Process>,
}

/// The host name of an app.
pub(crate) fn host(app: &str) -> String {
    format!("{app}.{ZONE}")
}

fn name_of((site, node): (usize, usize)) -> String {
    format!("{}-{}", SITES[site].name, node + 1)
}

impl Fleet {
    /// Starts all of it, with calls that wait like this.
    pub(crate) async fn start(binaries: &Path, waiting: Waiting) -> Result<Self> {
        let addresses: Vec<IpAddr> = nodes().map(|(s, n)| IpAddr::V4(gateway(s, n))).collect();
        let local = || SocketAddr::from((Ipv4Addr::LOCALHOST, ports::local()));
        let mut fleet = Self {
            agents: Vec::new(),
            centre: Vec::new(),
            rabbit: RabbitServer::start().await?,
            postgres: PostgresServer::start().await?,
            folder: tempfile::Builder::new().prefix("fdn-response-").tempdir()?,
            binaries: binaries.to_owned(),
            api: local(),
            edge: local(),
            dns: local(),
            gateway_port: ports::free(&addresses),
            admin_port: ports::free(&addresses),
            apps: Vec::new(),
            waiting,
            client: fdn_service::http_client::build(READY)?,
        };
        fleet.begin_centre().await?;
        for at in nodes() {
            fleet.join(at)?;
            fleet.agents.push(Agent { at, process: None });
        }
        fleet.begin_agents().await?;
        Ok(fleet)
    }

    async fn begin_centre(&mut self) -> Result<()> {
        for name in ["network.token", "network.key", "admin.password"] {
            fdn_service::secret::read_or_create(&self.path(name))?;
        }
        let database = self.postgres.database()?.url;
        self.write("controller.toml", &self.controller_settings(&database)?)?;
        self.write("dns.toml", &self.dns_settings())?;
        self.centre
            .push(self.spawn("fdn-controller", "controller")?);
        let api = format!("http://{}", self.api);
        let password = self.path("admin.password").display().to_string();
        let login = [
            "login",
            &api,
            "--user",
            "admin",
            "--password-file",
            &password,
        ];
        let begin = Instant::now();
        while let Err(error) = self.fdn(&login) {
            ensure!(begin.elapsed() < READY, "nobody can log in: {error:#}");
            tokio::time::sleep(PAUSE).await;
        }
        for site in SITES {
            let (lat, lon) = site.location;
            self.create_cluster(site.name, &format!("{lat},{lon}"))?;
        }
        self.create_cluster("names", "0,0")?;
        let token = self.fdn(&["dns", "token", "--cluster", "names"])?;
        self.write("dns.token", &token)?;
        let mut join = Command::new(self.binaries.join("fdn-dns"));
        join.args(["join", &api, "--token-file"])
            .arg(self.path("dns.token"))
            .arg("--config")
            .arg(self.path("dns.toml"));
        run(join)?;
        self.centre.push(self.spawn("fdn-dns", "dns")?);
        Ok(())
    }

    fn create_cluster(&self, name: &str, location: &str) -> Result<()> {
        let region = ["--region", name, "--location", location];
        let args: Vec<&str> = ["cluster", "create", name]
            .into_iter()
            .chain(region)
            .collect();
        self.fdn(&args).map(drop)
    }

    fn controller_settings(&self, database: &str) -> Result<String> {
        let path = self.folder.path().display();
        let mut text = format!(
            "listen = \"{}\"\nzone = \"{ZONE}\"\ndns = \"{}\"\ngateway_port = {}\n[edge]\nlisten = \"{}\"\n\
             [network]\ntoken_file = \"{path}/network.token\"\nkey_file = \"{path}/network.key\"\n\
             [broker]\nurl = \"{}\"\nnamespace = \"response\"\n[database]\nurl = \"{database}\"\n\
             [artifacts]\nlocal = \"{path}/artifacts\"\n[accounts]\ninitial_password_file = \"{path}/admin.password\"\n\
             [planner]\nspread = 0\n",
            self.api,
            self.dns,
            self.gateway_port,
            self.edge,
            self.rabbit.url()
        );
        for (at, place) in PLACES.iter().enumerate() {
            let (lat, lon) = place.location;
            let prefix = subnet(at);
            writeln!(
                text,
                "[[geo.locations]]\nprefix = \"{prefix}\"\nlat = {lat}\nlon = {lon}"
            )?;
        }
        Ok(text)
    }

    fn dns_settings(&self) -> String {
        let path = self.folder.path().display();
        let admin = ports::local();
        format!(
            "server = \"dns\"\nlisten = [\"{}\"]\ndata_dir = \"{path}/dns\"\nadmin = \"127.0.0.1:{admin}\"\n[zone]\nname = \"{ZONE}\"\n",
            self.dns
        )
    }

    fn agent_settings(&self, at: (usize, usize)) -> Result<String> {
        let (path, name, ip) = (self.folder.path(), name_of(at), gateway(at.0, at.1));
        let Site {
            name: cluster,
            location: (lat, lon),
            slots,
            speed,
            ..
        } = SITES[at.0];
        let own = path.join(&name);
        let (own, identity) = (own.display(), own.join("identity"));
        let identity = identity.display();
        let mut text = format!(
            "node = \"{name}\"\ncluster = \"{cluster}\"\nregion = \"{cluster}\"\nlocation = {{ lat = {lat}, lon = {lon} }}\n\
             speed = {speed:.2}\ndata = \"{own}\"\n[gateway]\nlisten = \"{ip}:{}\"\nworkers = 1\nkeep_alive = \"10m\"\nhead_timeout = \"10m\"\n\
             [admin]\nlisten = \"{ip}:{}\"\n[workflows]\nenabled = true\nlisten = \"{ip}:0\"\n\
             [controller]\nurl = \"http://{}\"\n[centre]\ncontrollers = [\"{}\"]\n[stop]\ndrain = \"1s\"\n\
             [network]\ntoken_file = \"{identity}/node.token\"\n\
             [tls]\nca = \"{identity}/ca.pem\"\ncertificate = \"{identity}/node.pem\"\nkey = \"{identity}/node.key\"\n\
             [admission]\nslots = {slots}\napp_share = 100\ntenant_share = 100\nwaiting = 16384\nwait = \"2m\"\n\
             [queue]\norder = \"{}\"\nper_function = 16384\n[forward]\ngain = {}\n\
             [reports]\nrtt_interval = \"24h\"\nlinks = 0\n[devices]\nenabled = false\n[runtime]\nheavy_threads = 1\n",
            self.gateway_port,
            self.admin_port,
            self.api,
            self.edge,
            self.waiting.order,
            self.waiting.gain
        );
        // What gateways hand to each other takes the way between them.
        text.push_str("[workflows.emulate_delay]\n");
        for other in SITES.iter().filter(|other| other.name != cluster) {
            let delay = one_way(&SITES[at.0], other)?;
            writeln!(text, "{} = \"{delay}ms\"", other.name)?;
        }
        Ok(text)
    }

    /// Lets a machine in as a node. Its settings are then the benchmark's own.
    fn join(&self, at: (usize, usize)) -> Result<()> {
        let name = name_of(at);
        let token = self.fdn(&["node", "token", "--cluster", SITES[at.0].name])?;
        self.write("node.token", &token)?;
        let mut join = Command::new(self.binaries.join("fdn-edge-agent"));
        join.args(["join", &format!("http://{}", self.api), "--node", &name])
            .arg("--token-file")
            .arg(self.path("node.token"))
            .arg("--data")
            .arg(self.path(&name))
            .arg("--config")
            .arg(self.path(&format!("{name}.toml")))
            .args(["--address", &gateway(at.0, at.1).to_string()])
            .args(["--gateway-port", &self.gateway_port.to_string()])
            .args(["--admin-port", &self.admin_port.to_string()])
            .args(["--peer-port", &ports::local().to_string()]);
        run(join).map(drop)
    }

    fn begin_agent(&mut self, index: usize) -> Result<()> {
        let name = name_of(self.agents[index].at);
        let settings = self.agent_settings(self.agents[index].at)?;
        self.write(&format!("{name}.toml"), &settings)?;
        let process = self.spawn("fdn-edge-agent", &name)?;
        self.agents[index].process = Some(process);
        Ok(())
    }

    async fn begin_agents(&mut self) -> Result<()> {
        for index in 0..self.agents.len() {
            self.begin_agent(index)?;
        }
        self.all_ready().await
    }

    /// Calls wait in another way from now on: all agents are started anew, unless it is the same.
    pub(crate) async fn wait_as(&mut self, waiting: Waiting) -> Result<()> {
        if waiting == self.waiting {
            return Ok(());
        }
        self.waiting = waiting;
        let running = self.agents.iter_mut().filter_map(|one| one.process.take());
        let running: Vec<Process> = running.collect();
        for process in &running {
            process.signal(Signal::TERM)?;
        }
        for mut process in running {
            let status = process.stop(READY)?;
            ensure!(status.success(), "an agent ended with {status}");
        }
        self.begin_agents().await
    }

    /// Kills a node as a power loss would.
    pub(crate) fn kill(&mut self, at: (usize, usize)) {
        for agent in self.agents.iter_mut().filter(|agent| agent.at == at) {
            agent.process = None;
        }
    }

    /// Starts a node that was killed.
    pub(crate) fn revive(&mut self, at: (usize, usize)) -> Result<()> {
        let index = self.agents.iter().position(|agent| agent.at == at);
        self.begin_agent(index.context("no such node")?)
    }

    /// Deploys an app whose calls wait as long as their paths say; `expected`, in ms, is what its owner says of them.
    pub(crate) async fn deploy(&mut self, app: &str, expected: f64) -> Result<()> {
        let (component, manifest) = (self.path("waiting.wasm"), self.path("waiting.toml"));
        std::fs::write(&component, components::waiting())?;
        let text = format!(
            "memory = \"2MiB\"\ncpu_milli = 10\ntimeout = \"3m\"\nreuse = 1000\nexpected = \"{expected:.0}ms\"\n"
        );
        std::fs::write(&manifest, text)?;
        let (component, manifest) = (
            component.display().to_string(),
            manifest.display().to_string(),
        );
        self.fdn(&["deploy", app, &component, "--manifest", &manifest])?;
        self.apps.push(app.to_owned());
        self.all_ready().await
    }

    /// Waits until each gateway serves each app, and DNS answers clients everywhere with all gateways of some cluster.
    pub(crate) async fn all_ready(&mut self) -> Result<()> {
        let begin = Instant::now();
        while let Err(error) = self.is_ready().await {
            for agent in &mut self.agents {
                let ended = agent.process.as_mut().and_then(Process::ended);
                if let Some(status) = ended {
                    bail!("{} ended with {status}", name_of(agent.at));
                }
            }
            ensure!(
                begin.elapsed() < READY,
                "the network is not ready: {error:#}"
            );
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    async fn is_ready(&self) -> Result<()> {
        for at in nodes() {
            self.serves(at).await?;
        }
        for app in &self.apps {
            for place in 0..PLACES.len() {
                let found = dns::addresses(self.dns, &host(app), subnet(place), READY).await?;
                ensure!(found.len() == 2, "{app} from {place}: {found:?}");
            }
        }
        Ok(())
    }

    /// Whether a node serves each app.
    pub(crate) async fn serves(&self, (site, node): (usize, usize)) -> Result<()> {
        let address = SocketAddr::from((gateway(site, node), self.gateway_port));
        tokio::net::TcpStream::connect(address).await?;
        for app in &self.apps {
            let call = self.client.get(format!("http://{address}/0"));
            let status = call.header("host", host(app)).send().await?.status();
            ensure!(status == 200, "{app} at {address}: {status}");
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        std::fs::write(self.path(name), text).with_context(|| format!("writing {name}"))
    }

    fn spawn(&self, program: &str, name: &str) -> Result<Process> {
        let config = self.path(&format!("{name}.toml"));
        let program = Program::new(
            self.binaries.join(program),
            ["--config".as_ref(), config.as_os_str()],
        );
        program
            .env("FDN_LOG", "warn")
            .start(&self.path(&format!("{name}.log")))
    }

    /// The id of the controller's process.
    pub(crate) fn controller(&self) -> Result<u32> {
        let first = self.centre.first().context("no controller runs")?;
        Ok(first.id())
    }

    /// Types a command that must succeed; what it prints.
    pub(crate) fn fdn(&self, args: &[&str]) -> Result<String> {
        fdn(&self.binaries, &self.path("home"), args)
    }
}

/// Types a command of `fdn` that must succeed, which keeps its login below a folder; what it prints.
pub(crate) fn fdn(binaries: &Path, home: &Path, args: &[&str]) -> Result<String> {
    let mut command = Command::new(binaries.join("fdn"));
    command
        .args(args)
        .env("HOME", home)
        .env("XDG_CONFIG_HOME", home.join("config"))
        .env("XDG_DATA_HOME", home.join("data"))
        .env_remove("FDN_CONTROLLER")
        .env_remove("FDN_TOKEN_FILE");
    run(command)
}

/// Runs a command that must succeed; what it prints.
pub(crate) fn run(mut command: Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("{:?} cannot be started", command.get_program()))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
