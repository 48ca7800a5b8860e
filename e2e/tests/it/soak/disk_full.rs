//! Disks that are full, as docs/operations/disk-full.md says it: a node's, a DNS server's, the artifact store's, while clients call.

#![allow(
    clippy::print_stderr,
    reason = "figures that a reader of the test wants to see"
)]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Result, ensure};
use fdn_core::{ErrorCode, Problem};
use fdn_e2e::tutorial::Step;
use fdn_e2e::{Deadlines, Network, binary};
use fdn_testkit::{components, wait};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::runbook::{Page, Terminal, lock};

/// Between two calls of one client.
const PAUSE: Duration = Duration::from_millis(20);
/// How large the volumes are, and what they are made.
const SMALL: &str = "8m";
const LARGE: &str = "64m";
const FULL: &str = "eu-west-1";

/// A file system of its own at a folder.
struct Volume(PathBuf);

impl Volume {
    /// Mounts it; what the folder held is in it.
    fn at(folder: &Path) -> Self {
        std::fs::create_dir_all(folder).expect("a folder");
        let kept = folder.with_extension("kept");
        std::fs::rename(folder, &kept).expect("moved");
        std::fs::create_dir(folder).expect("a folder");
        mount(&format!("size={SMALL},mode=700"), folder);
        let volume = Self(folder.to_owned());
        let copied = Command::new("cp")
            .args(["-a", "--"])
            .arg(kept.join("."))
            .arg(folder)
            .status();
        assert!(copied.expect("cp").success());
        volume
    }

    /// Fills it to the last byte.
    fn fill(&self) {
        let mut file = std::fs::File::create(self.0.join("filler")).expect("a file");
        let mut size = 1 << 20;
        while size > 0 {
            if file.write_all(&vec![0; size]).is_err() {
                size /= 2;
            }
        }
    }

    fn enlarge(&self) {
        mount(&format!("remount,size={LARGE},mode=700"), &self.0);
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // Whoever still has files there keeps them.
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

fn mount(options: &str, folder: &Path) {
    let mut command = Command::new("mount");
    command.args(["-t", "tmpfs", "-o", options, "fdn-disk-full"]);
    let done = command.arg(folder).status().expect("mount");
    assert!(done.success(), "it needs root: {command:?}");
}

/// What clients heard, by the node that they called: 200, or a status and a code.
type Heard = Arc<Mutex<BTreeMap<(IpAddr, String), u64>>>;

/// Clients of both nodes.
struct Clients {
    stop: CancellationToken,
    tasks: JoinSet<()>,
    heard: Heard,
}

impl Clients {
    fn start(nodes: [IpAddr; 2], port: u16) -> Self {
        let (stop, mut tasks, heard) = (CancellationToken::new(), JoinSet::new(), Heard::default());
        for node in nodes {
            let (stop, heard) = (stop.clone(), Arc::clone(&heard));
            tasks.spawn(async move {
                let http = fdn_service::http_client::build(wait::PATIENCE).expect("a client");
                let url = format!("http://{}/", SocketAddr::new(node, port));
                while !stop.is_cancelled() {
                    let what = call(&http, &url).await;
                    let what = what.unwrap_or_else(|error| format!("{error:#}"));
                    *lock(&heard).entry((node, what)).or_default() += 1;
                    tokio::time::sleep(PAUSE).await;
                }
            });
        }
        Self { stop, tasks, heard }
    }

    fn count(&self, node: IpAddr, what: &str) -> u64 {
        let key = (node, what.to_owned());
        lock(&self.heard).get(&key).copied().unwrap_or(0)
    }

    /// Waits until the clients of a node heard this so many times more.
    async fn hear(&self, node: IpAddr, what: &str, times: u64) {
        let before = self.count(node, what);
        wait::until("clients to hear something", async || {
            let now = self.count(node, what);
            ensure!(now >= before + times, "{node} {what}: {before}, then {now}");
            Ok(())
        })
        .await;
    }

    async fn stop(mut self) -> BTreeMap<(IpAddr, String), u64> {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("nobody panics");
        }
        lock(&self.heard).clone()
    }
}

const ANSWERED: &str = "200";

/// How one call ended, in a word.
async fn call(http: &reqwest::Client, url: &str) -> Result<String> {
    let answer = http.get(url).header("host", "hello.fn.test").send().await?;
    let (status, text) = (answer.status().as_u16(), answer.text().await?);
    if status == 200 {
        ensure!(text == "one", "200: {text}");
        return Ok(ANSWERED.to_owned());
    }
    let problem: Problem = serde_json::from_str(&text)?;
    Ok(refused(problem.code, status))
}

fn refused(code: ErrorCode, status: u16) -> String {
    format!("{status} {code}")
}

struct World {
    /// Dropped before the folder in which they are mounted.
    volumes: BTreeMap<&'static str, Volume>,
    network: Network,
    page: Page,
    operator: Terminal,
    clients: Clients,
    nodes: [IpAddr; 2],
    _folder: tempfile::TempDir,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_said_refused_with_codes_and_mended_by_room_alone() {
    let mut world = begin().await;
    world.node().await;
    world.follow("A DNS server").await;
    world.dns_has_written().await;
    world.follow("A controller").await;
    assert!(world.page.is_done(), "all of the page was followed");
    world.end().await;
}

/// A network with a node, a DNS server and an artifact store on small volumes, an app, and clients.
async fn begin() -> World {
    let network = Network::without_nodes(Deadlines::Long).await;
    let mut network = network.expect("the centre starts");
    network.kill_controller();
    network.kill_dns();
    let mut volumes = BTreeMap::new();
    for (name, folder) in [
        ("artifact store", "artifacts"),
        ("DNS server", "dns"),
        ("node", FULL),
    ] {
        volumes.insert(name, Volume::at(&network.folder().join(folder)));
    }
    network.start_controller().await.expect("it starts again");
    network.start_dns().await.expect("it starts again");
    wait::until("the controller to let somebody log in", async || {
        network.cli()
    })
    .await;
    for n in 0..2 {
        network.start_node((0, n), "").await.expect("a node starts");
    }
    let nodes = [network.node(0, 0), network.node(0, 1)];
    let folder = tempfile::tempdir().expect("a folder");
    let at = |ip: IpAddr, port| SocketAddr::new(ip, port).to_string();
    let mut operator = Terminal::open(
        folder.path(),
        &[
            ("CONTROLLER", format!("http://{}", network.api())),
            ("NODE", nodes[0].to_string()),
            ("ADMIN", at(nodes[0], network.admin_port)),
            ("DATA", network.folder().join(FULL).display().to_string()),
            ("DNS", dig(&network)),
            (
                "DNS_LOG",
                network.folder().join("dns.log").display().to_string(),
            ),
        ],
        &[("fdn", format!("exec {} \"$@\"", binary("fdn").display()))],
    );
    let password = std::fs::read(network.folder().join("admin.password"));
    operator.put("admin.password", &password.expect("it is there"));
    for (name, text) in [
        ("hello", "one"),
        ("late", "two"),
        ("second", "three"),
        ("third", "four"),
    ] {
        operator.put(&format!("{name}.wasm"), &components::hello(text));
    }
    for command in [
        "fdn login $CONTROLLER --user admin --password-file admin.password",
        "fdn deploy hello hello.wasm --wait --timeout 120s",
    ] {
        let step = Step::Typed(command.to_owned(), Vec::new());
        assert_eq!(operator.follow(step, || ()).await, None);
    }
    let clients = Clients::start(nodes, network.gateway_port);
    for node in nodes {
        clients.hear(node, ANSWERED, 20).await;
    }
    World {
        page: Page::read("disk-full.md"),
        network,
        operator,
        clients,
        nodes,
        volumes,
        _folder: folder,
    }
}

/// What `dig` is told after `@`. It asks from an address of its own, since it might get the server's port on the server's.
pub(super) fn dig(network: &Network) -> String {
    let server = network.dns_address;
    format!("{} -b 127.0.0.2 -p {}", server.ip(), server.port())
}

impl World {
    /// Types a section; the test fills and enlarges what the page says.
    async fn follow(&mut self, heading: &str) {
        for step in self.page.section(heading) {
            let Some(asked) = self.operator.follow(step, || ()).await else {
                continue;
            };
            self.change(&asked);
            // The other node answers all the while.
            self.clients.hear(self.nodes[1], ANSWERED, 20).await;
            if asked == "the disk of the node fills up" {
                self.node_is_full().await;
            } else {
                self.clients.hear(self.nodes[0], ANSWERED, 20).await;
            }
        }
    }

