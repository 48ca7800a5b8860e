//! Controller, DNS and agents as separate processes on real PostgreSQL and RabbitMQ.

mod processes;
mod settings;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fdn_testkit::postgres::PostgresServer;
use fdn_testkit::process::Process;
use fdn_testkit::rabbitmq::RabbitServer;
use fdn_testkit::{exclusive, ports, wait};
use tempfile::TempDir;
use tokio::sync::MutexGuard;

pub(crate) use self::processes::answering;
use crate::deadlines::Deadlines;
use crate::namespace::Namespace;
pub use crate::regions::{REGIONS, Region};
pub(crate) use crate::regions::{create_cluster, gateway};
use crate::{Cli, binary};

/// The zone of the test network.
pub const ZONE: &str = "fn.test";

/// Nodes of each region.
pub const NODES: usize = 2;

/// The whole network. One at a time in a test program: it waits for its turn.
pub struct Network {
    folder: TempDir,
    /// Where nodes and DNS servers run, if not beside the centre.
    namespace: Option<Namespace>,
    /// The database server.
    pub postgres: PostgresServer,
    /// The broker.
    pub rabbit: RabbitServer,
    pub(crate) controller: Option<Process>,
    pub(crate) dns: Option<Process>,
    pub(crate) second_dns: Option<Process>,
    pub(crate) agents: Vec<Agent>,
    api: SocketAddr,
    /// Where the controller listens for machines.
    pub edge: SocketAddr,
    /// Where DNS answers.
    pub dns_address: SocketAddr,
    /// Where the second DNS server answers, once it is started.
    pub second_dns_address: SocketAddr,
    /// The port of all gateways.
    pub gateway_port: u16,
    /// The port of all admin listeners.
    pub admin_port: u16,
    /// The port for other nodes of the cluster, of all that join.
    pub peer_port: u16,
    deadlines: Deadlines,
    /// Dropped last, when all processes have ended.
    _turn: MutexGuard<'static, ()>,
}

pub(crate) struct Agent {
    pub(crate) name: String,
    gateway: IpAddr,
    pub(crate) process: Option<Process>,
}

impl Network {
    /// Starts all of it and waits until everything is ready.
    ///
    /// # Errors
    /// When a part does not start; its log is part of the message.
    pub async fn start(deadlines: Deadlines) -> Result<Self> {
        Self::without_nodes(deadlines).await?.with_nodes().await
    }

    /// The same with nodes and DNS servers in a network namespace of their own, from where of the centre only the listener for machines is reached.
    ///
    /// # Errors
    /// When a part does not start, or this machine gives no namespace.
    pub async fn start_apart(deadlines: Deadlines) -> Result<Self> {
        let turn = exclusive::lock().await;
        let folder = folder()?;
        let namespace = Namespace::start(folder.path(), REGIONS.len(), NODES).await?;
        let network = Self::begin(deadlines, turn, folder, Some(namespace), "").await?;
        network.with_nodes().await
    }

    async fn with_nodes(mut self) -> Result<Self> {
        for r in 0..REGIONS.len() {
            for n in 0..NODES {
                self.start_node((r, n), "").await?;
            }
        }
        Ok(self)
    }

    /// Starts controller and DNS with what they need; nodes join later.
    ///
    /// # Errors
    /// When a part does not start; its log is part of the message.
    pub async fn without_nodes(deadlines: Deadlines) -> Result<Self> {
        Self::without_nodes_set(deadlines, "").await
    }

    /// The same with more settings of the controller, from its first start on.
    ///
    /// # Errors
    /// When a part does not start; its log is part of the message.
    pub async fn without_nodes_set(deadlines: Deadlines, controller: &str) -> Result<Self> {
        let turn = exclusive::lock().await;
        Self::begin(deadlines, turn, folder()?, None, controller).await
    }

