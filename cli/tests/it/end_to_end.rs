//! A whole network in a process: `fdn up`, deploy, invoke, explain, logs, rollback, delete, SIGTERM, and up again.

mod dev;
mod images;
mod records;
mod revision;

use std::process::{Command, Output};
use std::time::Duration;

use fdn_testkit::process::{Process, Program};
use fdn_testkit::{components, wait};

use crate::binary::free_ports;
use crate::support::Home;

const STOP: Duration = Duration::from_secs(60);

struct Network {
    home: Home,
    flags: Vec<String>,
    /// The value of `DOCKER_HOST`.
    docker: Option<String>,
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
            docker: None,
            starts: 0,
        }
    }

    /// Starts `fdn up` and waits for its banner.
    async fn up(&mut self) -> Process {
        self.starts += 1;
        let log = self
            .home
            .folder
            .path()
            .join(format!("up-{}.log", self.starts));
        let args = std::iter::once("up".to_owned()).chain(self.flags.iter().cloned());
        let mut program = Program::new(env!("CARGO_BIN_EXE_fdn"), args)
            .env("HOME", self.home.folder.path())
            .env("XDG_CONFIG_HOME", self.home.folder.path().join("config"))
            .env("XDG_DATA_HOME", self.home.folder.path().join("data"));
        if let Some(docker) = &self.docker {
            program = program.env("DOCKER_HOST", docker);
        }
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

    /// Starts `fdn logs APP -f`.
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

    /// Runs a command that must succeed; returns its output.
    fn ok(&self, args: &[&str]) -> String {
        let ran = self.fdn(args);
        assert_eq!(ran.code, Some(0), "fdn {args:?}\n{}\n{}", ran.out, ran.err);
        ran.out
    }
}

/// The password in the banner.
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
    revision::is_one(&network).await;
    applied(&network);
    parts_applied(&network);
    records::applied(&network);
    logged(&network).await;
    jobs(&network);
    let follower = network.follow("talking");
    let count = |process: &Process| process.log().matches("to stdout").count();
    // The lines of a call and of a job.
    wait::until("the past lines", async || {
        if count(&follower) == 2 {
            Ok(())
        } else {
            Err(follower.log())
        }
    })
    .await;
    two_on_one_directory(&network);

    invited(&network);
    // The printed password is correct.
    let file = network.home.file("password", &first_password);
    network.ok(&["login", "--context", "local", "--password-file", &file]);
    assert!(network.fdn(&["doctor"]).out.contains("6 of 6 alive"));

    let stopped = process.stop(STOP).expect("SIGTERM ends it");
    assert!(stopped.success(), "{stopped}:\n{}", process.log());
    assert!(process.log().ends_with("stopped\n"), "{}", process.log());
    stopped_quietly(&process);
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
    // The log follower survives the restart, and does not repeat earlier lines.
    network.ok(&["invoke", "talking"]);
    wait::until("the new line", async || {
        if count(&follower) == 3 {
            Ok(())
        } else {
            Err(follower.log())
        }
    })
    .await;
    drop(follower);
    rolled_back_and_deleted(&network);
    process.stop(STOP).expect("SIGTERM ends it");
    stopped_quietly(&process);
}

/// A regular stop of the network causes no warnings: its components do not report each other as lost.
fn stopped_quietly(process: &Process) {
    let log = process.log();
    let (_, stop) = log.split_once(": stopping\n").expect("it was stopped");
    assert!(
        !stop.contains(" WARN ") && !stop.contains("ERROR "),
        "{log}"
    );
}

/// A user is invited, chooses a password with the link, and looks around.
fn invited(network: &Network) {
    let link = network.ok(&["user", "invite", "ann"]);
    let link = network.home.file("link", link);
    network.ok(&["member", "set", "default", "ann", "viewer"]);
    assert!(network.ok(&["user", "list"]).contains("invited"));
    let chosen = network.home.file("chosen", "chosen by ann herself\n");
    let accept = ["login", "--context", "ann", "--invitation-file", &link];
    let accept = [&accept[..], &["--password-file", &chosen]].concat();
    assert!(network.ok(&accept).contains("as ann until"));
    assert!(network.ok(&["list", "-o", "name"]).contains("hello"));
    let refused = network.fdn(&["user", "list"]);
    assert_eq!(refused.code, Some(3), "{}", refused.err);
    let again = network.fdn(&accept);
    assert_eq!(again.code, Some(3), "{}", again.err);
    assert!(again.err.contains("used already"), "{}", again.err);
}

