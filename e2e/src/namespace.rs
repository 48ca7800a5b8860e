//! A network namespace for machines at the edge: they reach each other and what listens at the centre's address, and nothing else of this machine.
//!
//! A pair of virtual interfaces leads from it to this machine, as one cable leads out of a rack. What listens on loopback here, as PostgreSQL, RabbitMQ and the
//! API of tests do, cannot be reached through it: loopback in there is another. It has no other route. It goes, with its interfaces, when the process ends
//! that keeps it.

use std::fs::read_link;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};
use fdn_testkit::process::{Process, Program};
use fdn_testkit::wait;

/// A namespace, until it is dropped.
#[derive(Debug)]
pub struct Namespace {
    keeper: Process,
    /// The third byte of its addresses.
    subnet: u8,
}

/// The centre's end of the cable, and where DNS answers: last bytes.
const CENTRE: u8 = 1;
const DNS: u8 = 2;
/// Nodes of the first region begin after this last byte, those of the next one as many further.
const REGION: usize = 16;
/// What its end of the cable is called.
const INSIDE: &str = "edge0";
/// What a connection may take that nobody answers, in seconds.
const SILENCE: &str = "5";

impl Namespace {
    /// Makes one with addresses for so many regions with so many nodes; `folder` is for the log of its keeper.
    ///
    /// # Errors
    /// When this machine gives none: it needs root, `unshare`, `nsenter` and `ip` (Debian's packages util-linux and iproute2).
    pub async fn start(folder: &Path, regions: usize, nodes: usize) -> Result<Self> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "only root makes network namespaces, and this test needs one"
        );
        let own = read_link("/proc/self/ns/net")?;
        let keeper = Program::new("unshare", ["--net", "--", "sleep", "infinity"]);
        let mut keeper = keeper.start(&folder.join("namespace.log"))?;
        wait::until("a network namespace", async || {
            if let Some(status) = keeper.ended() {
                panic!("unshare --net ended with {status}: {}", keeper.log());
            }
            let now = read_link(format!("/proc/{}/ns/net", keeper.id()))?;
            ensure!(now != own, "it is in that of this process");
            Ok(())
        })
        .await;
        let subnet = connect(keeper.id())?;
        let namespace = Self { keeper, subnet };
        namespace.ip(&["link", "set", "lo", "up"])?;
        let nodes = (0..regions).flat_map(|region| (0..nodes).map(move |node| (region, node)));
        let nodes = nodes.map(|(region, node)| namespace.node(region, node));
        for address in nodes.chain([namespace.dns()]) {
            let address = format!("{address}/24");
            namespace.ip(&["address", "add", &address, "dev", INSIDE])?;
        }
        namespace.ip(&["link", "set", INSIDE, "up"])?;
        Ok(namespace)
    }

    fn ip(&self, arguments: &[&str]) -> Result<()> {
        let program = Program::new("ip", arguments);
        let output = Command::new("nsenter")
            .args(self.inside(program).args)
            .output();
        succeeded(output.context("running nsenter")?)
    }

    /// A program that is to run in it.
    #[must_use]
    pub fn inside(&self, program: Program) -> Program {
        let enter = format!("--net=/proc/{}/ns/net", self.keeper.id());
        let mut arguments = vec![enter.into(), "--".into(), program.exe];
        arguments.extend(program.args);
        Program {
            exe: "nsenter".into(),
            args: arguments,
            ..program
        }
    }

    const fn address(&self, last: u8) -> IpAddr {
        // For tests of networks (RFC 2544, appendix C.2.2): nobody has a route there.
        IpAddr::V4(Ipv4Addr::new(198, 18, self.subnet, last))
    }

    /// Where this machine is seen from there.
    #[must_use]
    pub const fn centre(&self) -> IpAddr {
        self.address(CENTRE)
    }

    /// An address in it for DNS servers.
    #[must_use]
    pub const fn dns(&self) -> IpAddr {
        self.address(DNS)
    }

    /// An address in it for a node of a region.
    ///
    /// # Panics
    /// When there are more than fifteen regions, or nodes of a region.
    #[must_use]
    pub fn node(&self, region: usize, node: usize) -> IpAddr {
        assert!(node + 1 < REGION, "few nodes");
        let last = u8::try_from(REGION * (region + 1) + node).expect("few regions");
        self.address(last)
    }

    /// Whether somebody takes connections there, asked from inside of it.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub fn reaches(&self, address: SocketAddr) -> Result<bool> {
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        // The shell connects, and ends.
        let connect = "exec 3<>\"/dev/tcp/$0/$1\"";
        let program = Program::new(
            "timeout",
            [SILENCE, "bash", "-c", connect, host.as_str(), port.as_str()],
        );
        let output = Command::new("nsenter")
            .args(self.inside(program).args)
            .env("LC_ALL", "C")
            .output()
            .context("running nsenter")?;
        let said = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => Ok(true),
            // What timeout says of a command that it ended.
            Some(124) => Ok(false),
            _ if said.contains("Connection refused") || said.contains("unreachable") => Ok(false),
            _ => bail!("connecting to {address}: {} {said}", output.status),
        }
    }
}

