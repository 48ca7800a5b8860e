//! The network of an endurance run: two controllers, two DNS servers, two clusters and one whose machines come and go, on PostgreSQL and RabbitMQ. All that
//! is not in the centre reaches the controllers by links that can be cut.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fdn_testkit::ports;
use fdn_testkit::process::Process;
use rustix::process::Signal;
use tokio::sync::watch;

use super::relay::Relay;
use super::schedule::{GUESTS, Part};
use crate::network::{NODES, REGIONS, answering, create_cluster, gateway};
use crate::{Cli, Deadlines, Network};

/// A part that should run and has ended, and how.
type Ended = (Part, ExitStatus);

/// What each machine offers: memory in MiB.
pub const MEMORY_MIB: f64 = 512.0;
/// And CPU, in thousandths of a core.
pub const CPU_MILLI: f64 = 2000.0;
/// How long a process may take to stop.
const STOP: Duration = Duration::from_secs(60);

/// All of it.
pub struct Processes {
    /// The first controller, the DNS servers, the machines and what they stand on.
    pub network: Network,
    second: Option<Process>,
    second_api: SocketAddr,
    second_edge: SocketAddr,
    links: BTreeMap<Part, Links>,
}

/// The ways of one machine to both controllers.
struct Links {
    whole: watch::Sender<bool>,
    relays: [Relay; 2],
}

impl Links {
    async fn start(edges: [SocketAddr; 2]) -> Result<Self> {
        let (whole, seen) = watch::channel(true);
        let relays = [
            Relay::start(edges[0], seen.clone()).await?,
            Relay::start(edges[1], seen).await?,
        ];
        Ok(Self { whole, relays })
    }

    /// As a setting.
    fn controllers(&self) -> String {
        let [one, two] = self.relays.each_ref().map(Relay::address);
        format!("controllers = [\"{one}\", \"{two}\"]\n")
    }
}

impl Processes {
    /// Starts all but the guests, and waits until everything answers.
    ///
    /// # Errors
    /// When a part does not start; its log is part of the message.
    pub async fn start() -> Result<Self> {
        let network = Network::without_nodes(Deadlines::Shipped).await?;
        let local = || SocketAddr::new(Ipv4Addr::LOCALHOST.into(), ports::local());
        let mut all = Self {
            network,
            second: None,
            second_api: local(),
            second_edge: local(),
            links: BTreeMap::new(),
        };
        let first = std::fs::read_to_string(all.network.path("controller.toml"))?;
        let of = |address: SocketAddr| format!("listen = \"{address}\"");
        let text = first
            .replace(&of(all.network.api()), &of(all.second_api))
            .replace(&of(all.network.edge), &of(all.second_edge));
        all.network.write("controller-2.toml", &text)?;
        all.start_part(Part::Controller(1)).await?;
        for (n, name) in ["dns", "dns-2"].into_iter().enumerate() {
            let links = Links::start(all.edges()).await?;
            let file = format!("{name}.toml");
            let text = std::fs::read_to_string(all.network.path(&file))?;
            let text = format!("{text}[centre]\n{}", links.controllers());
            all.network.write(&file, &text)?;
            all.links.insert(Part::Dns(n), links);
            // The first runs already, without links.
            all.kill(Part::Dns(n));
            all.start_part(Part::Dns(n)).await?;
        }
        for region in 0..GUESTS {
            for n in 0..NODES {
                all.join((region, n)).await?;
            }
        }
        Ok(all)
    }

    const fn edges(&self) -> [SocketAddr; 2] {
        [self.network.edge, self.second_edge]
    }

    /// Where the controllers serve API and metrics.
    #[must_use]
    pub const fn apis(&self) -> [SocketAddr; 2] {
        [self.network.api(), self.second_api]
    }

    /// Where the DNS servers answer.
    #[must_use]
    pub const fn dns(&self) -> [SocketAddr; 2] {
        [self.network.dns_address, self.network.second_dns_address]
    }