/// A job runs on the embedded network as on any other; a schedule is stored.
fn jobs(network: &Network) {
    let submitted = ["job", "submit", "hello", "--data", "a job", "-o", "name"];
    let id = network.ok(&submitted).trim().to_owned();
    let done = network.ok(&["job", "status", &id, "--wait", "--timeout", "120s"]);
    assert!(done.contains("succeeded"), "{done}");
    let answer = network.ok(&["job", "result", &id]);
    assert!(answer.contains("a job"), "{answer}");
    assert!(network.ok(&["job", "list", "hello"]).contains(&id));
    assert_eq!(
        network.ok(&["job", "list", "hello", "--state", "dead", "-o", "name"]),
        ""
    );
    assert_ne!(
        network.fdn(&["job", "cancel", &id]).code,
        Some(0),
        "it has ended"
    );
    let cron = "0 3 1 1 *";
    network.ok(&["schedule", "set", "hello", "yearly", cron, "-d", "x"]);
    assert!(network.ok(&["schedule", "list", "hello"]).contains(cron));
    network.ok(&["schedule", "remove", "hello", "yearly"]);
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
        network.ok(&["cluster", "list", "-o", "name"]),
        "ap-south\neu-west\nus-east\n"
    );
    assert_eq!(
        network.ok(&["node", "list", "-o", "name"]).lines().count(),
        6
    );
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

