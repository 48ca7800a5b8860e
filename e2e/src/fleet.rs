//! A network of two controllers behind a balancer, two DNS servers and two clusters that machines joined by tokens, on real PostgreSQL and RabbitMQ,
//! in which each process can be replaced by that of other programs on its own data.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fdn_testkit::postgres::{Database, PostgresServer};
use fdn_testkit::process::{Process, Program};
use fdn_testkit::rabbitmq::RabbitServer;
use fdn_testkit::{exclusive, ports, wait};
use tempfile::TempDir;
use tokio::sync::MutexGuard;

use crate::balancer::Balancer;
use crate::network::{NODES, REGIONS, ZONE, answering, create_cluster, gateway};
use crate::{Cli, Programs};

/// Clusters, each of [`NODES`] nodes, with room for one more machine each.
pub const CLUSTERS: usize = 2;
/// How long a process may take to stop.
const STOP: Duration = Duration::from_secs(60);
/// Memory of each node of the first cluster: too little for a function that asks for more than this.
pub const SMALL: &str = "200MiB";

/// The network.
pub struct Fleet {
    folder: TempDir,
    postgres: PostgresServer,
    rabbit: RabbitServer,
    database: Database,
    balancer: Balancer,
    parts: Vec<Part>,
    /// Where the DNS servers answer.
    pub dns: [SocketAddr; 2],
    /// Where the controllers serve API and metrics.
    pub controllers: [SocketAddr; 2],
    edges: [SocketAddr; 2],
    /// The port of all gateways.
    pub gateway_port: u16,
    admin_port: u16,
    peer_port: u16,
    stage_port: u16,
    /// Dropped last, when all processes have ended.
    _turn: MutexGuard<'static, ()>,
}

/// One process, which may be away.
struct Part {
    name: String,
    program: &'static str,
    /// Where it is seen to live.
    answers: SocketAddr,
    /// Where it says how it is.
    admin: SocketAddr,
    process: Option<Process>,
}

impl Fleet {
    /// Starts all of it with these programs, and waits until everything is ready.
    ///
    /// # Errors
    /// When a part does not start; its log is part of the message.
    pub async fn start(programs: &Programs) -> Result<Self> {
        let turn = exclusive::lock().await;
        let local = || SocketAddr::new(Ipv4Addr::LOCALHOST.into(), ports::local());
        let gateways: Vec<IpAddr> = (0..CLUSTERS)
            .flat_map(|cluster| (0..=NODES).map(move |n| gateway(cluster, n)))
            .collect();
        let controllers = [local(), local()];
        let postgres = PostgresServer::start().await?;
        let mut fleet = Self {
            folder: tempfile::Builder::new().prefix("fdn-fleet-").tempdir()?,
            database: postgres.database()?,
            postgres,
            rabbit: RabbitServer::start().await?,
            balancer: Balancer::start(&controllers).await?,
            parts: Vec::new(),
            dns: [local(), local()],
            controllers,
            edges: [local(), local()],
            gateway_port: ports::free(&gateways),
            admin_port: ports::free(&gateways),
            peer_port: ports::free(&gateways),
            stage_port: ports::free(&gateways),
            _turn: turn,
        };
        for name in ["network.token", "network.key", "admin.password"] {
            fdn_service::secret::read_or_create(&fleet.path(name))?;
        }
        fleet.start_controllers(programs).await?;
        fleet.start_dns(programs).await?;
        for cluster in 0..CLUSTERS {
            for n in 0..NODES {
                fleet.join(programs, (cluster, n)).await?;
            }
        }
        Ok(fleet)
    }

    async fn start_controllers(&mut self, programs: &Programs) -> Result<()> {
        for n in 0..2 {
            let name = format!("controller-{}", n + 1);
            let text = self.controller(&name, (self.controllers[n], self.edges[n]), &self.database);
            self.write(&name, &text)?;
            let address = self.controllers[n];
            self.add(&name, "fdn-controller", (address, address));
            self.run(&name, programs).await?;
            self.ready(&name).await;
        }
        Ok(())
    }

