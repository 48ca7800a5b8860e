//! A region is lost with all of its disks and built anew, as docs/operations/region.md says it, while clients everywhere call and somebody submits jobs.

#![allow(
    clippy::print_stderr,
    reason = "figures that a reader of the test wants to see"
)]

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use fdn_core::api::header::SERVED_BY;
use fdn_core::billing::{Meter, UsageView};
use fdn_e2e::network::{NODES, REGIONS};
use fdn_e2e::{Cli, Deadlines, Network, binary, dns};
use fdn_testkit::{components, ports, wait};

use super::runbook::{Done, Page, Terminal, Users, jobs_ended};

/// The region that is lost, and the names of its new machines: an old one, and one that never was.
const LOST: usize = 2;
const NEW: [&str; 2] = ["ap-south-1", "ap-south-3"];
const DNS: &str = "dns-2";

struct Region {
    network: Network,
    cli: Cli,
    folder: tempfile::TempDir,
    page: Page,
    /// Whoever works at the network's centre.
    operator: Terminal,
    /// New machines, which run until the end.
    machines: Vec<Terminal>,
    /// Where the disks of the dead were put.
    disks: PathBuf,
    users: Users,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_region_that_is_lost_with_its_disks_is_built_anew_as_the_runbook_says() {
    let mut region = begin().await;
    region.lost().await;
    region.dead_are_removed().await;
    region.machines_come().await;
    region.dns_server_comes().await;
    region.at_home().await;
    region.end().await;
}

/// One machine in each of two regions, two and a DNS server in the third.
async fn begin() -> Region {
    let network = Network::without_nodes(Deadlines::Shipped).await;
    let mut network = network.expect("the centre starts");
    for node in [(0, 0), (1, 0), (LOST, 0), (LOST, 1)] {
        network.start_node(node, "").await.expect("a node starts");
    }
    network.start_second_dns().await.expect("it starts");
    let cli = network.cli().expect("logged in");
    deploy(&network, &cli);
    for region in [0, 1, LOST] {
        named(&network, region, &living(&network, region)).await;
    }
    let servers = [network.second_dns_address, network.dns_address];
    let users = Users::start(&network, &servers, REGIONS.len());
    users.go_on("before anything happens").await;
    let folder = tempfile::tempdir().expect("a folder");
    let operator = Terminal::open(
        &folder.path().join("operator"),
        &[("CONTROLLER", format!("http://{}", network.api()))],
        &[("fdn", runs("fdn"))],
    );
    let password = std::fs::read(network.folder().join("admin.password"));
    operator.put("admin.password", &password.expect("it is there"));
    Region {
        disks: folder.path().join("lost"),
        page: Page::read("region.md"),
        network,
        cli,
        folder,
        operator,
        machines: Vec::new(),
        users,
    }
}

/// A line of a shell that becomes a program of this build.
fn runs(program: &str) -> String {
    format!("exec {} \"$@\"", binary(program).display())
}

fn living(network: &Network, region: usize) -> BTreeSet<IpAddr> {
    let nodes = if region == LOST { NODES } else { 1 };
    (0..nodes).map(|n| network.node(region, n)).collect()
}

fn deploy(network: &Network, cli: &Cli) {
    let file = |name: &str, bytes: &[u8]| {
        let path = network.folder().join(name);
        std::fs::write(&path, bytes).expect("written");
        path.display().to_string()
    };
    let wait = ["--wait", "--timeout", "120s"];
    let secret = format!("KEY={}", file("secret", b"first"));
    let small = "memory = \"16MiB\"\nidempotent = true\n";
    for (name, component, more, settings) in [
        ("hello", components::hello("one"), vec![], String::new()),
        ("work", components::hello("done"), vec![], String::new()),
        (
            "key",
            components::env_dump("KEY"),
            vec!["--secret", &secret],
            "secrets = [\"KEY\"]\n".to_owned(),
        ),
    ] {
        let component = file(&format!("{name}.wasm"), &component);
        let manifest = file(
            &format!("{name}.app.toml"),
            format!("{small}{settings}").as_bytes(),
        );
        let deploy = ["deploy", name, &component, "--manifest", &manifest];
        cli.ok(deploy.into_iter().chain(more).chain(wait));
    }
}

/// Both DNS servers come to send a region's clients to exactly these machines.
async fn named(network: &Network, region: usize, expected: &BTreeSet<IpAddr>) {
    for server in [network.dns_address, network.second_dns_address] {
        wait::until("both DNS servers to send a region's clients", async || {
            let subnet = Some(REGIONS[region].subnet);
            let answer = dns::ask(server, "hello.fn.test", subnet, false)?;
            ensure!(
                &answer.addresses == expected,
                "{server}: {answer:?}, not {expected:?}"
            );
            Ok(())
        })
        .await;
    }
}

/// How many calls of an app stand in what a spool has not handed over.
fn waiting(usage: &Path, app: &str) -> Result<u64> {
    let mark = format!("\"app\":\"{app}\"");
    let mut count = 0;
    for entry in std::fs::read_dir(usage).with_context(|| usage.display().to_string())? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|kind| kind == "open" || kind == "seg")
        {
            let text = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
            count += text.matches(&mark).count() as u64;
        }
    }
    Ok(count)
}

