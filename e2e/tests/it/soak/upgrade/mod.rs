//! A network of the revision before is upgraded while it is used, in the steps of docs/operations/upgrade.md; each machine's process is replaced on its
//! own data, things are deployed, changed, joined and drained while versions are mixed, and one step is taken back. The group `upgrade` alone runs it.

#![allow(
    clippy::print_stderr,
    reason = "figures that a reader of the test wants to see"
)]

mod checks;
mod load;

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::{Result, ensure};
use fdn_e2e::fleet::CLUSTERS;
use fdn_e2e::network::{NODES, REGIONS};
use fdn_e2e::{Cli, Fleet, Programs, dns};
use fdn_testkit::process::Program;
use fdn_testkit::{components, wait};

use checks::{Before, state};
use load::Load;

/// Whose commands the test types, and whose the load.
const HOME: &str = "home";
const USER: &str = "user";
const CHALLENGE: &str = "_acme-challenge.hello.fn.test";
/// What a release says of a database that a newer one has brought further.
const REFUSAL: &str = "a newer release has brought this metadata store to schema";
/// The version of a migration that no release has yet.
const LATER: &str = "99991231235959";

struct Upgrade {
    fleet: Fleet,
    old: Programs,
    new: Programs,
    cli: Cli,
    load: Load,
    /// Jobs that were submitted beside those of the load.
    jobs: BTreeSet<String>,
    /// Whether controllers have agents of their own release, or the ones that they had: else jobs may wait.
    jobs_run: bool,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_revision_before_is_upgraded_and_taken_back_a_step_while_it_is_used() {
    let (old, new) = (Programs::before(), Programs::built());
    let fleet = Fleet::start(&old)
        .await
        .expect("the revision before starts");
    let cli = fleet.cli(&old, HOME).expect("logged in");
    deploy(&fleet, &cli);
    let before = state(&fleet, &cli);
    let typed = fleet.cli(&old, USER).expect("logged in");
    let load = Load::start(&fleet, typed).await.expect("it begins");
    let mut upgrade = Upgrade {
        fleet,
        old,
        new,
        cli,
        load,
        jobs: BTreeSet::new(),
        jobs_run: true,
    };
    upgrade.mixed("all of the revision before").await;
    let pending = upgrade.prepare();
    upgrade.controllers(pending).await;
    upgrade.dns_servers().await;
    upgrade.agents().await;
    upgrade.command().await;
    upgrade.back().await;
    upgrade.refused(pending).await;
    upgrade.end(&before).await;
}

/// Deploys what is used all the while: two functions and a workflow of them whose second stage has no room in the first cluster, a function for jobs, one
/// that says what is set for it, and one that says a secret; a schedule and a text record.
fn deploy(fleet: &Fleet, cli: &Cli) {
    let app = |name: &str, component: Vec<u8>, manifest: &str, more: &[&str]| {
        let (file, settings) = (
            fleet.path(&format!("{name}.wasm")),
            fleet.settings(&format!("app-{name}")),
        );
        std::fs::write(&file, component).expect("written");
        std::fs::write(&settings, manifest).expect("written");
        let (file, settings) = (file.display().to_string(), settings.display().to_string());
        let deploy = ["deploy", name, &file, "--manifest", &settings];
        cli.ok(deploy.iter().chain(more));
    };
    let wait = ["--wait", "--timeout", "120s"];
    let small = "memory = \"16MiB\"\n";
    app("hello", components::hello("one"), small, &wait);
    let idempotent = format!("{small}idempotent = true\n");
    app("work", components::hello("done"), &idempotent, &wait);
    let level = format!("{small}[env]\nLEVEL = \"first\"\n");
    app("level", components::env_dump("LEVEL"), &level, &wait);
    let secret = fleet.path("secret");
    std::fs::write(&secret, "first").expect("written");
    let given = format!("KEY={}", secret.display());
    let key = format!("{small}secrets = [\"KEY\"]\n");
    let more = ["--secret", &given, "--wait", "--timeout", "120s"];
    app("key", components::env_dump("KEY"), &key, &more);
    app("near", components::hello("near"), small, &["--no-wait"]);
    let large = "memory = \"256MiB\"\n";
    app("far", components::hello("far"), large, &["--no-wait"]);
    let file = fleet.path("flow.yaml");
    let flow = "stages:\n  - name: in\n    function: near\n  - name: out\n    function: far\n    needs: [in]\n";
    std::fs::write(&file, flow).expect("written");
    let file = file.display().to_string();
    cli.ok(["workflow", "deploy", "flow", &file].iter().chain(&wait));
    cli.ok([
        "schedule",
        "set",
        "work",
        "every",
        "* * * * *",
        "--data",
        "x",
    ]);
    cli.ok(["dns", "txt", "add", CHALLENGE, "kept"]);
}

/// What an app answers at one gateway.
async fn call(fleet: &Fleet, address: IpAddr, app: &str) -> Result<String> {
    let client = fdn_service::http_client::build(wait::PATIENCE)?;
    let url = format!("http://{address}:{}/", fleet.gateway_port);
    let request = client.get(url).header("host", format!("{app}.fn.test"));
    let answer = request.send().await?;
    let (status, text) = (answer.status(), answer.text().await?);
    ensure!(status == 200, "{status}: {text}");
    Ok(text)
}

impl Upgrade {
    /// Every gateway of the network comes to answer this for an app.
    async fn everywhere(&self, app: &str, expected: &str) {
        for address in (0..CLUSTERS).flat_map(|cluster| self.fleet.gateways(cluster)) {
            wait::until("every gateway to follow", async || {
                let got = call(&self.fleet, address, app).await?;
                ensure!(got == expected, "{app} at {address}: {got}, not {expected}");
                Ok::<_, anyhow::Error>(())
            })
            .await;
        }
    }