    /// Where the DNS servers say how they are.
    ///
    /// # Errors
    /// When their settings do not say where.
    pub fn dns_admin(&self) -> Result<[SocketAddr; 2]> {
        let one = |file: &str| {
            let text = std::fs::read_to_string(self.network.path(file))?;
            let line = text.lines().find_map(|line| line.strip_prefix("admin = "));
            let address = line.context("no admin address")?.trim_matches('"');
            Ok::<SocketAddr, anyhow::Error>(address.parse()?)
        };
        Ok([one("dns.toml")?, one("dns-2.toml")?])
    }

    /// The address of a machine.
    #[must_use]
    pub fn address(part: Part) -> Option<IpAddr> {
        match part {
            Part::Node(region, n) => Some(gateway(region, n)),
            _ => None,
        }
    }

    /// The machine at an address.
    #[must_use]
    pub fn machine(address: IpAddr) -> Option<Part> {
        (0..REGIONS.len())
            .flat_map(|region| (0..NODES).map(move |n| Part::Node(region, n)))
            .find(|part| Self::address(*part) == Some(address))
    }

    /// Somebody who has logged in at each controller. The sessions are those of a database that both share.
    ///
    /// # Errors
    /// When a controller refuses.
    pub fn people(&self) -> Result<[Cli; 2]> {
        let one = self.network.cli()?;
        let two = Cli::new(&self.network.path("home-2"));
        let password = self.network.path("admin.password").display().to_string();
        let url = format!("http://{}", self.second_api);
        let login = [
            "login",
            &url,
            "--user",
            "admin",
            "--password-file",
            &password,
        ];
        let typed = two.run(login);
        ensure!(typed.code == 0, "fdn login: {} {}", typed.out, typed.err);
        Ok([one, two])
    }

    /// Joins a machine of a region and starts it.
    ///
    /// # Errors
    /// When it is not let in, as while the first controller is away, or does not start.
    pub async fn join(&mut self, (region, n): (usize, usize)) -> Result<()> {
        let (part, place) = (Part::Node(region, n), &REGIONS[region]);
        let name = part.to_string();
        let cli = self.network.cli()?;
        create_cluster(&cli, place.name, place.location)?;
        let token = cli.run(["node", "token", "--cluster", place.name]);
        ensure!(token.code == 0, "{}", token.err);
        // Who was removed and has not heard of it is to ask all the same.
        let was_here = self.network.path(&name).join("identity/node.pem").is_file();
        let more: &[&str] = if was_here { &["--again"] } else { &[] };
        self.network.join(&name, (region, n), &token.out, more)?;
        let ip = gateway(region, n);
        let more = format!(
            "[workflows]\nenabled = true\nlisten = \"{ip}:0\"\n[capacity]\nmemory = \"{MEMORY_MIB}MiB\"\ncpu_milli = {CPU_MILLI}\n"
        );
        self.network.write_agent(&name, place, ip, &more)?;
        let links = Links::start(self.edges()).await?;
        let file = format!("{name}.toml");
        let text = std::fs::read_to_string(self.network.path(&file))?;
        let direct = format!("controllers = [\"{}\"]\n", self.network.edge);
        ensure!(text.contains(&direct), "{file} names no controllers");
        let text = text.replace(&direct, &links.controllers());
        self.network.write(&file, &text)?;
        self.links.insert(part, links);
        self.start_part(part).await
    }

    /// Kills it as a power loss would.
    pub fn kill(&mut self, part: Part) {
        match part {
            Part::Controller(0) => self.network.kill_controller(),
            Part::Controller(_) => self.second = None,
            Part::Dns(0) => self.network.kill_dns(),
            Part::Dns(_) => self.network.kill_second_dns(),
            Part::Rabbit => self.network.rabbit.kill(),
            Part::Postgres => self.network.postgres.kill(),
            Part::Node(..) => self.network.kill_agent(&part.to_string()),
        }
    }