    async fn begin(
        deadlines: Deadlines,
        turn: MutexGuard<'static, ()>,
        folder: TempDir,
        namespace: Option<Namespace>,
        controller: &str,
    ) -> Result<Self> {
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        // In a namespace of their own every port is free for them.
        let addresses: Vec<IpAddr> = match &namespace {
            Some(_) => vec![local],
            None => (0..REGIONS.len())
                .flat_map(|r| (0..NODES).map(move |n| gateway(r, n)))
                .collect(),
        };
        let centre = namespace.as_ref().map_or(local, Namespace::centre);
        let dns = namespace.as_ref().map_or(local, Namespace::dns);
        let mut network = Self {
            folder,
            namespace,
            postgres: PostgresServer::start().await?,
            rabbit: RabbitServer::start().await?,
            controller: None,
            dns: None,
            second_dns: None,
            agents: Vec::new(),
            api: SocketAddr::new(local, ports::local()),
            edge: SocketAddr::new(centre, ports::free(&[centre])),
            dns_address: SocketAddr::new(dns, ports::local()),
            second_dns_address: SocketAddr::new(dns, ports::local()),
            gateway_port: ports::free(&addresses),
            admin_port: ports::free(&addresses),
            peer_port: ports::free(&addresses),
            deadlines,
            _turn: turn,
        };
        let database = network.postgres.database()?;
        network.write_secrets()?;
        network.write_controller(&database.url, controller)?;
        for (name, listen) in [
            ("dns", network.dns_address),
            ("dns-2", network.second_dns_address),
        ] {
            network.write_dns(name, listen, SocketAddr::new(dns, ports::local()))?;
        }
        network.start_controller().await?;
        network.join_dns().await?;
        network.start_dns().await?;
        Ok(network)
    }

    /// Starts a node of a region with more settings than others have; its name.
    ///
    /// # Errors
    /// When it ends instead.
    pub async fn start_node(
        &mut self,
        (region, n): (usize, usize),
        settings: &str,
    ) -> Result<String> {
        let place = &REGIONS[region];
        let name = format!("{}-{}", place.name, n + 1);
        let cli = self.cli()?;
        let (lat, lon) = place.location;
        create_cluster(&cli, place.name, (lat, lon))?;
        let token = cli.ok(["node", "token", "--cluster", place.name]);
        // Its settings are the test's own: what joining wrote goes.
        self.join(&name, (region, n), &token, &[])?;
        self.write_agent(&name, place, self.node(region, n), settings)?;
        self.start_agent(&name).await?;
        Ok(name)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        std::fs::write(self.path(name), text).with_context(|| format!("writing {name}"))
    }

    /// Lets both DNS servers in, in a cluster of their own.
    async fn join_dns(&self) -> Result<()> {
        let cli = wait::until("the controller to let somebody log in", async || self.cli()).await;
        create_cluster(&cli, "names", (0.0, 0.0))?;
        let token = cli.ok(["dns", "token", "--cluster", "names", "--uses", "2"]);
        let file = self.path("dns.token");
        std::fs::write(&file, token)?;
        for name in ["dns", "dns-2"] {
            let output = std::process::Command::new(binary("fdn-dns"))
                .args(["join", &format!("http://{}", self.api)])
                .arg("--token-file")
                .arg(&file)
                .arg("--config")
                .arg(self.path(&format!("{name}.toml")))
                .output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{said}");
        }
        Ok(())
    }

    fn add(&mut self, name: &str, gateway: IpAddr) {
        if self.agents.iter().all(|agent| agent.name != name) {
            self.agents.push(Agent {
                name: name.to_owned(),
                gateway,
                process: None,
            });
        }
    }

    /// Joins a machine as node `n` of a region by `fdn-edge-agent join`, with a token in a file; what that printed, if it went well.
    /// [`Network::start_agent`] starts it then.
    ///
    /// # Errors
    /// What it printed, if it went wrong.
    pub fn join(
        &mut self,
        name: &str,
        place: (usize, usize),
        token: &str,
        more: &[&str],
    ) -> Result<String> {
        self.join_at("http", name, place, token, more)
    }

