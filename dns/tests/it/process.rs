//! The program `fdn-dns` itself.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use fdn_testkit::process::Program;
use fdn_testkit::{ports, wait};

use crate::alone::{config, join};
use crate::common::{Fixture, dig, get};

const EXE: &str = env!("CARGO_BIN_EXE_fdn-dns");

fn run(arguments: &[&str]) -> Output {
    Command::new(EXE).args(arguments).output().expect("started")
}

fn sample() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/config/dns.toml").to_owned()
}

#[test]
fn its_flags_do_what_they_say() {
    assert!(run(&["--version"]).status.success());
    let checked = run(&["--config", &sample(), "--check-config"]);
    assert!(
        checked.status.success(),
        "{}",
        String::from_utf8_lossy(&checked.stderr)
    );
    let printed = String::from_utf8(run(&["--print-config"]).stdout).expect("text");
    assert!(
        printed.contains("name = \"fn.test\"") && printed.contains("udp_size = 1232"),
        "{printed}"
    );
}

#[test]
fn a_bad_configuration_ends_with_2_and_says_why() {
    let dir = tempfile::tempdir().expect("folder");
    for (text, expected) in [
        ("lisen = []", "lisen"),
        ("listen = []", "listen"),
        ("[health]\nfall = 0", "health.fall"),
    ] {
        let file = dir.path().join("dns.toml");
        std::fs::write(&file, text).expect("written");
        let output = run(&["--config", &file.display().to_string(), "--check-config"]);
        assert_eq!(output.status.code(), Some(2));
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            message.contains(expected) && message.contains("FDN-5001"),
            "{message}"
        );
    }
}

