//! PostgreSQL and RabbitMQ are upgraded as docs/operations/servers.md says it, while clients call, somebody submits jobs and somebody types commands. There is
//! one version of each here, which takes its own place: what an upgrade does is done all the same.

#![allow(
    clippy::print_stderr,
    reason = "figures that a reader of the test wants to see"
)]

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::ensure;
use fdn_e2e::network::REGIONS;
use fdn_e2e::{Cli, Deadlines, Network, binary};
use fdn_testkit::{components, ports, postgres, wait};
use serde_json::Value;

use super::runbook::{Page, Terminal, Users, call, jobs_ended};

/// What the operator does, section by section, and whether commands may be refused meanwhile.
const SECTIONS: [(&str, bool); 5] = [
    ("PostgreSQL: a minor version", true),
    ("PostgreSQL: a major version", true),
    ("RabbitMQ: in place", true),
    ("RabbitMQ: a new one in its place", true),
    ("Afterwards", false),
];
/// Jobs that the page has submitted.
const TYPED: usize = 2;
/// Regions with a node.
const CLUSTERS: usize = 2;

/// What is to be the same afterwards.
#[derive(Debug, PartialEq)]
struct State {
    versions: Vec<Value>,
    nodes: BTreeSet<String>,
    texts: Value,
}

fn state(cli: &Cli) -> State {
    let nodes = cli.json(["node", "list"]);
    let nodes = nodes.as_array().expect("a list");
    let names = nodes.iter().filter_map(|node| node["node"].as_str());
    let versions = ["hello", "work"].map(|app| cli.json(["describe", app])["versions"].clone());
    let texts = cli.json(["dns", "txt", "list"]);
    let texts = texts.as_array().expect("a list");
    State {
        versions: versions.into(),
        nodes: names.map(str::to_owned).collect(),
        texts: texts.iter().map(|row| row["values"].clone()).collect(),
    }
}

fn deploy(network: &Network, cli: &Cli, app: &str, text: &str) {
    let path = network.folder().join(format!("{app}.wasm"));
    std::fs::write(&path, components::hello(text)).expect("written");
    let manifest = network.folder().join(format!("{app}.app.toml"));
    let settings = "memory = \"16MiB\"\nidempotent = true\n";
    std::fs::write(&manifest, settings).expect("written");
    let (path, manifest) = (path.display().to_string(), manifest.display().to_string());
    let deploy = ["deploy", app, &path, "--manifest", &manifest];
    cli.ok(deploy.iter().chain(&["--wait", "--timeout", "120s"]));
}

/// The operator's shell: beside the network's programs those of both servers, which run as here, at a port of the loopback address.
fn operator(network: &Network, folder: &Path) -> Terminal {
    let settings = network.folder().join("controller.toml");
    let settings = std::fs::read_to_string(settings).expect("settings");
    let database = settings
        .lines()
        .find_map(|line| line.strip_prefix("url = \"postgres")?.strip_suffix('"'));
    let database = format!("postgres{}", database.expect("an address"));
    let server = network.postgres.url();
    let port = server.rsplit(':').next().expect("a port").to_owned();
    let aside = ports::local().to_string();
    let old = Command::new("psql")
        .args(["-At", &database, "-c", "SHOW data_directory"])
        .output()
        .expect("psql runs");
    let old = String::from_utf8(old.stdout).expect("a folder");
    // Whoever logged in with this home.
    let home = |name: &str| {
        network
            .folder()
            .join("home")
            .join(name)
            .display()
            .to_string()
    };
    let variables = [
        ("XDG_CONFIG_HOME", home("config")),
        ("XDG_DATA_HOME", home("data")),
        ("OLD", old.trim().to_owned()),
        ("ASIDE", database.replace(&port, &aside)),
        ("DATABASE", database),
        ("PORT", port),
        ("ASIDE_PORT", aside),
        ("NEW", new_folder(folder).display().to_string()),
        ("NEW_BROKER", folder.join("broker").display().to_string()),
    ];
    let own = |program: &str| postgres::shell_command(program).expect("PostgreSQL is installed");
    let mut programs = vec![
        ("fdn", runs("fdn")),
        ("fdn-controller", runs("fdn-controller")),
    ];
    for program in ["pg_ctl", "initdb"] {
        programs.push((program, format!("exec {} \"$@\"", own(program))));
    }
    let listens = "-c listen_addresses=127.0.0.1 -c unix_socket_directories=";
    let program = format!("exec {} \"$@\" {listens}", own("postgres"));
    programs.push(("postgres", program));
    let mut variable = String::new();
    for (name, value) in network.rabbit.environment() {
        let value = value.to_string_lossy().replace('\'', "'\\''");
        // What the operator says counts.
        variable += &format!("[ -n \"${{{name}_SAID-}}\" ] || export {name}='{value}'\n");
    }
    for program in ["rabbitmqctl", "rabbitmq-server"] {
        let line = format!(
            "RABBITMQ_MNESIA_BASE_SAID=${{RABBITMQ_MNESIA_BASE-}}\n{variable}exec /usr/lib/rabbitmq/bin/{program} \"$@\""
        );
        programs.push((program, line));
    }
    let terminal = Terminal::open(&folder.join("operator"), &variables, &programs);
    terminal.put("controller.toml", settings.as_bytes());
    terminal
}

