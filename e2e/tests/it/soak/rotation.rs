//! Keys and certificates are changed as docs/operations/rotation.md says it, while clients call, somebody submits jobs and somebody types commands.

#![allow(
    clippy::print_stderr,
    reason = "figures that a reader of the test wants to see"
)]

use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use fdn_e2e::network::REGIONS;
use fdn_e2e::tutorial::Step;
use fdn_e2e::{Cli, Deadlines, Network, binary, dns};
use fdn_testkit::{components, ports, wait};

use super::runbook::{Page, Terminal, Users, call, certificate, jobs_ended};

struct World {
    network: Network,
    operator: Terminal,
    users: Option<Users>,
    folder: tempfile::TempDir,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_and_certificates_are_changed_under_load_as_the_runbook_says() {
    let mut world = begin().await;
    let mut page = Page::read("rotation.md");
    world.follow(page.section("The master key")).await;
    // Another machine's controller has had its own copy from the beginning.
    let ring = std::fs::read(world.network.folder().join("master.key"));
    world.operator.put("other.key", &ring.expect("a ring"));
    let rest = [
        "The master key, a file for each controller",
        "The certificate of API and console",
        "Certificates of gateways",
    ];
    for heading in rest {
        world.follow(page.section(heading)).await;
    }
    assert!(page.is_done(), "all of the page was followed");
    world.end().await;
}

/// A node whose gateway has TLS, and a controller whose API has it once all machines have joined.
async fn begin() -> World {
    let network = Network::without_nodes(Deadlines::Shipped).await;
    let mut network = network.expect("the centre starts");
    let folder = tempfile::tempdir().expect("a folder");
    let node = network.node(0, 0);
    let gateway = SocketAddr::new(node, ports::free(&[node]));
    let operator = operator(&network, gateway, folder.path());
    certificate(&operator, "api", "IP:127.0.0.1");
    certificate(&operator, "gateway", "DNS:*.fn.test");
    let work = folder.path().join("work");
    let pair = |name: &str| {
        format!(
            "certificate_file = \"{0}/{name}.crt\"\nkey_file = \"{0}/{name}.key\"\n",
            work.display()
        )
    };
    let tls = format!(
        "[gateway.tls]\nlisten = \"{gateway}\"\n[[gateway.tls.certificates]]\n{}",
        pair("gateway")
    );
    let started = network.start_node((0, 0), &tls).await;
    started.expect("a node starts");
    let settings = network.folder().join("controller.toml");
    let text = std::fs::read_to_string(&settings).expect("settings");
    let text = format!("{text}\n[[api.tls.certificates]]\n{}", pair("api"));
    std::fs::write(&settings, &text).expect("written");
    let ring = work.join("other.key");
    let other = format!(
        "{text}\n[secrets]\nmaster_key_file = \"{}\"\n",
        ring.display()
    );
    operator.put("other.toml", other.as_bytes());
    network.kill_controller();
    network.start_controller().await.expect("it starts again");
    let mut world = World {
        network,
        operator,
        users: None,
        folder,
    };
    world.log_in().await;
    let (server, subnet) = (world.network.dns_address, REGIONS[0].subnet);
    wait::until("DNS to send clients to the node", async || {
        let answer = dns::ask(server, "hello.fn.test", Some(subnet), false)?;
        ensure!(answer.addresses.len() == 1, "{answer:?}");
        Ok(())
    })
    .await;
    let users = Users::start(&world.network, &[server], 1);
    users.go_on("before anything happens").await;
    world.users = Some(users);
    world
}

/// Whoever works at the centre, with the controller's settings and what is deployed.
fn operator(network: &Network, gateway: SocketAddr, folder: &Path) -> Terminal {
    let runs = |program: &str| format!("exec {} \"$@\"", binary(program).display());
    let ring = network.folder().join("master.key");
    let operator = Terminal::open(
        folder,
        &[
            ("API", network.api().to_string()),
            ("GATEWAY", gateway.to_string()),
            ("FIRST_KEY", ring.display().to_string()),
        ],
        &[
            ("fdn", runs("fdn")),
            ("fdn-controller", runs("fdn-controller")),
        ],
    );
    let there = folder.join("work/controller.toml");
    symlink(network.folder().join("controller.toml"), there).expect("a link");
    let password = std::fs::read(network.folder().join("admin.password"));
    operator.put("admin.password", &password.expect("it is there"));
    for (name, text) in [("hello", "one"), ("work", "done")] {
        operator.put(&format!("{name}.wasm"), &components::hello(text));
    }
    operator.put("key.wasm", &components::env_dump("KEY"));
    let settings = "memory = \"16MiB\"\nidempotent = true\n";
    operator.put("fdn.toml", settings.as_bytes());
    let settings = format!("{settings}secrets = [\"KEY\"]\n");
    operator.put("key.toml", settings.as_bytes());
    for secret in ["first", "second", "third"] {
        operator.put(secret, secret.as_bytes());
    }
    operator
}

impl World {
    fn authority(&self) -> PathBuf {
        self.folder.path().join("work/authority.crt")
    }