    /// Both DNS servers come to send a cluster's clients to these gateways.
    async fn named(&self, cluster: usize, expected: &BTreeSet<IpAddr>) {
        for server in self.fleet.dns {
            wait::until("both DNS servers to follow", async || {
                let subnet = Some(REGIONS[cluster].subnet);
                let answer = dns::ask(server, "hello.fn.test", subnet, false)?;
                ensure!(
                    &answer.addresses == expected,
                    "{server}: {answer:?}, not {expected:?}"
                );
                let texts = dns::texts(server, CHALLENGE)?;
                ensure!(texts == BTreeSet::from(["kept".to_owned()]), "{texts:?}");
                Ok(())
            })
            .await;
        }
    }

    /// While versions are mixed: a version, a value, a secret and a job are followed everywhere, the workflow crosses clusters, everything is named, and
    /// the load goes on.
    async fn mixed(&mut self, how: &str) {
        eprintln!("{how}");
        let text = how.replace(' ', "-");
        let (file, secret) = (self.fleet.path("turn.wasm"), self.fleet.path("secret"));
        std::fs::write(&file, components::hello(&text)).expect("written");
        std::fs::write(&secret, &text).expect("written");
        let settings = self.fleet.settings("app-hello").display().to_string();
        let (file, secret) = (file.display().to_string(), secret.display().to_string());
        let deploy = ["deploy", "turn", &file, "--manifest", &settings];
        let cli = &self.cli;
        cli.ok(deploy.iter().chain(&["--wait", "--timeout", "120s"]));
        cli.ok(["env", "set", "level", &format!("LEVEL={text}")]);
        cli.ok(["secret", "set", "key", "KEY", "--file", &secret]);
        let job = cli.json(["job", "submit", "work", "--data", &text]);
        let job = job[0]["id"].as_str().expect("an id").to_owned();
        for app in ["turn", "level", "key"] {
            self.everywhere(app, &text).await;
        }
        self.everywhere("flow", "far").await;
        if self.jobs_run {
            let ended = cli.json(["job", "status", &job, "--wait", "--timeout", "60s"]);
            assert_eq!(ended[0]["state"], "succeeded", "{how}: {ended}");
        }
        self.jobs.insert(job);
        for cluster in 0..CLUSTERS {
            self.named(cluster, &self.fleet.gateways(cluster)).await;
        }
        self.load.goes_on(how).await;
    }