/// A line of a shell that becomes a program of this build.
fn runs(program: &str) -> String {
    format!("exec {} \"$@\"", binary(program).display())
}

/// An empty folder for a new server's data, which that may use.
fn new_folder(folder: &Path) -> std::path::PathBuf {
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder, mode).expect("mode");
    let new = folder.join("postgresql");
    std::fs::create_dir(&new).expect("a folder");
    let own = postgres::shell_command("initdb").expect("PostgreSQL is installed");
    if own.starts_with("setpriv") {
        let status = Command::new("chown").arg("postgres").arg(&new).status();
        assert!(status.expect("chown runs").success());
    }
    new
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn database_and_broker_are_upgraded_under_load_as_the_runbook_says() {
    let network = Network::without_nodes(Deadlines::Shipped).await;
    let mut network = network.expect("the centre starts");
    for region in 0..CLUSTERS {
        let started = network.start_node((region, 0), "").await;
        started.expect("a node starts");
    }
    let cli = network.cli().expect("logged in");
    deploy(&network, &cli, "hello", "one");
    deploy(&network, &cli, "work", "done");
    cli.ok(["dns", "txt", "add", "_acme-challenge.hello.fn.test", "kept"]);
    let before = state(&cli);
    let folder = tempfile::tempdir().expect("a folder");
    let mut operator = operator(&network, folder.path());
    let mut page = Page::read("servers.md");
    let users = Users::start(&network, &[network.dns_address], CLUSTERS);
    users.go_on("before anything happens").await;
    for (heading, refused) in SECTIONS {
        let so_far = users.refusals();
        for step in page.section(heading) {
            let asked = operator
                .follow(step, || {
                    network.postgres.ended();
                    network.rabbit.ended();
                })
                .await;
            assert_eq!(asked, None, "nothing is left to the test");
        }
        users.go_on(heading).await;
        let now = users.refusals();
        eprintln!("refused meanwhile: {now:?}, of which before: {so_far:?}");
        assert!(refused || now == so_far, "{heading}");
        assert_eq!(state(&cli), before, "{heading}: what was there is there");
    }
    assert!(page.is_done(), "all of the page was followed");
    changes_come(&network, &cli).await;
    let done = users.stop().await;
    eprintln!(
        "{} calls, {} without an answer, {} jobs, {} commands, refused {:?}",
        done.answered,
        done.unclear,
        done.jobs.len(),
        done.commands,
        done.refusals
    );
    assert_eq!(done.unclear, 0);
    assert!(
        done.refusals.contains_key("FDN-4001") || done.refusals.contains_key("FDN-6016"),
        "there was something to refuse"
    );
    jobs_ended(&cli, &done.jobs, TYPED..=TYPED).await;
    cli.bills("hello", done.answered).await;
    network.stop().expect("everything stops cleanly");
}

/// What is deployed now comes to every node and every job's function: nothing of the ways through database and broker is lost.
async fn changes_come(network: &Network, cli: &Cli) {
    deploy(network, cli, "later", "two");
    let http = fdn_service::http_client::build(wait::PATIENCE).expect("a client");
    for (region, place) in REGIONS.iter().enumerate().take(CLUSTERS) {
        wait::until("a change to come", async || {
            let address = network.node(region, 0);
            let url = format!("http://{address}:{}/", network.gateway_port);
            let text = call(&http, &url, "later").await?;
            ensure!(text == "two", "{}: {text}", place.name);
            Ok::<_, anyhow::Error>(())
        })
        .await;
    }
}