    /// The same where the controllers' API is reached by this scheme.
    ///
    /// # Errors
    /// What it printed, if it went wrong.
    pub fn join_at(
        &mut self,
        scheme: &str,
        name: &str,
        (region, n): (usize, usize),
        token: &str,
        more: &[&str],
    ) -> Result<String> {
        let ip = self.node(region, n);
        let port = match &self.namespace {
            Some(_) => ports::local(),
            None => ports::free(&[ip]),
        };
        let file = self.path("join.token");
        std::fs::write(&file, token)?;
        let output = std::process::Command::new(binary("fdn-edge-agent"))
            .args(["join", &format!("{scheme}://{}", self.api), "--node", name])
            .arg("--token-file")
            .arg(&file)
            .arg("--data")
            .arg(self.path(name))
            .arg("--config")
            .arg(self.path(&format!("{name}.toml")))
            .args(["--address", &ip.to_string()])
            .args(["--gateway-port", &self.gateway_port.to_string()])
            .args(["--admin-port", &self.admin_port.to_string()])
            .args(["--peer-port", &self.peer_port.to_string()])
            .args(["--controller-port", &port.to_string()])
            .args(more)
            .output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ensure!(output.status.success(), "{}", text(&output.stderr));
        self.lengthen(name)?;
        self.add(name, ip);
        Ok(text(&output.stdout))
    }

    /// A user who has logged in.
    ///
    /// # Errors
    /// When logging in fails.
    pub fn cli(&self) -> Result<Cli> {
        let cli = Cli::new(&self.path("home"));
        let password = self.path("admin.password");
        let typed = cli.run([
            "login",
            &format!("http://{}", self.api),
            "--user",
            "admin",
            "--password-file",
            &password.display().to_string(),
        ]);
        ensure!(typed.code == 0, "fdn login: {} {}", typed.out, typed.err);
        Ok(cli)
    }

    /// The value of a metric of a node, summed over all of its series with this text in them.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn metric(&self, node: IpAddr, name: &str, with: &str) -> Result<f64> {
        let client = fdn_service::http_client::build(Duration::from_secs(10))?;
        let url = format!("http://{node}:{}/metrics", self.admin_port);
        let text = client.get(url).send().await?.text().await?;
        let value = |line: &str| {
            let (series, value) = line.rsplit_once(' ')?;
            let is_it = series.split('{').next() == Some(name) && series.contains(with);
            is_it.then(|| value.parse::<f64>().ok()).flatten()
        };
        Ok(text.lines().filter_map(value).sum())
    }

    /// Waits until a node knows so many members of its cluster and may act.
    pub async fn together(&self, node: IpAddr, members: f64) {
        wait::until("the cluster to be whole", async || {
            let found = self.metric(node, "fdn_cluster_members", "alive").await?;
            let quorum = self.metric(node, "fdn_cluster_quorum", "").await?;
            ensure!(
                (found - members).abs() < 0.5 && quorum > 0.5,
                "{found} members, quorum {quorum}"
            );
            Ok::<_, anyhow::Error>(())
        })
        .await;
    }

    /// The addresses of a region's gateways.
    #[must_use]
    pub fn gateways(&self, region: usize) -> BTreeSet<IpAddr> {
        (0..NODES).map(|n| self.node(region, n)).collect()
    }

    /// The address of one node.
    #[must_use]
    pub fn node(&self, region: usize, n: usize) -> IpAddr {
        let apart = self.namespace.as_ref();
        apart.map_or_else(|| gateway(region, n), |there| there.node(region, n))
    }

    /// Whether nodes and DNS servers, where they are, reach this port of the centre, at any address by which they could call it.
    ///
    /// # Errors
    /// When they are beside the centre, or cannot be asked.
    pub fn is_reached_from_the_edge(&self, port: u16) -> Result<bool> {
        let there = self.namespace.as_ref();
        let there = there.context("nodes are beside the centre")?;
        for ip in [there.centre(), Ipv4Addr::LOCALHOST.into()] {
            if there.reaches(SocketAddr::new(ip, port))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The names of all agents.
    #[must_use]
    pub fn agents(&self) -> Vec<String> {
        self.agents.iter().map(|a| a.name.clone()).collect()
    }

    /// The controller's address.
    #[must_use]
    pub const fn api(&self) -> SocketAddr {
        self.api
    }

    /// A folder for a test's own files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The last lines of every process's log, for a failing test.
    #[must_use]
    pub fn logs(&self) -> String {
        let mut out = String::new();
        let names =
            self.agents
                .iter()
                .map(|a| a.name.as_str())
                .chain(["controller", "dns", "dns-2"]);
        for name in names {
            let text =
                std::fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let tail = lines[lines.len().saturating_sub(15)..].join("\n");
            out.push_str(&format!("--- {name}\n{tail}\n"));
        }
        out
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
    }
}

fn folder() -> Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("fdn-network-").tempdir();
    folder.context("a folder for temporary files")
}
