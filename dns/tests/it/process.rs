//! The program `fdn-dns` itself.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use fdn_testkit::process::Program;
use fdn_testkit::{ports, wait};

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

fn config(dir: &Path, listen: u16, admin: u16) -> String {
    format!(
        "data_dir = {:?}\nlisten = [\"127.0.0.1:{listen}\"]\nadmin = \"127.0.0.1:{admin}\"\n\
         [broker]\nurl = \"amqp://nobody@127.0.0.1:1/%2f\"\n[network]\ncontroller = \"http://127.0.0.1:1\"\n\
         [health]\nfall = 1000\n",
        dir.display().to_string()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_and_started_again_with_everybody_away_it_answers_from_disk() {
    // The first life writes the disk; what it was told by an in-process broker does not matter here.
    let Fixture { dns, dir, .. } = Fixture::with_hello(|_| {}).await;
    dns.stop().await;
    let (listen, admin) = (ports::local(), ports::local());
    let file = dir.path().join("dns.toml");
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
