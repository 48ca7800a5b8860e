//! The tutorial of the documentation, typed word for word on new data directories.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::ensure;
use fdn_e2e::tutorial::{Shell, Step, check, steps};
use fdn_e2e::{Deadlines, Network, binary, root};
use fdn_testkit::process::{Process, Program};
use fdn_testkit::{docker, exclusive, ports, wait};

/// What the page promises for its halves, fifteen minutes in all.
const FIRST: Duration = Duration::from_secs(10 * 60);
const SECOND: Duration = Duration::from_secs(5 * 60);
/// The first section of the second half, which needs a network of separate processes.
const SECOND_HALF: &str = "Machines of their own";
/// The section of the first half that makes an image, which the second half uses too.
const IMAGE: &str = "A container";

/// Somebody at a machine, with programs of this build in front of all others.
pub(super) struct Person {
    folder: PathBuf,
    pub(super) variables: BTreeMap<String, String>,
}

impl Person {
    pub(super) fn new(folder: &Path) -> Self {
        let home = std::env::var("HOME").expect("a home");
        let variable = |name: &str, fallback: String| {
            (name.to_owned(), std::env::var(name).unwrap_or(fallback))
        };
        let path = std::env::var("PATH").expect("a path");
        let at = |name: &str| folder.join(name).display().to_string();
        let tools = root().join("functions/.venv/bin/componentize-py");
        let mut variables = BTreeMap::from([
            // Where the tools of Rust are, though the home is another one.
            variable("CARGO_HOME", format!("{home}/.cargo")),
            variable("RUSTUP_HOME", format!("{home}/.rustup")),
            ("PATH".to_owned(), format!("{}:{path}", at("bin"))),
        ]);
        for (name, value) in [
            ("HOME", at("home")),
            ("XDG_CONFIG_HOME", at("home/config")),
            ("XDG_DATA_HOME", at("home/data")),
            ("XDG_CACHE_HOME", at("home/cache")),
            ("FUNCTIONS", root().join("functions").display().to_string()),
            ("COMPONENTIZE_PY", tools.display().to_string()),
        ] {
            variables.insert(name.to_owned(), value);
        }
        for name in ["bin", "home", "work"] {
            std::fs::create_dir_all(folder.join(name)).expect("a folder");
        }
        Self {
            folder: folder.to_owned(),
            variables,
        }
    }

    /// A program that runs another one with arguments of the test: ports that are free.
    pub(super) fn program(&self, name: &str, script: &str) {
        let path = self.folder.join("bin").join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, mode).expect("mode");
    }

    pub(super) fn work(&self) -> PathBuf {
        self.folder.join("work")
    }

    pub(super) fn shell(&self) -> Shell {
        let variables: Vec<_> = self.variables.clone().into_iter().collect();
        Shell::open(&self.work(), &variables).expect("a shell")
    }

    /// A command in a terminal of its own.
    pub(super) fn start(&self, command: &str) -> Process {
        let log = self
            .folder
            .join(format!("{}.log", command.replace(' ', "-")));
        let line = format!("cd '{}' && exec {command}", self.work().display());
        let mut program = Program::new("sh", ["-c", &line]);
        for (name, value) in &self.variables {
            program = program.env(name, value);
        }
        program.start(&log).expect("it starts")
    }
}

/// The page as it stands in the repository now, by its sections.
fn page() -> Vec<(String, Vec<Step>)> {
    let text = std::fs::read_to_string(root().join("docs/tutorial.md"));
    steps(&text.expect("the page is there"))
}

/// Types the sections of one half of the page.
async fn follow(person: &Person, second: bool, mut done: impl FnMut(&str)) -> Vec<Process> {
    let mut shell = person.shell();
    let mut running = Vec::new();
    let mut in_second = false;
    for (heading, steps) in page() {
        in_second |= heading == SECOND_HALF;
        if in_second != second {
            continue;
        }
        for step in steps {
            match step {
                Step::File(name, text) => {
                    std::fs::write(person.work().join(name), text).expect("written");
                }
                Step::Done(what) => done(&what),
                Step::Running(command) => {
                    let mut process = person.start(&command);
                    if command == "fdn up" {
                        wait::until("fdn up to be ready", async || {
                            assert!(process.ended().is_none(), "{}", process.log());
                            ensure!(process.log().contains("ready in "), "{}", process.log());
                            Ok(())
                        })
                        .await;
                    }
                    running.push(process);
                }
                Step::Typed(command, expected) => {
                    let answer = shell.type_in(&command).await;
                    let answer = answer.unwrap_or_else(|e| panic!("{heading}: {e:#}"));
                    check(&answer, &expected)
                        .unwrap_or_else(|e| panic!("{heading}: {command}: {e:#}"));
                }
            }
        }
    }
    running
}