    /// What comes before: the new release's migrations are tried, and the old one makes a backup. How many migrations there are.
    fn prepare(&self) -> usize {
        let settings = self.fleet.settings("controller-1");
        let tried = self
            .fleet
            .centre(&self.new, &settings, &["migrate", "--dry-run"]);
        let tried = tried.expect("it can be upgraded");
        let pending = tried.lines().filter(|line| line.starts_with("20")).count();
        assert!(
            tried.contains(&format!("{pending} migrations would be applied")),
            "{tried}"
        );
        let archive = self.fleet.path("fdn.backup").display().to_string();
        let backup = self
            .fleet
            .centre(&self.old, &settings, &["backup", &archive]);
        let backup = backup.expect("a backup of the revision before");
        eprintln!(
            "{pending} migrations to come; {}",
            backup.lines().next().unwrap_or_default()
        );
        pending
    }

    async fn replace(&mut self, name: &str, by: &Programs) {
        let replaced = self.fleet.replace(name, by).await;
        replaced.unwrap_or_else(|error| panic!("{name}: {error:#}"));
    }

    /// Where the schema is the same, one is taken back while everything else is as before.
    async fn controllers(&mut self, pending: usize) {
        let (old, new) = (self.old.clone(), self.new.clone());
        self.jobs_run = false;
        self.controller("controller-1", &new, "one controller is new")
            .await;
        self.newcomer(&old, 1).await;
        if pending == 0 {
            let how = "the controller is taken back";
            self.controller("controller-1", &old, how).await;
            let how = "the controller is new again";
            self.controller("controller-1", &new, how).await;
        }
        self.controller("controller-2", &new, "the controllers are new")
            .await;
    }

    async fn controller(&mut self, name: &str, by: &Programs, how: &str) {
        self.replace(name, by).await;
        self.fleet.ready(name).await;
        self.mixed(how).await;
    }

    async fn dns_servers(&mut self) {
        let new = self.new.clone();
        for (name, how) in [
            ("dns-1", "one DNS server is new"),
            ("dns-2", "the DNS servers are new"),
        ] {
            self.replace(name, &new).await;
            self.fleet.ready(name).await;
            self.mixed(how).await;
        }
    }

    async fn agents(&mut self) {
        let new = self.new.clone();
        for (cluster, region) in REGIONS.iter().take(CLUSTERS).enumerate() {
            for n in 0..NODES {
                self.agent(cluster, n, &new).await;
                self.jobs_run = true;
                let how = format!("nodes up to {} {} are new", region.name, n + 1);
                self.mixed(&how).await;
                if (cluster, n) == (0, 0) {
                    self.newcomer(&new, 0).await;
                }
            }
        }
    }

    /// Replaces a node's process: drained first, which DNS follows, and back afterwards.
    async fn agent(&mut self, cluster: usize, n: usize, by: &Programs) {
        let name = format!("{}-{}", REGIONS[cluster].name, n + 1);
        let all = self.fleet.gateways(cluster);
        let gateway = self.fleet.address(&name).ip();
        let others = all.iter().copied().filter(|each| *each != gateway);
        self.cli.ok(["node", "drain", &name, "--timeout", "60s"]);
        self.named(cluster, &others.collect()).await;
        if *by == self.old {
            self.handed_over(&name).await;
        }
        self.replace(&name, by).await;
        self.cli.ok(["node", "uncordon", &name]);
        self.fleet.ready(&name).await;
        self.named(cluster, &all).await;
        self.together(cluster).await;
    }

    /// A node's usage is all with the controllers.
    async fn handed_over(&self, name: &str) {
        wait::until("the usage to be handed over", async || {
            let left = self
                .fleet
                .metric(name, "fdn_agent_usage_spool_bytes", "")
                .await?;
            ensure!(left < 0.5, "{left} bytes are left");
            Ok::<_, anyhow::Error>(())
        })
        .await;
    }

    /// All running nodes of a cluster know each other.
    async fn together(&self, cluster: usize) {
        let count = self.fleet.gateways(cluster).len();
        for n in 0..count {
            let name = format!("{}-{}", REGIONS[cluster].name, n + 1);
            wait::until("the cluster to be whole", async || {
                let alive = self
                    .fleet
                    .metric(&name, "fdn_cluster_members", "alive")
                    .await?;
                let quorum = self.fleet.metric(&name, "fdn_cluster_quorum", "").await?;
                let whole = (alive - count as f64).abs() < 0.5 && quorum > 0.5;
                ensure!(whole, "{name}: {alive} members, quorum {quorum}");
                Ok::<_, anyhow::Error>(())
            })
            .await;
        }
    }