    /// Starts it again, and waits until it listens.
    ///
    /// # Errors
    /// When it ends instead.
    pub async fn start_part(&mut self, part: Part) -> Result<()> {
        match part {
            Part::Controller(0) => self.network.start_controller().await,
            Part::Controller(_) => {
                let mut process = self.network.spawn("fdn-controller", "controller-2")?;
                answering(&mut process, self.second_api).await?;
                self.second = Some(process);
                Ok(())
            }
            Part::Dns(0) => self.network.start_dns().await,
            Part::Dns(_) => self.network.start_second_dns().await,
            Part::Rabbit => self.network.rabbit.restart().await,
            Part::Postgres => self.network.postgres.restart().await,
            Part::Node(..) => self.network.start_agent(&part.to_string()).await,
        }
    }

    /// Lets it stand still, or go on.
    ///
    /// # Errors
    /// When it does not run.
    pub fn freeze(&mut self, part: Part, still: bool) -> Result<()> {
        let process = self.process(part).context("it does not run")?;
        let signal = if still { Signal::STOP } else { Signal::CONT };
        process.signal(signal)
    }

    /// Cuts it off from both controllers, or ends that.
    pub fn cut(&self, part: Part, cut: bool) {
        if let Some(links) = self.links.get(&part) {
            links.whole.send_replace(!cut);
        }
    }

    fn process(&mut self, part: Part) -> Option<&mut Process> {
        match part {
            Part::Controller(0) => self.network.controller.as_mut(),
            Part::Controller(_) => self.second.as_mut(),
            Part::Dns(0) => self.network.dns.as_mut(),
            Part::Dns(_) => self.network.second_dns.as_mut(),
            Part::Rabbit | Part::Postgres => None,
            Part::Node(..) => {
                let name = part.to_string();
                let mut agents = self.network.agents.iter_mut();
                agents.find(|agent| agent.name == name)?.process.as_mut()
            }
        }
    }

    /// The processes of this network that run, by their ids; and of those that should run and have ended, how.
    pub fn look(&mut self) -> (Vec<(Part, u32)>, Vec<Ended>) {
        let (mut run, mut ended) = (Vec::new(), Vec::new());
        for part in all() {
            let Some(process) = self.process(part) else {
                continue;
            };
            match process.ended() {
                None => run.push((part, process.id())),
                Some(status) => ended.push((part, status)),
            }
        }
        for (part, status) in [
            (Part::Rabbit, self.network.rabbit.ended()),
            (Part::Postgres, self.network.postgres.ended()),
        ] {
            ended.extend(status.map(|status| (part, status)));
        }
        (run, ended)
    }

    /// Where a process logs.
    #[must_use]
    pub fn log(&self, part: Part) -> PathBuf {
        let name = match part {
            Part::Controller(0) => "controller".to_owned(),
            Part::Dns(0) => "dns".to_owned(),
            part => part.to_string(),
        };
        self.network.path(&format!("{name}.log"))
    }

    /// Stops everything that runs with SIGTERM.
    ///
    /// # Errors
    /// When a process does not stop in time or ends with a failure.
    pub fn stop(&mut self) -> Result<()> {
        if let Some(mut second) = self.second.take() {
            let status = second.stop(STOP)?;
            ensure!(status.success(), "ended with {status}: {}", second.log());
        }
        self.network.stop()
    }
}

/// Every process of this network that there may be.
pub fn all() -> impl Iterator<Item = Part> {
    let nodes = (0..REGIONS.len()).flat_map(|r| (0..NODES).map(move |n| Part::Node(r, n)));
    let pairs = (0..2).flat_map(|n| [Part::Controller(n), Part::Dns(n)]);
    pairs.chain(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_and_their_addresses_belong_together() {
        for part in all() {
            let found = Processes::address(part).and_then(Processes::machine);
            let is_node = matches!(part, Part::Node(..));
            assert_eq!(found, is_node.then_some(part));
        }
        assert_eq!(Processes::machine(IpAddr::V4(Ipv4Addr::LOCALHOST)), None);
        assert_eq!(all().count(), 4 + REGIONS.len() * NODES);
    }
}