/// Calls of an app as they are billed.
fn billed(cli: &Cli, app: &str) -> Result<u64> {
    let view: UsageView = serde_json::from_value(cli.json(["bill", "--by", "app"]))?;
    let row = view.rows.iter().find(|row| row.name == app);
    let calls = row.and_then(|row| row.quantities.get(&Meter::Invocations));
    Ok(u64::try_from(calls.map_or(0, |calls| calls.0))?)
}

impl Region {
    async fn types(&mut self, heading: &str) {
        for step in self.page.section(heading) {
            let asked = self.operator.follow(step, || ()).await;
            assert_eq!(asked, None, "nothing is left to the test");
        }
    }

    /// All machines of the region are switched off, and nobody sees their disks again. Its clients are answered by others.
    async fn lost(&mut self) {
        std::fs::create_dir(&self.disks).expect("a folder");
        self.users
            .lose(living(&self.network, LOST).into_iter().collect());
        let names = (0..NODES).map(|n| format!("{}-{}", REGIONS[LOST].name, n + 1));
        let names: Vec<String> = names.collect();
        for name in &names {
            self.network.kill_agent(name);
        }
        self.network.kill_second_dns();
        for name in names.iter().map(String::as_str).chain([DNS]) {
            let disk = self.network.folder().join(name);
            std::fs::rename(disk, self.disks.join(name)).expect("it is gone");
        }
        self.users.go_on("the region is gone").await;
        self.types("What happens by itself").await;
    }

    async fn dead_are_removed(&mut self) {
        self.types("Remove the dead").await;
        let nodes = self.cli.json(["node", "list"]);
        let nodes = nodes.as_array().expect("a list");
        let names: Vec<_> = nodes
            .iter()
            .filter_map(|node| node["node"].as_str())
            .collect();
        assert_eq!(names, ["eu-west-1", "us-east-1"]);
        self.users.go_on("the dead are removed").await;
        self.types("Let new machines in").await;
    }

    async fn dns_server_comes(&mut self) {
        let terminal = Terminal::open(
            &self.folder.path().join(DNS),
            &[("CONTROLLER", format!("http://{}", self.network.api()))],
            &[("fdn-dns", runs("fdn-dns"))],
        );
        let settings = self.network.folder().join(format!("{DNS}.toml"));
        terminal.put("dns.toml", &std::fs::read(settings).expect("kept"));
        terminal.put("dns.token", &self.operator.get("dns.token"));
        self.machines.push(terminal);
        let last = self.machines.len() - 1;
        self.on_machines("On the new DNS server", last).await;
        self.types("The DNS server answers").await;
    }