    /// Lets both DNS servers in, in a cluster of their own, and starts them.
    async fn start_dns(&mut self, programs: &Programs) -> Result<()> {
        let cli = wait::until("the balancer to find a controller", async || {
            self.cli(programs, "operator")
        })
        .await;
        create_cluster(&cli, "names", (0.0, 0.0))?;
        let token = cli.ok(["dns", "token", "--cluster", "names", "--uses", "2"]);
        std::fs::write(self.path("dns.token"), token)?;
        for n in 0..2 {
            let name = format!("dns-{}", n + 1);
            let admin = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), ports::local());
            let path = self.path(&name);
            let text = format!(
                "server = \"{name}\"\nlisten = [\"{}\"]\ndata_dir = \"{}\"\nadmin = \"{admin}\"\n[zone]\nname = \"{ZONE}\"\n[log]\nformat = \"json\"\n",
                self.dns[n],
                path.display()
            );
            self.write(&name, &text)?;
            let mut command = Command::new(programs.path("fdn-dns"));
            command.args(["join", &self.url(), "--token-file"]);
            command.arg(self.path("dns.token"));
            command.arg("--config").arg(self.settings(&name));
            succeeds(&mut command)?;
            self.add(&name, "fdn-dns", (self.dns[n], admin));
            self.run(&name, programs).await?;
            self.ready(&name).await;
        }
        Ok(())
    }

    /// Joins a machine of these programs to a cluster as an operator does, and starts it; its name.
    ///
    /// # Errors
    /// When it is not let in or does not start.
    pub async fn join(
        &mut self,
        programs: &Programs,
        (cluster, n): (usize, usize),
    ) -> Result<String> {
        let place = &REGIONS[cluster];
        let name = format!("{}-{}", place.name, n + 1);
        let ip = gateway(cluster, n);
        let cli = self.cli(programs, "operator")?;
        create_cluster(&cli, place.name, place.location)?;
        let token = cli.ok(["node", "token", "--cluster", place.name]);
        std::fs::write(self.path("join.token"), token)?;
        let mut command = Command::new(programs.path("fdn-edge-agent"));
        command.args(["join", &self.url(), "--node", &name, "--token-file"]);
        command.arg(self.path("join.token"));
        command.arg("--data").arg(self.path(&name));
        command.arg("--config").arg(self.settings(&name));
        command.args(["--address", &ip.to_string()]);
        for (flag, port) in [
            ("--gateway-port", self.gateway_port),
            ("--admin-port", self.admin_port),
            ("--peer-port", self.peer_port),
            ("--stage-port", self.stage_port),
        ] {
            command.args([flag, &port.to_string()]);
        }
        succeeds(&mut command)?;
        let mut text = std::fs::read_to_string(self.settings(&name))?;
        text.push_str("\n[stop]\ndrain = \"1s\"\n[log]\nformat = \"json\"\n");
        if cluster == 0 {
            writeln!(text, "[capacity]\nmemory = \"{SMALL}\"")?;
        }
        self.write(&name, &text)?;
        let gateway = SocketAddr::new(ip, self.gateway_port);
        let admin = SocketAddr::new(ip, self.admin_port);
        self.add(&name, "fdn-edge-agent", (gateway, admin));
        self.run(&name, programs).await?;
        self.ready(&name).await;
        Ok(name)
    }

    /// The settings of a controller on a database.
    fn controller(
        &self,
        name: &str,
        (api, edge): (SocketAddr, SocketAddr),
        on: &Database,
    ) -> String {
        let path = self.folder.path().display();
        let mut text = format!(
            "listen = \"{api}\"\nzone = \"{ZONE}\"\ndns = \"{}\"\ngateway_port = {}\n\
             [edge]\nlisten = \"{edge}\"\nname = \"{name}\"\ncontrollers = [\"{}\", \"{}\"]\n\
             [singletons]\nlinger = \"3s\"\n\
             [network]\ntoken_file = \"{path}/network.token\"\nkey_file = \"{path}/network.key\"\n\
             [broker]\nurl = \"{}\"\nnamespace = \"upgrade\"\n[log]\nformat = \"json\"\n\
             [database]\nurl = \"{}\"\n[artifacts]\nlocal = \"{path}/artifacts\"\n\
             [accounts]\ninitial_password_file = \"{path}/admin.password\"\n",
            self.dns[0],
            self.gateway_port,
            self.edges[0],
            self.edges[1],
            self.rabbit.url(),
            on.url
        );
        for region in &REGIONS[..CLUSTERS] {
            let (lat, lon) = region.clients;
            let prefix = region.subnet;
            text +=
                &format!("[[geo.locations]]\nprefix = \"{prefix}\"\nlat = {lat}\nlon = {lon}\n");
        }
        text
    }

    /// The settings of a controller on an empty database, in which these programs have made the schema; the file and the database.
    ///
    /// # Errors
    /// When they cannot make it.
    pub fn aside(&self, programs: &Programs) -> Result<(PathBuf, Database)> {
        let database = self.postgres.database()?;
        let local = || SocketAddr::new(Ipv4Addr::LOCALHOST.into(), ports::local());
        let text = self.controller("aside", (local(), local()), &database);
        self.write("aside", &text)?;
        let file = self.settings("aside");
        self.centre(programs, &file, &["migrate"])?;
        Ok((file, database))
    }

    /// What a command of `fdn-controller` with these settings printed, if it went well.
    ///
    /// # Errors
    /// What it printed, if not.
    pub fn centre(&self, programs: &Programs, settings: &Path, args: &[&str]) -> Result<String> {
        let mut command = Command::new(programs.path("fdn-controller"));
        succeeds(command.arg("--config").arg(settings).args(args))
    }

    /// Stops a process as an operator does, and starts that of these programs on the same data; waits until it answers.
    ///
    /// # Errors
    /// When one does not end well or the other does not start.
    pub async fn replace(&mut self, name: &str, programs: &Programs) -> Result<()> {
        self.stop(name)?;
        self.run(name, programs).await
    }

    /// Stops a process.
    ///
    /// # Errors
    /// When it does not end well.
    pub fn stop(&mut self, name: &str) -> Result<()> {
        let part = self.parts.iter_mut().find(|part| part.name == name);
        let process = part.and_then(|part| part.process.take());
        let mut process = process.with_context(|| format!("{name} does not run"))?;
        let status = process.stop(STOP)?;
        ensure!(
            status.success(),
            "{name} ended with {status}: {}",
            process.log()
        );
        Ok(())
    }

    /// Kills a process as a power loss would.
    pub fn kill(&mut self, name: &str) {
        for part in &mut self.parts {
            if part.name == name {
                part.process = None;
            }
        }
    }

    /// Starts a process of these programs, and waits until it answers.
    ///
    /// # Errors
    /// When there is none of this name, or it ends instead.
    pub async fn run(&mut self, name: &str, programs: &Programs) -> Result<()> {
        let (settings, log) = (self.settings(name), self.path(&format!("{name}.log")));
        let part = self.parts.iter_mut().find(|part| part.name == name);
        let part = part.with_context(|| format!("no {name}"))?;
        let arguments = ["--config".as_ref(), settings.as_os_str()];
        let program = Program::new(programs.path(part.program), arguments).env("FDN_LOG", "info");
        let mut process = program.start(&log)?;
        answering(&mut process, part.answers).await?;
        part.process = Some(process);
        Ok(())
    }

    /// Waits until a process says that it can do its work.
    pub async fn ready(&self, name: &str) {
        wait::until(&format!("{name} to be ready"), async || {
            let (status, text) = self.ask(name, "readyz").await?;
            ensure!(status == 200, "{status}: {text}");
            Ok::<_, anyhow::Error>(())
        })
        .await;
    }

    /// What a process answers to operators: `readyz`, `metrics`.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn ask(&self, name: &str, what: &str) -> Result<(u16, String)> {
        let part = self.parts.iter().find(|part| part.name == name);
        let admin = part.with_context(|| format!("no {name}"))?.admin;
        let client = fdn_service::http_client::build(Duration::from_secs(10))?;
        let answer = client.get(format!("http://{admin}/{what}")).send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }

    /// The sum of a metric's series with this text in them.
    ///
    /// # Errors
    /// When the process does not answer.
    pub async fn metric(&self, name: &str, metric: &str, with: &str) -> Result<f64> {
        let (_, text) = self.ask(name, "metrics").await?;
        let value = |line: &str| {
            let (series, value) = line.rsplit_once(' ')?;
            let is_it = series.split('{').next() == Some(metric) && series.contains(with);
            is_it.then(|| value.parse::<f64>().ok())?
        };
        Ok(text.lines().filter_map(value).sum())
    }

    /// A user of the command of these programs, with this home, who has logged in.
    ///
    /// # Errors
    /// When logging in fails.
    pub fn cli(&self, programs: &Programs, home: &str) -> Result<Cli> {
        let cli = Cli::with(&self.path(home), programs.path("fdn"));
        let password = self.path("admin.password").display().to_string();
        let typed = cli.run([
            "login",
            &self.url(),
            "--user",
            "admin",
            "--password-file",
            &password,
        ]);
        ensure!(typed.code == 0, "fdn login: {} {}", typed.out, typed.err);
        Ok(cli)
    }

    /// The API, through the balancer.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.balancer.address())
    }

    /// The names of what runs a program.
    #[must_use]
    pub fn names(&self, program: &str) -> Vec<String> {
        let parts = self.parts.iter().filter(|part| part.program == program);
        parts.map(|part| part.name.clone()).collect()
    }

    /// What runs, those first that need the others.
    #[must_use]
    pub fn running(&self) -> Vec<String> {
        let running = self
            .parts
            .iter()
            .rev()
            .filter(|part| part.process.is_some());
        running.map(|part| part.name.clone()).collect()
    }

    /// What runs although it is not of these programs.
    #[must_use]
    pub fn others(&self, programs: &Programs) -> Vec<String> {
        let other = |part: &&Part| {
            let process = part.process.as_ref();
            process.is_some_and(|process| !programs.is_run_by(process.id()))
        };
        let parts = self.parts.iter().filter(other);
        parts.map(|part| part.name.clone()).collect()
    }

    /// The gateways that run, of one cluster.
    #[must_use]
    pub fn gateways(&self, cluster: usize) -> BTreeSet<IpAddr> {
        let prefix = format!("{}-", REGIONS[cluster].name);
        let parts = self.parts.iter();
        let running = parts.filter(|part| part.process.is_some() && part.name.starts_with(&prefix));
        running.map(|part| part.answers.ip()).collect()
    }

    /// Where a process answers.
    ///
    /// # Panics
    /// When there is none of this name.
    #[must_use]
    pub fn address(&self, name: &str) -> SocketAddr {
        let part = self.parts.iter().find(|part| part.name == name);
        part.unwrap_or_else(|| panic!("no {name}")).answers
    }

    /// Everything that a process has logged.
    #[must_use]
    pub fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default()
    }

    /// The names of all processes that ever ran.
    #[must_use]
    pub fn all(&self) -> Vec<String> {
        self.parts.iter().map(|part| part.name.clone()).collect()
    }

    /// The settings file of a process.
    #[must_use]
    pub fn settings(&self, name: &str) -> PathBuf {
        self.path(&format!("{name}.toml"))
    }

    /// A file or folder of the network's own, or of a test.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.settings(name);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }

    fn add(
        &mut self,
        name: &str,
        program: &'static str,
        (answers, admin): (SocketAddr, SocketAddr),
    ) {
        self.parts.retain(|part| part.name != name);
        self.parts.push(Part {
            name: name.to_owned(),
            program,
            answers,
            admin,
            process: None,
        });
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in self.all() {
                let text = self.log(&name);
                let lines: Vec<&str> = text.lines().collect();
                let tail = lines[lines.len().saturating_sub(15)..].join("\n");
                eprintln!("--- {name}\n{tail}");
            }
        }
    }
}

/// What a command printed, if it went well; else that is the error.
fn succeeds(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    ensure!(
        output.status.success(),
        "{command:?}: {}: {out}{err}",
        output.status
    );
    Ok(out + &err)
}
