//! Clocks that are an hour ahead or behind, as docs/operations/clock.md says it: a node's, a DNS server's, a controller's, while clients call.

#![allow(
    clippy::print_stderr,
    reason = "figures that a reader of the test wants to see"
)]

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::ensure;
use fdn_core::ErrorCode;
use fdn_e2e::load::Load;
use fdn_e2e::network::REGIONS;
use fdn_e2e::tutorial::Step;
use fdn_e2e::{Deadlines, Network, binary};
use fdn_testkit::{components, wait};

use super::disk_full::dig;
use super::runbook::{Page, Terminal};

const HOUR_S: i64 = 3600;
const NODE: &str = "eu-west-1";
/// Certificates end so soon that one is due for a node that is an hour ahead, and not for one whose clock is right.
const SHORT: &str = "[enrolment]\ncertificate_lifetime = \"90m\"\n";
/// Names of processes as the page has them and as the network does.
const PROCESSES: [(&str, &str); 3] = [
    ("node", NODE),
    ("DNS server", "dns"),
    ("controller", "controller"),
];

struct World {
    network: Network,
    operator: Terminal,
    nodes: [IpAddr; 2],
    /// The clients of now, and how many calls the earlier ones had answered.
    load: Option<Load>,
    answered: u64,
    _folder: tempfile::TempDir,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_an_hour_off_stops_nothing_and_is_named() {
    let mut world = begin().await;
    for ahead_s in [HOUR_S, -HOUR_S] {
        let mut page = Page::read("clock.md");
        for heading in [
            "A node",
            "A node that was started so",
            "A DNS server",
            "A controller",
        ] {
            eprintln!("{ahead_s:+} s:");
            world.follow(page.section(heading), ahead_s).await;
        }
        assert!(page.is_done(), "all of the page was followed");
    }
    world.end().await;
}

/// Two nodes that joined and are one cluster, and clients of theirs.
async fn begin() -> World {
    let network = Network::without_nodes(Deadlines::Long).await;
    let mut network = network.expect("the centre starts");
    let file = network.folder().join("controller.toml");
    let mut text = std::fs::read_to_string(&file).expect("settings");
    write!(text, "\n{SHORT}").expect("a string");
    std::fs::write(&file, text).expect("settings");
    for (_, name) in PROCESSES {
        network.set_clock(name, 0).expect("a clock");
    }
    network.kill_controller();
    network.kill_dns();
    network.start_controller().await.expect("it starts again");
    network.start_dns().await.expect("it starts again");
    let cli = wait::until("the controller to let somebody log in", async || {
        network.cli()
    })
    .await;
    let place = ["--region", "eu-west", "--location", "53.35,-6.26"];
    cli.ok(["cluster", "create", "eu-west"].iter().chain(&place));
    let token = cli.ok(["node", "token", "--cluster", "eu-west", "--uses", "2"]);
    for n in 0..2 {
        let name = format!("eu-west-{}", n + 1);
        network.join(&name, (0, n), &token, &[]).expect("let in");
        network.start_agent(&name).await.expect("it starts");
    }
    let nodes = [network.node(0, 0), network.node(0, 1)];
    for node in nodes {
        network.together(node, 2.0).await;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let operator = operator(&network, nodes[0], folder.path()).await;
    let mut world = World {
        network,
        operator,
        nodes,
        load: None,
        answered: 0,
        _folder: folder,
    };
    world.clients().await;
    world
}

/// Whoever works at the network's centre, with what is to be deployed.
async fn operator(network: &Network, node: IpAddr, folder: &Path) -> Terminal {
    let admin = SocketAddr::new(node, network.admin_port).to_string();
    let mut operator = Terminal::open(
        folder,
        &[
            ("CONTROLLER", format!("http://{}", network.api())),
            ("ADMIN", admin),
            ("DNS", dig(network)),
        ],
        &[("fdn", format!("exec {} \"$@\"", binary("fdn").display()))],
    );
    let password = std::fs::read(network.folder().join("admin.password"));
    operator.put("admin.password", &password.expect("it is there"));
    for (name, text) in [("hello", "one"), ("changed", "two")] {
        operator.put(&format!("{name}.wasm"), &components::hello(text));
    }
    for command in [
        "fdn login $CONTROLLER --user admin --password-file admin.password",
        "fdn deploy hello hello.wasm --wait --timeout 120s",
    ] {
        let step = Step::Typed(command.to_owned(), Vec::new());
        assert_eq!(operator.follow(step, || ()).await, None);
    }
    operator
}

impl World {
    /// Clients begin when DNS sends them to both nodes.
    async fn clients(&mut self) {
        let (server, subnet) = (self.network.dns_address, REGIONS[0].subnet);
        wait::until("DNS to send clients to both nodes", async || {
            let answer = fdn_e2e::dns::ask(server, "hello.fn.test", Some(subnet), false)?;
            ensure!(answer.addresses.len() == 2, "{answer:?}");
            Ok(())
        })
        .await;
        let port = self.network.gateway_port;
        let load = Load::start(server, "hello.fn.test", port, &[subnet], "one");
        self.load = Some(load);
        self.go_on().await;
    }

    /// Waits until clients had some more answers.
    async fn go_on(&self) {
        let load = self.load.as_ref().expect("clients");
        let (before, _) = load.counts();
        wait::until("clients to be answered", async || {
            let (now, _) = load.counts();
            ensure!(now >= before + 20, "{before}, then {now}");
            Ok(())
        })
        .await;
    }

    /// Every call was answered until now; there are no clients until they begin anew.
    async fn pause(&mut self) {
        let (calls, _) = self.load.take().expect("clients").stop().await;
        self.answered += calls;
    }

    async fn follow(&mut self, steps: Vec<Step>, ahead_s: i64) {
        for step in steps {
            if let Some(asked) = self.operator.follow(step, || ()).await {
                self.does(&asked, ahead_s).await;
            }
            self.go_on().await;
        }
    }

    async fn does(&mut self, asked: &str, ahead_s: i64) {
        let of = |pattern: &str| {
            let named = |(said, _): &&(&str, &str)| asked == pattern.replace("WHO", said);
            PROCESSES.iter().find(named).map(|(_, name)| *name)
        };
        if let Some(name) = of("the clock of the WHO goes off") {
            self.network.set_clock(name, ahead_s).expect("a clock");
        } else if let Some(name) = of("the clock of the WHO is right again") {
            self.network.set_clock(name, 0).expect("a clock");
        } else if asked == "the node is started with a clock that is off" {
            self.network.set_clock(NODE, ahead_s).expect("a clock");
            self.restart().await;
            if ahead_s > 0 {
                self.renewal_is_refused().await;
            }
        } else {
            assert_eq!(asked, "the node is started anew");
            self.restart().await;
        }
    }

    async fn restart(&mut self) {
        self.pause().await;
        // Whoever is asked to stop has handed over what was called.
        self.network.stop_agent(NODE).expect("it stops");
        self.network.start_agent(NODE).await.expect("it starts");
        for node in self.nodes {
            self.network.together(node, 2.0).await;
        }
        self.clients().await;
    }

    /// By its own clock the node's certificate is due: what it asks for is refused, with words.
    async fn renewal_is_refused(&self) {
        let log = self.network.folder().join(format!("{NODE}.log"));
        wait::until("a renewal to be refused", async || {
            let text = std::fs::read_to_string(&log)?;
            let line = text.lines().find(|line| {
                line.contains(ErrorCode::CertificateRefused.as_str()) && line.contains("clock is 3")
            });
            let Some(line) = line else {
                anyhow::bail!("nothing of it in the log");
            };
            eprintln!("{line}");
            Ok(())
        })
        .await;
    }

    async fn end(mut self) {
        self.pause().await;
        let (cli, answered) = (self.network.cli().expect("logged in"), self.answered);
        cli.bills("hello", answered).await;
        eprintln!("{answered} calls were answered, none was not, and so many are billed");
        self.network.stop().expect("everything stops cleanly");
    }
}