    async fn machines_come(&mut self) {
        let first = self.machines.len();
        for (n, name) in NEW.into_iter().enumerate() {
            let ip = self.network.node(LOST, n);
            let flags = format!(
                "--data data --config edge-agent.toml --address {ip} --gateway-port {} --admin-port {} --peer-port {} --controller-port {}",
                self.network.gateway_port,
                self.network.admin_port,
                self.network.peer_port,
                ports::free(&[ip])
            );
            let agent = binary("fdn-edge-agent").display().to_string();
            let program = format!(
                "if [ \"$1\" = join ]; then exec {agent} \"$@\" {flags}; fi\nexec {agent} --config edge-agent.toml"
            );
            let terminal = Terminal::open(
                &self.folder.path().join(name),
                &[
                    ("CONTROLLER", format!("http://{}", self.network.api())),
                    ("NAME", name.to_owned()),
                ],
                &[("fdn-edge-agent", program)],
            );
            terminal.put("token", &self.operator.get("token"));
            self.machines.push(terminal);
        }
        self.on_machines("On each new machine", first).await;
        self.types("The region serves").await;
    }

    /// Types a section on each new machine from this one on.
    async fn on_machines(&mut self, heading: &str, first: usize) {
        for step in self.page.section(heading) {
            for machine in &mut self.machines[first..] {
                let asked = machine.follow(step.clone(), || ()).await;
                assert_eq!(asked, None, "nothing is left to the test");
            }
        }
    }

    /// Clients of the region are sent home, where all apps are, with what is secret of them; the machines are one cluster.
    async fn at_home(&mut self) {
        assert!(self.page.is_done(), "all of the page was followed");
        let home = living(&self.network, LOST);
        named(&self.network, LOST, &home).await;
        let http = fdn_service::http_client::build(wait::PATIENCE).expect("a client");
        for address in &home {
            for (app, expected) in [("key", "first"), ("work", "done")] {
                wait::until("an app to be back", async || {
                    let url = format!("http://{address}:{}/", self.network.gateway_port);
                    let host = format!("{app}.fn.test");
                    let answer = http.get(url).header("host", host).send().await?;
                    let by = answer.headers().get(SERVED_BY).cloned();
                    let (status, text) = (answer.status(), answer.text().await?);
                    ensure!(
                        status == 200 && text == expected && by.is_none(),
                        "{address}: {status} {text} by {by:?}"
                    );
                    Ok::<_, anyhow::Error>(())
                })
                .await;
            }
            self.network.together(*address, 2.0).await;
        }
        self.users.go_on("the region is there again").await;
    }

    /// Everything that was answered is billed or was on the lost disks; every job ended once.
    async fn end(self) {
        let Self {
            mut network,
            cli,
            disks,
            users,
            machines,
            ..
        } = self;
        let done = users.stop().await;
        jobs_ended(&cli, &done.jobs, 0..=0).await;
        for address in [0, 1, LOST]
            .into_iter()
            .flat_map(|region| living(&network, region))
        {
            wait::until("all usage to be handed over", async || {
                let left = network
                    .metric(address, "fdn_agent_usage_spool_bytes", "")
                    .await?;
                ensure!(left < 0.5, "{address}: {left} bytes");
                Ok::<_, anyhow::Error>(())
            })
            .await;
        }
        adds_up(&cli, &disks, &done);
        drop(machines);
        network.stop().expect("everything stops cleanly");
    }
}

fn adds_up(cli: &Cli, disks: &Path, done: &Done) {
    let billed = billed(cli, "hello").expect("a bill");
    let on_disks = (0..NODES)
        .map(|n| disks.join(format!("{}-{}/usage", REGIONS[LOST].name, n + 1)))
        .map(|usage| waiting(&usage, "hello").expect("a spool"))
        .sum::<u64>();
    eprintln!(
        "{} calls were answered, {billed} are billed, {on_disks} stood on the lost disks; {} had no answer, the last of them sent {:?} after the death; {} jobs, {} commands, refused {:?}",
        done.answered,
        done.unclear,
        done.last_unclear,
        done.jobs.len(),
        done.commands,
        done.refusals
    );
    assert!(
        done.answered <= billed + on_disks,
        "what was answered is billed, or stood on the lost disks"
    );
    assert!(
        billed <= done.answered + done.unclear,
        "nothing is billed that nobody asked for"
    );
    assert!(done.refusals.is_empty(), "{:?}", done.refusals);
}