    /// One more machine joins, serves, is drained and removed.
    async fn newcomer(&mut self, programs: &Programs, cluster: usize) {
        let before = self.fleet.gateways(cluster);
        let joined = self.fleet.join(programs, (cluster, NODES)).await;
        let name = joined.expect("it is let in");
        self.named(cluster, &self.fleet.gateways(cluster)).await;
        self.together(cluster).await;
        self.everywhere("near", "near").await;
        self.load.goes_on("one more machine").await;
        self.cli.ok(["node", "drain", &name, "--timeout", "60s"]);
        self.named(cluster, &before).await;
        self.handed_over(&name).await;
        self.cli.ok(["node", "remove", &name, "--yes"]);
        self.fleet.stop(&name).expect("it ends well");
        self.together(cluster).await;
    }

    /// The command line comes last. It is logged in as the one before was.
    async fn command(&mut self) {
        let fdn = |home: &str| Cli::with(&self.fleet.path(home), self.new.path("fdn"));
        self.cli = fdn(HOME);
        self.load.types(fdn(USER));
        self.mixed("everything is new").await;
        checks::all_new(&self.fleet, &self.new, &self.cli);
    }

    /// One step back and forward again: a DNS server and an agent.
    async fn back(&mut self) {
        let (old, new) = (self.old.clone(), self.new.clone());
        for (by, how) in [(&old, "taken back"), (&new, "new again")] {
            self.replace("dns-1", by).await;
            self.fleet.ready("dns-1").await;
            self.mixed(&format!("a DNS server is {how}")).await;
            self.agent(0, 0, by).await;
            self.mixed(&format!("a node is {how}")).await;
        }
        checks::all_new(&self.fleet, &self.new, &self.cli);
    }

    /// The old controller does not start on a database that a newer one has brought further, and says what to do.
    async fn refused(&self, pending: usize) {
        let (settings, database) = self.fleet.aside(&self.new).expect("a database aside");
        let columns = "version, description, installed_on, success, checksum, execution_time";
        let later = format!(
            "INSERT INTO _sqlx_migrations ({columns}) VALUES ({LATER}, 'of a later release', now(), true, '\\x00', 0)"
        );
        database.execute(&later).expect("it takes a row");
        let mut refused = vec![(settings, LATER.to_owned())];
        if pending > 0 {
            refused.push((self.fleet.settings("controller-1"), String::new()));
        }
        for (settings, schema) in refused {
            let log = settings.with_extension("refused.log");
            let arguments = ["--config".as_ref(), settings.as_os_str()];
            let program = Program::new(self.old.path("fdn-controller"), arguments);
            let mut process = program.start(&log).expect("it can be started");
            let status = wait::until("it to end", async || process.ended().ok_or("it runs")).await;
            let said = process.log();
            assert!(!status.success(), "{said}");
            assert!(said.contains(&format!("{REFUSAL} {schema}")), "{said}");
            assert!(
                said.contains("restore a backup of before the upgrade"),
                "{said}"
            );
        }
    }

    /// Everything is as it was, nothing failed, and all that was done is counted once.
    async fn end(self, before: &Before) {
        let Self {
            fleet,
            cli,
            load,
            jobs,
            ..
        } = self;
        let done = load.stop().await;
        eprintln!(
            "{} calls, {} runs, {} commands, {} jobs; none failed",
            done.calls,
            done.runs,
            done.commands,
            done.jobs.len()
        );
        let after = state(&fleet, &cli);
        assert_eq!(*before, after, "what was deployed is the same");
        let attempts = checks::jobs(&fleet, &cli, &done, &jobs).await;
        checks::usage(&cli, &done, attempts).await;
        checks::logs(&fleet).await;
        let mut fleet = fleet;
        for name in fleet.running() {
            fleet.stop(&name).expect("it ends well");
        }
    }
}