    /// Logs in by TLS whoever types the page's commands and whoever uses the network, and deploys.
    async fn log_in(&mut self) {
        let url = format!("https://{}", self.network.api());
        let users = Cli::new(&self.network.folder().join("home"));
        let password = self.network.folder().join("admin.password");
        let authority = self.authority();
        wait::until("the controller to let somebody log in", async || {
            let login = ["login", &url, "--user", "admin"].map(AsRef::as_ref);
            let files = [
                "--ca-file".as_ref(),
                authority.as_os_str(),
                "--password-file".as_ref(),
                password.as_os_str(),
            ];
            let typed = users.run(login.iter().chain(&files));
            ensure!(typed.code == 0, "{}", typed.err);
            Ok(())
        })
        .await;
        for command in [
            "fdn login https://$API --ca-file authority.crt --user admin --password-file admin.password",
            "fdn deploy hello hello.wasm --wait --timeout 120s",
            "fdn deploy work work.wasm --wait --timeout 120s",
            "fdn deploy key key.wasm --manifest key.toml --secret KEY=first --wait --timeout 120s",
        ] {
            let step = Step::Typed(command.to_owned(), Vec::new());
            assert_eq!(self.operator.follow(step, || ()).await, None);
        }
    }

    async fn follow(&mut self, steps: Vec<Step>) {
        for step in steps {
            if let Some(asked) = self.operator.follow(step, || ()).await {
                self.does(&asked).await;
            }
        }
        let users = self.users.as_ref().expect("they use it");
        users.go_on("after a section").await;
        let refusals = users.refusals();
        assert!(refusals.is_empty(), "{refusals:?}");
    }

    async fn does(&mut self, asked: &str) {
        match asked {
            "another node is told of the secret" => self.another().await,
            "the authority signs a new certificate of the API" => {
                certificate(&self.operator, "new", "IP:127.0.0.1");
            }
            "the authority signs a new certificate of the gateways" => {
                certificate(&self.operator, "new", "DNS:*.fn.test");
            }
            other => panic!("nobody knows how: {other}"),
        }
    }

    /// A node that knew nothing before gets the secret from the controller, which opens it with the new key alone.
    async fn another(&mut self) {
        let name = "eu-west-2";
        let users = Cli::new(&self.network.folder().join("home"));
        let token = users.ok(["node", "token", "--cluster", "eu-west"]);
        let authority = self.authority().display().to_string();
        let more = ["--ca-file", &authority];
        let joined = self.network.join_at("https", name, (0, 1), &token, &more);
        joined.expect("let in");
        self.network.start_agent(name).await.expect("it starts");
        let address = SocketAddr::new(self.network.node(0, 1), self.network.gateway_port);
        let http = fdn_service::http_client::build(wait::PATIENCE).expect("a client");
        wait::until("the new node to answer with the secret", async || {
            let text = call(&http, &format!("http://{address}/"), "key").await?;
            ensure!(text == "second", "{text}");
            Ok::<_, anyhow::Error>(())
        })
        .await;
    }