/// Leads a cable into the namespace of a process; the third byte of its addresses, which no other test of this machine has.
fn connect(keeper: u32) -> Result<u8> {
    let own = u8::try_from(std::process::id() % 256).unwrap_or_default();
    let keeper = keeper.to_string();
    let mut taken = String::new();
    for subnet in (0..=u8::MAX).map(|n| own.wrapping_add(n)) {
        // Its name says who has the addresses: there is one of a name.
        let name = format!("fdn-e2e-{subnet}");
        let cable = ["link", "add", &name, "type", "veth", "peer", "name", INSIDE];
        let made = ip(cable.into_iter().chain(["netns", &keeper]));
        match made {
            Ok(()) => {}
            Err(error) if error.to_string().contains("File exists") => {
                taken = error.to_string();
                continue;
            }
            Err(error) => return Err(error.context("making a pair of virtual interfaces")),
        }
        let address = format!("198.18.{subnet}.{CENTRE}/24");
        ip(["address", "add", &address, "dev", &name])?;
        ip(["link", "set", &name, "up"])?;
        return Ok(subnet);
    }
    bail!("all subnets for tests are taken: {taken}")
}

fn ip<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let output = Command::new("ip").args(arguments).output();
    succeeded(output.context("ip must be installed (Debian's iproute2)")?)
}

fn succeeded(output: Output) -> Result<()> {
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", output.status);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn what_listens_on_loopback_is_not_reached_and_what_listens_for_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let namespace = Namespace::start(folder.path(), 1, 1)
            .await
            .expect("a namespace");
        let bound = |ip: IpAddr| TcpListener::bind((ip, 0)).expect("bound");
        let (local, open) = (bound(Ipv4Addr::LOCALHOST.into()), bound(namespace.centre()));
        let port = |listener: &TcpListener| listener.local_addr().expect("an address").port();
        let reached = |ip: IpAddr, listener: &TcpListener| {
            let to = SocketAddr::new(ip, port(listener));
            namespace.reaches(to).expect("asked")
        };
        assert!(reached(namespace.centre(), &open));
        assert!(!reached(namespace.centre(), &local));
        assert!(!reached(Ipv4Addr::LOCALHOST.into(), &local));
        let elsewhere = SocketAddr::from(([192, 0, 2, 1], 80));
        assert!(!namespace.reaches(elsewhere).expect("asked"));
        // Two at a time have addresses of their own.
        let other = Namespace::start(folder.path(), 1, 1).await;
        let other = other.expect("another namespace");
        assert_ne!(other.centre(), namespace.centre());
        assert!(
            !other
                .reaches(SocketAddr::new(namespace.centre(), port(&local)))
                .expect("asked")
        );
    }
}