/// Declared files are compared and applied, cause no changes the second time, and what is no longer declared is deleted.
fn applied(network: &Network) {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("tenant.yaml");
    let path = file.display().to_string();
    let component = components::hello("declared");
    std::fs::write(folder.path().join("declared.wasm"), component).expect("written");
    let app = "apps:\n  declared:\n    component: declared.wasm\n    policy:\n      concurrency: 7\n  flow:\n    workflow:\n      stages:\n        - name: only\n          function: declared\n";
    let budget = "budgets:\n  all: { limit: \"100\" }\n";
    std::fs::write(&file, format!("set: web\n{app}{budget}")).expect("written");
    let names = |words: &[&str]| -> Vec<String> {
        let words = [&["apply", "-f", &path, "-o", "name"], words].concat();
        network.ok(&words).lines().map(str::to_owned).collect()
    };
    let all = ["app/declared", "app/flow", "policy/declared", "budget/all"];
    assert_eq!(names(&["--dry-run"]), all, "what would be");
    assert!(!network.ok(&["list", "-o", "name"]).contains("declared"));
    assert_eq!(names(&[]), all, "what was done");
    assert_eq!(names(&[]), [""; 0], "a second time nothing changes");
    assert_eq!(names(&["--dry-run", "--prune"]), [""; 0]);
    std::fs::write(&file, format!("set: web\n{}", app.replace('7', "8"))).expect("written");
    let page = network.ok(&["apply", "-f", &path, "--dry-run"]);
    for line in [
        "- concurrency: 7",
        "+ concurrency: 8",
        "budget/all is no longer declared",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    assert_eq!(
        names(&[]),
        ["policy/declared"],
        "without --prune the budget stays"
    );
    assert_eq!(names(&["--prune"]), ["budget/all"]);
    assert!(
        network
            .ok(&["budget", "list", "-o", "name"])
            .trim()
            .is_empty()
    );
    std::fs::write(&file, "set: web\napps: {}\n").expect("written");
    assert_eq!(names(&["--prune"]), ["app/flow", "app/declared"]);
    // What a command that failed half-way has made is known to the next one.
    let values = "values: [a, b, c, d, e, f, g, h, i]";
    let half = format!(
        "apps:\n  half:\n    component: declared.wasm\ntxt:\n  _a.half.fn.test: {{ {values} }}\n"
    );
    std::fs::write(&file, format!("set: web\n{half}")).expect("written");
    let Ran { code, err, .. } = network.fdn(&["apply", "-f", &path]);
    assert_ne!(code, Some(0));
    assert!(err.contains("1 of 2 changes were made"), "{err}");
    std::fs::write(&file, "set: web\napps: {}\n").expect("written");
    assert_eq!(names(&["--prune"]), ["app/half"]);
    std::fs::write(&file, "apps:\n  declared:\n    color: red\n").expect("written");
    let Ran { code, err, .. } = network.fdn(&["apply", "-f", &path]);
    assert_eq!(code, Some(2), "{err}");
    assert!(
        err.contains("tenant.yaml:3: apps.declared.color: "),
        "{err}"
    );
    let plan = network.ok(&["plan", "hello", "--client", "203.0.113.0/24", "-o", "name"]);
    assert_eq!(plan.trim(), "ap-south");
}

/// What belongs to an app is declared with it: created, changed and deleted with its declaration.
fn parts_applied(network: &Network) {
    let folder = tempfile::tempdir().expect("folder");
    let write = |name: &str, text: &[u8]| {
        std::fs::write(folder.path().join(name), text).expect("written");
    };
    let path = folder.path().join("tenant.yaml").display().to_string();
    let run = |words: &[&str]| network.fdn(&[&["apply", "-f", &path], words].concat());
    let names = |words: &[&str]| -> Vec<String> {
        let ran = run(&[&["-o", "name"], words].concat());
        assert_eq!(ran.code, Some(0), "{}\n{}", ran.out, ran.err);
        ran.out.lines().map(str::to_owned).collect()
    };
    let app = "set: parts\napps:\n  parts:\n    component: parts.wasm\n";
    let parts = "    secrets: { KEY: { file: key }, OTHER: { file: key } }\n    schedules: { yearly: { cron: '0 3 1 1 *', input: x } }\n    domains: [shop.example.org]\n    objective: { error_percent: 1 }\n    labels: { team: web }\n    version_labels: { commit: abc }\n";
    write("parts.wasm", &components::hello("parts"));
    write("fdn.toml", b"secrets = [\"KEY\"]\n");
    write("key", b"5ecret\n");
    write("tenant.yaml", format!("{app}{parts}").as_bytes());
    let all = [
        "app/parts",
        "secret/parts/KEY",
        "secret/parts/OTHER",
        "objective/parts",
        "labels/parts",
        "version-labels/parts",
        "schedule/parts/yearly",
        "domain/parts/shop.example.org",
    ];
    assert_eq!(names(&["--dry-run"]), all, "what would be");
    let made = run(&[]);
    assert_eq!(made.code, Some(0), "{}", made.err);
    assert!(
        made.err
            .contains("fdn domain verify parts shop.example.org"),
        "{}",
        made.err
    );
    assert!(
        !format!("{}{}", made.out, made.err).contains("5ecret"),
        "{}",
        made.out
    );
    for words in [&["--dry-run", "--prune"][..], &[]] {
        assert_eq!(names(words), [""; 0], "nothing is left to do");
    }
    write("key", b"another");
    let page = network.ok(&["apply", "-f", &path, "--dry-run"]);
    assert!(page.contains("~ another value, from the file "), "{page}");
    assert_eq!(names(&[]), ["secret/parts/KEY", "secret/parts/OTHER"]);
    assert_eq!(names(&["--dry-run"]), [""; 0]);
    // The new version gets the labels as well.
    write("parts.wasm", &components::hello("parts, better"));
    assert_eq!(names(&[]), ["app/parts", "version-labels/parts"]);
    assert_eq!(names(&["--dry-run"]), [""; 0]);

    let bare = format!("{app}    objective: {{}}\n    labels: {{}}\n");
    write("tenant.yaml", bare.as_bytes());
    assert_eq!(names(&[]), ["objective/parts", "labels/parts"]);
    let page = network.ok(&["apply", "-f", &path, "--dry-run"]);
    for line in [
        "schedule/parts/yearly is no longer declared; --prune",
        "secret/parts/KEY is no longer declared; it stays",
        "nothing to change",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    let gone = [
        "secret/parts/OTHER",
        "schedule/parts/yearly",
        "domain/parts/shop.example.org",
    ];
    assert_eq!(names(&["--prune"]), gone);
    assert_eq!(
        network.ok(&["secret", "list", "parts", "-o", "name"]),
        "KEY\n"
    );
    write("tenant.yaml", b"set: parts\napps: {}\n");
    assert_eq!(names(&["--prune"]), ["app/parts"]);
}

/// Clients in the three documentation networks are sent to three regions, and `explain` agrees with the call.
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
    // After queries, these clients have bindings, which `describe` shows.
    wait::until("a binding for 203.0.113.0/24", async || {
        let page = network.ok(&["describe", "hello"]);
        if page.contains("203.0.113.0/24") {
            Ok(())
        } else {
            Err(page)
        }
    })
    .await;
    let dump = network.ok(&["dns", "dump", "hello", "-o", "name"]);
    assert!(dump.lines().any(|line| line == "203.0.113.0/24"), "{dump}");
    let lookup = ["dns", "lookup", "hello.fn.test", "--client", "203.0.113.7"];
    let page = network.ok(&lookup);
    for words in ["203.0.113.0/24 to ap-south", "ap-south", "2/2", "holds for"] {
        assert!(page.contains(words), "{words}: {page}");
    }
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
    wait::until("the call in the nodes' logs", async || {
        let calls = network.ok(&["calls", "talking", "--status", "200", "-o", "json"]);
        let list: fdn_core::usage::CallList = serde_json::from_str(&calls).expect("a list");
        if !list.calls.is_empty() && list.silent.is_empty() {
            Ok(())
        } else {
            Err(calls)
        }
    })
    .await;
    wait::until("the call's log lines", async || {
        let lines = network.ok(&["logs", "talking"]);
        if lines.contains("to stdout") && lines.contains("to stderr") {
            Ok(())
        } else {
            Err(lines)
        }
    })
    .await;
    // Of a job, only its own lines are shown, one of each kind, although the app was called before.
    let submitted = ["job", "submit", "talking", "--data", "x", "-o", "name"];
    let job = network.ok(&submitted).trim().to_owned();
    network.ok(&["job", "status", &job, "--wait", "--timeout", "120s"]);
    wait::until("the job's log lines", async || {
        let lines = network.ok(&["job", "logs", &job]);
        let count = |text: &str| lines.lines().filter(|line| line.contains(text)).count();
        match (count("to stdout"), count("to stderr")) {
            (1, 1) => Ok(()),
            _ => Err(lines),
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