    async fn end(mut self) {
        let done = self.users.take().expect("they use it").stop().await;
        eprintln!(
            "{} calls, {} jobs, {} commands; refused: {:?}",
            done.answered,
            done.jobs.len(),
            done.commands,
            done.refusals
        );
        assert!(done.unclear == 0 && done.refusals.is_empty());
        let users = Cli::new(&self.network.folder().join("home"));
        jobs_ended(&users, &done.jobs, 0..=0).await;
        // One more is the call that the page makes.
        users.bills("hello", done.answered + 1).await;
        self.network.stop().expect("everything stops cleanly");
    }
}

/// The shortest lives that controllers let certificates have, of machines an hour, and of an authority what that asks for.
const SHORT: &str = "[enrolment]\ncertificate_lifetime = \"1h\"\nauthority_settle = \"1s\"\nauthority_lifetime = \"241m\"\n";
/// Minutes after the beginning at which everything is started anew: each time a certificate is due (after 40) and has not ended (after 60).
const MINUTES: [i64; 7] = [45, 90, 125, 135, 180, 225, 270];
/// When the next authority has been made (two certificates' lives before the end of the first) and has signed, and when the first has ended.
const MADE: i64 = 125;
const SIGNED: i64 = 135;
const ENDED: i64 = 270;
const NODE: &str = "eu-west-1";

/// A node's certificate, and the authorities that it believes.
fn identity(network: &Network) -> Result<(String, Vec<String>)> {
    let folder = network.folder().join(NODE).join("identity");
    let own = std::fs::read_to_string(folder.join("node.pem"))?;
    let all = std::fs::read_to_string(folder.join("ca.pem"))?;
    let all = all.split_inclusive("-----END CERTIFICATE-----\n");
    let all = all.filter(|one| one.contains("BEGIN")).map(str::to_owned);
    Ok((own, all.collect()))
}

/// Whether this authority alone has signed a certificate, as openssl sees it, whatever the time.
fn signed(network: &Network, authority: &str, certificate: &str) -> bool {
    let files = ["authority.pem", "certificate.pem"].map(|name| network.folder().join(name));
    for (file, text) in files.iter().zip([authority, certificate]) {
        std::fs::write(file, text).expect("written");
    }
    let mut command = Command::new("openssl");
    command.args(["verify", "-no_check_time", "-CAfile"]);
    let output = command.args(&files).output().expect("openssl runs");
    output.status.success()
}

/// Everything is ended and started so many minutes later.
async fn later(network: &mut Network, minutes: i64) {
    network.stop_agent(NODE).expect("it stops");
    network.kill_dns();
    network.kill_controller();
    for name in ["controller", "dns", NODE] {
        let set = network.set_clock(name, minutes * 60);
        set.expect("a clock");
    }
    network.start_controller().await.expect("it starts again");
    network.start_dns().await.expect("it starts again");
    network.start_agent(NODE).await.expect("it starts again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_follow_one_authority_after_another() {
    let network = Network::without_nodes_set(Deadlines::Shipped, SHORT).await;
    let mut network = network.expect("the centre starts");
    let started = network.start_node((0, 0), "").await;
    started.expect("a node starts");
    let cli = network.cli().expect("logged in");
    let path = network.folder().join("hello.wasm");
    std::fs::write(&path, components::hello("one")).expect("written");
    let path = path.display().to_string();
    cli.ok(["deploy", "hello", &path, "--wait", "--timeout", "120s"]);
    let (mut own, first) = identity(&network).expect("it has joined");
    assert_eq!(first.len(), 1, "there is one authority");
    let http = fdn_service::http_client::build(wait::PATIENCE).expect("a client");
    for minutes in MINUTES {
        later(&mut network, minutes).await;
        let (now, authorities) = wait::until("the node's next certificate", async || {
            let (now, authorities) = identity(&network)?;
            // At that moment none is due: the authority is.
            ensure!(minutes == MADE || now != own, "it is the one of before");
            ensure!(minutes != MADE || authorities.len() == 2, "{authorities:?}");
            let known = authorities.contains(&first[0]);
            ensure!(known == (minutes < ENDED), "{authorities:?}");
            Ok::<_, anyhow::Error>((now, authorities))
        })
        .await;
        let of_first = signed(&network, &first[0], &now);
        assert_eq!(of_first, minutes < SIGNED, "after {minutes} minutes");
        eprintln!(
            "after {minutes} minutes it believes {} authorities",
            authorities.len()
        );
        own = now;
        let (server, subnet) = (network.dns_address, REGIONS[0].subnet);
        let port = network.gateway_port;
        wait::until("clients to be sent to the node and answered", async || {
            let answer = dns::ask(server, "hello.fn.test", Some(subnet), false)?;
            ensure!(answer.addresses.len() == 1, "{answer:?}");
            for address in answer.addresses {
                let url = format!("http://{}/", SocketAddr::new(address, port));
                ensure!(call(&http, &url, "hello").await? == "one");
            }
            let typed = cli.run(["node", "list"]);
            ensure!(typed.code == 0, "{}", typed.err);
            ensure!(typed.out.contains(" alive "), "{}", typed.out);
            Ok::<_, anyhow::Error>(())
        })
        .await;
    }
    network.stop().expect("everything stops cleanly");
}