    fn change(&self, asked: &str) {
        let full = |name: &&&str| asked == format!("the disk of the {name} fills up");
        let larger = |name: &&&str| asked == format!("the volume of the {name} is made larger");
        if let Some(name) = self.volumes.keys().find(full) {
            self.volumes[name].fill();
        } else if let Some(name) = self.volumes.keys().find(larger) {
            self.volumes[name].enlarge();
        } else {
            panic!("the page asks for {asked:?}");
        }
    }

    async fn node(&mut self) {
        self.follow("A node").await;
        self.clients.hear(self.nodes[0], ANSWERED, 20).await;
    }

    /// Calls are refused with a code, and the metrics have the values at which `FdnSpoolDiskFails` and `FdnSpoolFull` are raised.
    async fn node_is_full(&self) {
        let code = refused(ErrorCode::Overloaded, 503);
        self.clients.hear(self.nodes[0], &code, 20).await;
        for metric in [
            "fdn_agent_usage_disk_failures_total",
            "fdn_agent_usage_refused_total",
        ] {
            let value = self.network.metric(self.nodes[0], metric, "").await;
            let value = value.expect("the node answers");
            assert!(value > 0.5, "{metric} is {value}: its alert is not raised");
            eprintln!("{metric} is {value}");
        }
    }

    /// What it could not write it has written by itself.
    async fn dns_has_written(&self) {
        let state = self.network.folder().join("dns/dns-state.bin");
        wait::until("the DNS server's state", async || {
            let bytes = std::fs::read(&state)?;
            let text = String::from_utf8_lossy(&bytes);
            ensure!(text.contains("second"), "{} bytes without it", bytes.len());
            Ok::<_, anyhow::Error>(())
        })
        .await;
    }

    /// Every call was answered or refused as the page says, and every answered one is billed once.
    async fn end(self) {
        let Self {
            mut network,
            clients,
            nodes,
            volumes,
            operator,
            ..
        } = self;
        let heard = clients.stop().await;
        eprintln!("{heard:#?}");
        let mut answered = 0;
        for ((node, what), count) in &heard {
            let ok = what == ANSWERED;
            let full = *node == nodes[0]
                && [
                    refused(ErrorCode::Overloaded, 503),
                    refused(ErrorCode::Internal, 500),
                ]
                .contains(what);
            assert!(ok || full, "{node}: {count} times {what}");
            answered += if ok { *count } else { 0 };
        }
        let cli = network.cli().expect("logged in");
        cli.bills("hello", answered).await;
        eprintln!("{answered} calls were answered, and so many are billed");
        drop(operator);
        // Each process is the one that was started at the beginning, and ends well.
        network.stop().expect("everything stops cleanly");
        drop(volumes);
    }
}