/// Makes the image as the first half does, for a person who types the second one alone.
async fn make_image(person: &Person) {
    let mut shell = person.shell();
    let of_image = |(heading, _): &(String, Vec<Step>)| heading == IMAGE;
    let (_, steps) = page().into_iter().find(of_image).expect("the section");
    for step in steps {
        match step {
            Step::File(name, text) => {
                std::fs::write(person.work().join(name), text).expect("written");
            }
            Step::Typed(command, _) if !command.starts_with("fdn ") => {
                let typed = shell.type_in(&command).await;
                typed.unwrap_or_else(|error| panic!("{error:#}"));
            }
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_half_of_the_tutorial_holds_on_one_machine() {
    let _turn = exclusive::lock().await;
    let folder = tempfile::tempdir().expect("a folder");
    let mut person = Person::new(folder.path());
    let engine = docker::socket().await;
    let host = format!("unix://{}", engine.display());
    person.variables.insert("DOCKER_HOST".to_owned(), host);
    let modules = root().join("functions/json-transform/node_modules");
    assert!(
        modules.is_dir() && Path::new(&person.variables["COMPONENTIZE_PY"]).is_file(),
        "the tools of the languages are missing: run functions/install-tools.sh rust python js"
    );
    let nodes: Vec<std::net::IpAddr> = (1..=3u8)
        .flat_map(|n| (1..=2u8).map(move |k| std::net::IpAddr::from([127, 0, n, k])))
        .collect();
    let local = || format!("127.0.0.1:{}", ports::local());
    let flags = format!(
        "--listen={} --dns={} --dns-admin={} --gateway-port={} --admin-port={}",
        local(),
        local(),
        local(),
        ports::free(&nodes),
        ports::free(&nodes)
    );
    let fdn = binary("fdn").display().to_string();
    person.program(
        "fdn",
        &format!("if [ \"$1\" = up ]; then exec {fdn} up {flags}; fi\nexec {fdn} \"$@\""),
    );
    // The packages that `npm install` fetches are there already.
    person.program(
        "npm",
        &format!(
            "if [ \"$1\" = install ]; then exec ln -s {} node_modules; fi\nPATH=${{PATH#*:}} exec npm \"$@\"",
            modules.display()
        ),
    );
    let began = Instant::now();
    let running = follow(&person, false, |what| panic!("{what}")).await;
    assert!(began.elapsed() < FIRST, "{:?}", began.elapsed());
    for mut process in running {
        let status = process.stop(Duration::from_secs(60)).expect("it ends");
        assert!(status.success(), "{status}: {}", process.log());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_half_of_the_tutorial_holds_on_separate_processes() {
    let mut network = Network::start(Deadlines::Shipped)
        .await
        .expect("the network starts");
    let folder = tempfile::tempdir().expect("a folder");
    let mut person = Person::new(folder.path());
    let controller = format!("http://{}", network.api());
    person.variables.insert("CONTROLLER".to_owned(), controller);
    std::fs::copy(
        network.folder().join("admin.password"),
        person.work().join("admin.password"),
    )
    .expect("copied");
    let engine = docker::socket().await.display().to_string();
    let host = format!("unix://{engine}");
    person.variables.insert("DOCKER_HOST".to_owned(), host);
    make_image(&person).await;
    person.program("fdn", &format!("exec {} \"$@\"", binary("fdn").display()));
    let agent = binary("fdn-edge-agent").display().to_string();
    let flags = format!(
        "--address 127.0.4.1 --gateway-port {} --admin-port {} --peer-port {}",
        network.gateway_port, network.admin_port, network.peer_port
    );
    person.program(
        "fdn-edge-agent",
        &format!(
            "if [ \"$1\" = join ]; then exec {agent} \"$@\" {flags}; fi\nexport FDN_DOCKER__SOCKET={engine}\nexec {agent} \"$@\""
        ),
    );
    let mut died = false;
    let began = Instant::now();
    let running = follow(&person, true, |what| {
        assert_eq!(what, "the machines of ap-south are switched off");
        network.kill_agent("ap-south-1");
        network.kill_agent("ap-south-2");
        died = true;
    })
    .await;
    assert!(died, "the page says it");
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
    assert_eq!(running.len(), 1, "the node that joined");
    drop(running);
    network.stop().expect("everything stops cleanly");
}
