//! A whole network as a process: `fdn up`, deploy, invoke, explain, logs, rollback, delete, SIGTERM, and up again.

use std::process::{Command, Output};
use std::time::Duration;

use fdn_testkit::process::{Process, Program};
use fdn_testkit::{components, wait};

use crate::binary::free_ports;
use crate::support::Home;

const STOP: Duration = Duration::from_secs(20);

struct Network {
    home: Home,
    flags: Vec<String>,
    starts: u32,
}

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Network {
    fn new() -> Self {
        Self {
            home: Home::new(),
            flags: free_ports(),
            starts: 0,
        }
    }

    /// Starts `fdn up` and waits for its block.
    async fn up(&mut self) -> Process {
        self.starts += 1;
        let log = self
            .home
            .folder
            .path()
            .join(format!("up-{}.log", self.starts));
        let args = std::iter::once("up".to_owned()).chain(self.flags.iter().cloned());
        let program = Program::new(env!("CARGO_BIN_EXE_fdn"), args)
            .env("HOME", self.home.folder.path())
            .env("XDG_CONFIG_HOME", self.home.folder.path().join("config"))
            .env("XDG_DATA_HOME", self.home.folder.path().join("data"));
        let mut process = program.start(&log).expect("fdn up starts");
        wait::until("fdn up to be ready", async || {
            if let Some(status) = process.ended() {
                panic!("fdn up ended with {status}:\n{}", process.log());
            }
            if process.log().contains("ready in ") {
                Ok(())
            } else {
                Err(process.log())
            }
        })
        .await;
        process
    }

    /// `fdn logs APP -f`, running.
    fn follow(&self, app: &str) -> Process {
        let log = self.home.folder.path().join("follow.log");
        Program::new(env!("CARGO_BIN_EXE_fdn"), ["logs", app, "-f"])
            .env("HOME", self.home.folder.path())
            .env("XDG_CONFIG_HOME", self.home.folder.path().join("config"))
            .start(&log)
            .expect("fdn logs starts")
    }

    fn fdn(&self, args: &[&str]) -> Ran {
        let Output {
            status,
            stdout,
            stderr,
        } = Command::new(env!("CARGO_BIN_EXE_fdn"))
            .args(args)
            .env_clear()
            .env("HOME", self.home.folder.path())
            .env("XDG_CONFIG_HOME", self.home.folder.path().join("config"))
            .output()
            .expect("the program runs");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ran {
            code: status.code(),
            out: text(stdout),
            err: text(stderr),
        }
    }

    /// A command that must succeed; what it printed.
    fn ok(&self, args: &[&str]) -> String {
        let ran = self.fdn(args);
        assert_eq!(ran.code, Some(0), "fdn {args:?}\n{}\n{}", ran.out, ran.err);
        ran.out
    }
}

/// The value after `key = "` in the text of the block or of a file.
fn password(log: &str) -> String {
    let rest = log
        .split_once("(admin / ")
        .expect("the block names the user")
        .1;
    rest.split_once(", printed once)")
        .expect("a password at the first start")
        .0
        .to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_life_of_an_app_on_an_embedded_network() {
    let mut network = Network::new();
    let mut process = network.up().await;
    let block = process.log();
    for expected in [
        "  console    http://127.0.0.1:",
        "zone fn.test",
        "eu-west 127.0.1.1:",
        "ap-south 127.0.3.1:",
        "(2 nodes each)",
    ] {
        assert!(block.contains(expected), "{expected}: {block}");
    }
    let first_password = password(&block);
    deploy_and_call(&network);
    explained_and_bound(&network).await;
    logged(&network).await;
    let follower = network.follow("talking");
    let count = |process: &Process| process.log().matches("to stdout").count();
    wait::until("the past lines", async || {
        if count(&follower) == 1 {
            Ok(())
        } else {
            Err(follower.log())
        }
    })
    .await;
    two_on_one_directory(&network);

    // The password that was printed is the right one.
    let file = network.home.file("password", &first_password);
    network.ok(&["login", "--password-file", &file]);
    assert!(network.fdn(&["doctor"]).out.contains("6 of 6 alive"));

    let stopped = process.stop(STOP).expect("SIGTERM ends it");
    assert!(stopped.success(), "{stopped}:\n{}", process.log());
    assert!(process.log().ends_with("stopped\n"), "{}", process.log());
    assert_eq!(network.fdn(&["list"]).code, Some(7), "nobody answers now");

    let mut process = network.up().await;
    let block = process.log();
    assert!(
        !block.contains(&first_password),
        "the password is printed once: {block}"
    );
    assert!(
        network
            .ok(&["invoke", "hello", "-d", "again"])
            .contains("again"),
        "what was deployed is served"
    );
    // The follower has outlived the restart; the line of before is not repeated.
    network.ok(&["invoke", "talking"]);
    wait::until("the new line", async || {
        if count(&follower) == 2 {
            Ok(())
        } else {
            Err(follower.log())
        }
    })
    .await;
    drop(follower);
    rolled_back_and_deleted(&network);
    process.stop(STOP).expect("SIGTERM ends it");
}

fn deploy_and_call(network: &Network) {
    let echo = network.home.file("echo.wasm", components::echo());
    let out = network.ok(&["deploy", "hello", &echo]);
    for expected in [
        "deployed hello v1",
        "http://hello.fn.test:",
        "sha256:",
        "ready on 6 nodes",
    ] {
        assert!(out.contains(expected), "{expected}: {out}");
    }
    let ran = network.fdn(&["invoke", "hello", "-d", "world"]);
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "world"),
        "{}",
        ran.err
    );
    assert!(
        ran.err.contains("cluster ") && ran.err.contains("first byte"),
        "{}",
        ran.err
    );
    assert_eq!(network.ok(&["list", "-o", "name"]), "hello\n");
    assert_eq!(
        network.ok(&["clusters", "-o", "name"]),
        "ap-south\neu-west\nus-east\n"
    );
    assert_eq!(network.ok(&["nodes", "-o", "name"]).lines().count(), 6);
    let again = network.ok(&["deploy", "hello", &echo]);
    assert!(again.contains("unchanged"), "{again}");
    let module = network.home.file("module.wasm", components::core_module());
    let refused = network.fdn(&["deploy", "hello", &module]);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(
        refused.err.contains("FDN-1003") && refused.err.contains("wasm-tools component new"),
        "{}",
        refused.err
    );
}