#[test]
fn keys_are_made_shown_and_rolled_over() {
    let dir = tempfile::tempdir().expect("folder");
    let config = dir.path().join("dns.toml");
    let (keys, master) = (dir.path().join("zone.keys"), dir.path().join("master.key"));
    let text = format!("[zone.dnssec]\nkey_file = {keys:?}\nmaster_key_file = {master:?}\n");
    std::fs::write(&config, text).expect("written");
    let config = config.display().to_string();
    let keys_command = |rest: &[&str]| run(&[&["keys", "--config", &config], rest].concat());
    let printed = |rest: &[&str]| {
        let output = keys_command(rest);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "{rest:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    };
    let refused = |rest: &[&str]| {
        let output = keys_command(rest);
        assert_eq!(output.status.code(), Some(2), "{rest:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(
        !keys_command(&["list"]).status.success(),
        "there is no file yet"
    );
    let made = printed(&["generate"]);
    assert!(
        made.contains("active") && made.contains("DS at the parent"),
        "{made}"
    );
    for file in [&keys, &master] {
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(file).expect("there").permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
    }
    assert!(refused(&["generate"]).contains("has keys already"));
    let tag = made.split_whitespace().next().expect("a tag").to_owned();
    let ds = printed(&["ds"]);
    assert!(
        ds.starts_with(&format!("fn.test. IN DS {tag} 13 2 ")),
        "{ds}"
    );
    let rolled = printed(&["roll"]);
    assert!(
        rolled.lines().count() == 2 && rolled.contains("published  for 2 h more"),
        "{rolled}"
    );
    let new = rolled
        .lines()
        .nth(1)
        .and_then(|line| line.split_whitespace().next())
        .expect("a tag");
    assert!(refused(&["roll"]).contains("under way"));
    assert!(refused(&["seen", new]).contains("waits for its DS record"));
    assert_eq!(
        printed(&["ds"]),
        ds,
        "the parent is not asked for a key that not everybody knows"
    );
    assert!(printed(&["prune"]).starts_with("0 keys"));
    // With another master key in first place, the keys are resealed under it, and open without the old one.
    let old = std::fs::read_to_string(&master).expect("the master key");
    let fresh = "5a".repeat(32);
    std::fs::write(&master, format!("{fresh}\n{old}")).expect("written");
    assert!(printed(&["rewrap"]).starts_with("2 keys"));
    std::fs::write(&master, &fresh).expect("written");
    assert_eq!(printed(&["ds"]), ds);
    std::fs::write(&master, &old).expect("written");
    assert!(refused(&["list"]).contains("is sealed under the master key"));
    let elsewhere = run(&["keys", "list"]);
    assert!(String::from_utf8_lossy(&elsewhere.stderr).contains("zone.dnssec.key_file"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_questions_that_are_asked_for_are_logged_without_addresses() {
    let Fixture { dns, dir, .. } = Fixture::with_hello(|_| {}).await;
    dns.stop().await;
    let (listen, admin) = (ports::local(), ports::local());
    let file = dir.path().join("dns.toml");
    join(dir.path());
    let text = format!(
        "{}[query_log]\none_in = 1\n",
        config(dir.path(), listen, admin)
    );
    std::fs::write(&file, text).expect("written");
    let program = Program::new(EXE, ["--config".into(), file.into_os_string()]);
    let mut process = program.start(&dir.path().join("log")).expect("started");
    wait::until("the program to be ready", async || {
        tokio::net::TcpStream::connect(("127.0.0.1", admin))
            .await
            .map(drop)
            .map_err(|e| format!("{e}\n{}", process.log()))
    })
    .await;
    let server = SocketAddr::from(([127, 0, 0, 1], listen));
    let subnet = "+subnet=198.51.100.77/32";
    // One on each path: a plain query and another one.
    for more in ["+notcp", "+tcp"] {
        dig(server, &["hello.fn.test", "+nocookie", subnet, more]).await;
    }
    dig(server, &["nobody.fn.test", "AAAA", subnet]).await;
    let lines = wait::until("a line for each question", async || {
        let log = process.log();
        let lines = log.lines().filter(|line| line.starts_with('{'));
        let lines: Vec<serde_json::Value> = lines
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        if lines.len() == 3 {
            Ok(lines)
        } else {
            Err(log)
        }
    })
    .await;
    for (line, transport) in lines.iter().zip(["udp", "tcp"]) {
        assert_eq!(line["name"], "hello.fn.test.");
        assert_eq!(line["client"], "198.51.100.0/24");
        assert_eq!(line["cluster"], "us-east");
        assert_eq!(
            (&line["app"], &line["scope"]),
            (&"hello".into(), &24.into())
        );
        assert_eq!(line["transport"], transport);
    }
    assert_eq!(
        (&lines[2]["rcode"], &lines[2]["type"]),
        (&"NXDOMAIN".into(), &"AAAA".into())
    );
    assert!(lines[2].get("app").is_none());
    assert!(!process.log().contains("198.51.100.77"));
    process.stop(Duration::from_secs(30)).expect("stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_health_check_asks_the_process_that_runs() {
    let dir = tempfile::tempdir().expect("folder");
    let (listen, admin) = (ports::local(), ports::local());
    let file = dir.path().join("dns.toml");
    join(dir.path());
    std::fs::write(&file, config(dir.path(), listen, admin)).expect("written");
    let path = file.display().to_string();
    let check = || run(&["--config", &path, "--check-health"]);
    let alone = check();
    let said = String::from_utf8_lossy(&alone.stderr).into_owned();
    assert_eq!(alone.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("127.0.0.1:{admin}")), "{said}");
    let program = Program::new(EXE, ["--config".into(), file.into_os_string()]);
    let mut process = program.start(&dir.path().join("log")).expect("started");
    wait::until("the program to be healthy", async || {
        let asked = check();
        match asked.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&asked.stderr).into_owned()),
        }
    })
    .await;
    process.stop(Duration::from_secs(30)).expect("stopped");
}

/// The lines of a status file (proc_pid_status(5)) about the privileges of a thread; `None` if the thread has ended.
fn rights(status: &Path) -> Option<Vec<(String, u64)>> {
    let text = std::fs::read_to_string(status).ok()?;
    let lines = text.lines().filter_map(|line| line.split_once(":\t"));
    let rights = lines
        .filter(|(key, _)| key.starts_with("Cap") || *key == "NoNewPrivs")
        .map(|(key, value)| {
            let value = u64::from_str_radix(value, 16).expect("a number");
            (key.to_owned(), value)
        });
    Some(rights.collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn once_it_listens_no_thread_has_capabilities() {
    const SETPCAP: u64 = 1 << 8;
    let dir = tempfile::tempdir().expect("folder");
    let (listen, admin) = (ports::local(), ports::local());
    let file = dir.path().join("dns.toml");
    join(dir.path());
    std::fs::write(&file, config(dir.path(), listen, admin)).expect("written");
    let program = Program::new(EXE, ["--config".into(), file.into_os_string()]);
    let mut process = program.start(&dir.path().join("log")).expect("started");
    let admin = SocketAddr::from(([127, 0, 0, 1], admin));
    wait::until("the program to answer", async || {
        tokio::net::TcpStream::connect(admin)
            .await
            .map(drop)
            .map_err(|e| format!("{e}\n{}", process.log()))
    })
    .await;
    // The answer comes from the runtime's threads, so they exist.
    assert_eq!(get(admin, "/healthz").await.0, 200);
    let ours = rights(Path::new("/proc/self/status")).expect("this process");
    let of = |all: &[(String, u64)], key: &str| {
        let found = all.iter().find(|(known, _)| known == key);
        found.unwrap_or_else(|| panic!("no {key} in {all:?}")).1
    };
    let threads = std::fs::read_dir(format!("/proc/{}/task", process.id())).expect("threads");
    let threads: Vec<_> = threads
        .filter_map(|thread| rights(&thread.ok()?.path().join("status")))
        .collect();
    assert!(threads.len() > 2, "{threads:?}");
    for thread in &threads {
        for key in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(of(thread, key), 0, "{key} of {threads:?}");
        }
        assert_eq!(of(thread, "NoNewPrivs"), 1, "{threads:?}");
        // Only with this capability can the bounding set be emptied.
        if of(&ours, "CapEff") & SETPCAP != 0 {
            assert_eq!(of(thread, "CapBnd"), 0, "{threads:?}");
        }
    }
    let log = process.log();
    let is_root = log.contains("this server runs as root");
    assert_eq!(is_root, rustix::process::geteuid().is_root(), "{log}");
    assert!(!log.contains("cannot be given up"), "{log}");
    process.stop(Duration::from_secs(30)).expect("stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_and_started_again_with_everybody_away_it_answers_from_disk() {
    // The first server writes the state; where it came from does not matter here.
    let Fixture { dns, dir, .. } = Fixture::with_hello(|_| {}).await;
    dns.stop().await;
    let (listen, admin) = (ports::local(), ports::local());
    let file = dir.path().join("dns.toml");
    join(dir.path());
    std::fs::write(&file, config(dir.path(), listen, admin)).expect("written");
    let program = Program::new(EXE, ["--config".into(), file.into_os_string()]);
    let admin = SocketAddr::from(([127, 0, 0, 1], admin));
    let server = SocketAddr::from(([127, 0, 0, 1], listen));
    for round in 0..2 {
        let mut process = program.start(&dir.path().join("log")).expect("started");
        wait::until("the program to be ready", async || {
            tokio::net::TcpStream::connect(admin)
                .await
                .map(drop)
                .map_err(|e| format!("{e}\n{}", process.log()))
        })
        .await;
        assert_eq!(get(admin, "/readyz").await.0, 200, "{}", process.log());
        let out = dig(
            server,
            &["hello.fn.test", "+short", "+subnet=198.51.100.0/24"],
        )
        .await;
        assert!(out.contains("127.0.2.1"), "{out}\n{}", process.log());
        if round == 0 {
            process.kill();
        } else {
            let status = process.stop(Duration::from_secs(30)).expect("stopped");
            assert!(status.success(), "{status}\n{}", process.log());
        }
        let log = process.log();
        assert!(
            !log.contains("hello.fn.test"),
            "queries are not logged:\n{log}"
        );
    }
}
