//! The program itself: exit codes, streams, and signals, which need a process.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::process::{Command, Output, Stdio};

use crate::support::{Fake, Home, Reply, sample};

pub(crate) fn fdn(home: &Home, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fdn"));
    command
        .args(args)
        .env_clear()
        .env("HOME", home.folder.path())
        .stdin(Stdio::null());
    command
}

pub(crate) fn run(home: &Home, args: &[&str]) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = fdn(home, args).output().expect("the program runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (
        status.code().expect("an exit code"),
        text(stdout),
        text(stderr),
    )
}

#[test]
fn usage_errors_end_with_2_and_help_with_0() {
    let home = Home::new();
    for args in [
        &["frobnicate"][..],
        &["deploy"],
        &["list", "-o", "xml"],
        &["deploy", "UPPER", "x.wasm"],
        &[],
    ] {
        let (code, out, err) = run(&home, args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}");
        assert!(
            err.contains("Usage") || err.contains("--help"),
            "{args:?}: {err}"
        );
    }
    let (code, out, _) = run(&home, &["--help"]);
    assert_eq!(code, 0);
    assert!(out.contains(fdn_cli::exit::TABLE), "{out}");
    let named = format!("fdn {}\n", env!("CARGO_PKG_VERSION"));
    let (code, out, _) = run(&home, &["-V"]);
    assert_eq!((code, &out), (0, &named));
    let (code, out, _) = run(&home, &["--version"]);
    assert!(code == 0 && out.starts_with(&named), "{out}");
    for word in ["revision", "target", "profile", "features"] {
        assert!(out.contains(&format!("\n{word}")), "{word}: {out}");
    }
}

#[test]
fn other_failures_end_with_their_number() {
    let home = Home::new();
    let wasm = home.file("x.wasm", b"\0asm");
    let nowhere = ["list", "--controller", "http://127.0.0.1:1"];
    assert_eq!(run(&home, &nowhere).0, 3, "no token");
    assert_eq!(run(&home, &["deploy", "x", "/nonexistent.wasm"]).0, 2);
    let token = home.file("token", "t");
    let with_token = |args: &[&str]| {
        let output = fdn(&home, args)
            .env("FDN_TOKEN_FILE", &token)
            .env("FDN_CONTROLLER", "http://127.0.0.1:1")
            .output();
        let output = output.expect("the program runs");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (code, err) = with_token(&["deploy", "x", &wasm]);
    assert_eq!(code, Some(7), "{err}");
    assert!(err.contains("FDN-4004") && err.contains("hint:"), "{err}");
    let (code, err) = with_token(&["delete", "x"]);
    assert_eq!(code, Some(2), "nobody can be asked");
    assert!(err.contains("--yes"), "{err}");
    home.file(".config/fdn/config.toml", "curent = \"x\"");
    let (code, _, err) = run(&home, &["list"]);
    assert_eq!(code, 2);
    assert!(err.contains("FDN-5001") && err.contains("curent"), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_can_come_on_standard_input() {
    let fake = Fake::start(|request, _| match request.path.as_str() {
        "/v1/login" => {
            assert!(String::from_utf8_lossy(&request.body).contains("\"password\":\"pass word\""));
            Reply::json(&serde_json::json!({ "token": "t", "expires_at": 1 }))
        }
        _ => Reply::json(&sample::network()),
    })
    .await;
    let home = Home::new();
    let mut child = fdn(&home, &["login", &fake.url()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    child
        .stdin
        .take()
        .expect("stdin")
        .write_all(b"pass word\n")
        .expect("written");
    let output = tokio::task::spawn_blocking(move || child.wait_with_output())
        .await
        .expect("joined")
        .expect("ended");
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(fake.requests().len(), 2);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let home = Home::new();
    let mut child = fdn(&home, &["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("runs");
    drop(child.stdout.take());
    let mut err = String::new();
    child
        .stderr
        .take()
        .expect("stderr")
        .read_to_string(&mut err)
        .expect("read");
    assert_eq!(child.wait().expect("ended").code(), Some(0), "{err}");
    assert_eq!(err, "");
}

/// Flags of `fdn up` in tests: ports that are free now, and nothing else of the machine.
pub(crate) fn free_ports() -> Vec<String> {
    let nodes: Vec<std::net::IpAddr> = (1..=3u8)
        .flat_map(|n| (1..=2u8).map(move |k| std::net::IpAddr::from([127, 0, n, k])))
        .collect();
    let local = || format!("127.0.0.1:{}", fdn_testkit::ports::local());
    vec![
        // The results must not depend on what else runs on the machine.
        "--no-docker".to_owned(),
        format!("--listen={}", local()),
        format!("--dns={}", local()),
        format!("--dns-admin={}", local()),
        format!("--gateway-port={}", fdn_testkit::ports::free(&nodes)),
        format!("--admin-port={}", fdn_testkit::ports::free(&nodes)),
    ]
}

#[test]
fn a_taken_port_is_said_in_words_with_the_flag_before_anything_is_started() {
    let home = Home::new();
    let tcp = TcpListener::bind("127.0.2.1:0").expect("free port");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("free port");
    let gateway = tcp.local_addr().expect("address");
    let dns = udp.local_addr().expect("address");
    for (flag, value, address) in [
        ("--gateway-port", gateway.port().to_string(), gateway),
        ("--dns", dns.to_string(), dns),
    ] {
        let mut flags: Vec<String> = free_ports()
            .into_iter()
            .filter(|f| !f.starts_with(&format!("{flag}=")))
            .collect();
        flags.push(format!("{flag}={value}"));
        let args: Vec<&str> = std::iter::once("up")
            .chain(flags.iter().map(String::as_str))
            .collect();
        let (code, out, err) = run(&home, &args);
        assert_eq!((code, out.as_str()), (2, ""), "{err}");
        for expected in [
            "FDN-5002",
            &address.to_string(),
            "already taken by another program",
            flag,
        ] {
            assert!(err.contains(expected), "{expected}: {err}");
        }
        assert!(
            !home
                .folder
                .path()
                .join(".local/share/fdn/network.key")
                .exists(),
            "nothing was started"
        );
    }
}