/// Clients of the documentation's three networks are sent to three regions, and `explain` says the same as the call.
async fn explained_and_bound(network: &Network) {
    for (client, cluster) in [
        ("192.0.2.7", "eu-west"),
        ("198.51.100.7", "us-east"),
        ("203.0.113.7", "ap-south"),
    ] {
        assert_eq!(
            network
                .ok(&["explain", "hello", "--client", client, "-o", "name"])
                .trim(),
            cluster
        );
        let subnet = format!("{client}/24");
        let ran = network.fdn(&["invoke", "hello", "--client-subnet", &subnet]);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        assert!(
            ran.err.contains(&format!("cluster {cluster}")),
            "{client}: {}",
            ran.err
        );
    }
    // Having been asked for, they get bindings, which describe shows.
    wait::until("a binding for 203.0.113.0/24", async || {
        let page = network.ok(&["describe", "hello"]);
        if page.contains("203.0.113.0/24") {
            Ok(())
        } else {
            Err(page)
        }
    })
    .await;
    let page = network.ok(&["explain", "hello", "--client", "203.0.113.7"]);
    assert!(
        page.contains("for clients in 203.0.113.0/24") && page.lines().count() > 6,
        "{page}"
    );
}

async fn logged(network: &Network) {
    let talking = network.home.file(
        "talking.wasm",
        components::logging("to stdout", "to stderr"),
    );
    network.ok(&["deploy", "talking", &talking]);
    network.ok(&["invoke", "talking"]);
    wait::until("the call's log lines", async || {
        let lines = network.ok(&["logs", "talking"]);
        if lines.contains("to stdout") && lines.contains("to stderr") {
            Ok(())
        } else {
            Err(lines)
        }
    })
    .await;
}

fn two_on_one_directory(network: &Network) {
    let second = Command::new(env!("CARGO_BIN_EXE_fdn"))
        .arg("up")
        .args(free_ports())
        .env("HOME", network.home.folder.path())
        .env("XDG_CONFIG_HOME", network.home.folder.path().join("config"))
        .env("XDG_DATA_HOME", network.home.folder.path().join("data"))
        .output()
        .expect("the program runs");
    let err = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(2), "{err}");
    assert!(
        err.contains("another fdn up (process ") && err.contains("--data-dir"),
        "{err}"
    );
}

fn rolled_back_and_deleted(network: &Network) {
    let other = network
        .home
        .file("other.wasm", components::hello("version two"));
    assert!(
        network
            .ok(&["deploy", "hello", &other])
            .contains("deployed hello v2")
    );
    assert_eq!(network.ok(&["invoke", "hello"]), "version two");
    assert!(
        network
            .ok(&["rollback", "hello"])
            .contains("hello is now v1")
    );
    assert_eq!(network.ok(&["invoke", "hello", "-d", "one"]), "one");
    let delete = network.ok(&["delete", "hello", "talking", "--yes"]);
    assert_eq!(delete, "deleted hello\ndeleted talking\n");
    assert_eq!(network.fdn(&["describe", "hello"]).code, Some(4));
    assert_eq!(network.ok(&["list", "-o", "name"]), "");
}
