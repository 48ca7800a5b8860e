//! A signed zone as seen by a validating resolver (`unbound`), and by a zone checker (`dnsviz`).

use std::net::{Ipv4Addr, SocketAddr};

use fdn_core::Timestamp;
use fdn_testkit::process::{Process, Program};
use fdn_testkit::{ports, wait};
use serde_json::Value;

use crate::common::{Fixture, dig};
use crate::keys::Keys;
use crate::relay::Relay;

/// A separate `unbound` with these trust anchors for the zone, which queries one server.
struct Resolver {
    address: SocketAddr,
    process: Process,
    _dir: tempfile::TempDir,
}

impl Resolver {
    async fn start(server: SocketAddr, anchors: &[String]) -> Self {
        let dir = tempfile::tempdir().expect("folder");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::local()));
        let anchors: String = anchors
            .iter()
            .map(|ds| format!("  trust-anchor: \"{ds}\"\n"))
            .collect();
        // Queries to the rest of the Internet are out of scope: only the zone is queried. `test.` is a name
        // that it would otherwise answer itself (RFC 6761, section 6.2). Nothing is cached, so that every question is asked again. Its own ports
        // are ephemeral ones, so that none is the port of another test's server.
        let text = format!(
            "server:\n  interface: 127.0.0.1\n  port: {port}\n  do-daemonize: no\n  username: \"\"\n  chroot: \"\"\n  \
             directory: {dir:?}\n  pidfile: \"\"\n  use-syslog: no\n  logfile: \"\"\n  verbosity: 1\n  val-log-level: 2\n  do-ip6: no\n  \
             num-threads: 1\n  do-not-query-localhost: no\n  outgoing-port-avoid: 0-32767\n  local-zone: \"test.\" nodefault\n  \
             module-config: \"validator iterator\"\n  cache-max-ttl: 0\n  cache-max-negative-ttl: 0\n  key-cache-size: 0\n  val-bogus-ttl: 0\n{anchors}\
             remote-control:\n  control-enable: no\nstub-zone:\n  name: \"fn.test\"\n  stub-addr: 127.0.0.1@{to}\n",
            port = address.port(),
            dir = dir.path().display().to_string(),
            to = server.port(),
        );
        let config = dir.path().join("unbound.conf");
        std::fs::write(&config, text).expect("written");
        let mut process = Program::new("unbound", ["-d", "-c", &config.display().to_string()])
            .start(&dir.path().join("log"))
            .expect("these tests need the resolver `unbound` (Debian package unbound)");
        wait::until("the resolver to listen", async || {
            assert!(process.ended().is_none(), "it ended: {}", process.log());
            let connected = tokio::net::TcpStream::connect(address).await;
            connected
                .map(drop)
                .map_err(|e| format!("{e}\n{}", process.log()))
        })
        .await;
        Self {
            address,
            process,
            _dir: dir,
        }
    }

    async fn ask(&self, name: &str, kind: &str) -> String {
        let asked = [name, kind, "+recurse", "+dnssec", "+adflag", "+nocookie"];
        dig(self.address, &asked).await
    }

    /// Asserts that an answer contains `expected` and was validated as secure.
    async fn secure(&self, name: &str, kind: &str, expected: &str) {
        let text = self.ask(name, kind).await;
        let flags = text.lines().find(|line| line.starts_with(";; flags:"));
        let flags = flags.and_then(|line| line.split(';').nth(2));
        assert!(
            flags.is_some_and(|flags| flags.split(' ').any(|flag| flag == "ad")),
            "{name} {kind}: {text}\n{}",
            self.process.log()
        );
        assert!(text.contains(expected), "{name} {kind}: {text}");
    }

    /// Asserts that the answer was rejected as bogus.
    async fn bogus(&self, name: &str, kind: &str) {
        let text = self.ask(name, kind).await;
        assert!(
            text.contains("status: SERVFAIL") && text.contains("ANSWER: 0"),
            "{name} {kind}: {text}"
        );
    }
}

/// The queries to the resolver, and the expected content of the answers: existing names, a missing type, a missing name (denied
/// compactly, so NOERROR), and the same below a wildcard.
const QUESTIONS: [(&str, &str, &str); 17] = [
    ("hello.fn.test", "A", "\t127.0."),
    ("hello.fn.test", "HTTPS", "alpn=\"h2\""),
    ("fn.test", "SOA", "ns1.fn.test."),
    ("fn.test", "NS", "ns1.fn.test."),
    ("fn.test", "DNSKEY", "257 3 13"),
    ("fn.test", "CAA", "ca.example.org"),
    ("ns1.fn.test", "A", "127.0.0.1"),
    ("long.fn.test", "TXT", "0123456789"),
    ("long.fn.test", "AAAA", "2001:db8::80"),
    ("any.wild.fn.test", "TXT", "from a wildcard"),
    ("a.b.wild.fn.test", "A", "192.0.2.81"),
    ("leaf.branch.wild.fn.test", "TXT", "exact"),
    ("hello.fn.test", "AAAA", "status: NOERROR"),
    ("any.wild.fn.test", "MX", "status: NOERROR"),
    ("branch.wild.fn.test", "A", "status: NOERROR"),
    ("nobody.fn.test", "A", "status: NOERROR"),
    ("deep.below.nobody.fn.test", "TXT", "status: NOERROR"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_resolver_finds_every_answer_secure() {
    let keys = Keys::new(&[(100, None)]);
    let fixture = Fixture::with_hello(|s| keys.set(s)).await;
    let resolver = Resolver::start(fixture.dns.address(), &[keys.ds(0)]).await;
    for (name, kind, expected) in QUESTIONS {
        resolver.secure(name, kind, expected).await;
    }
    for (name, kind) in [("hello.fn.test", "AAAA"), ("nobody.fn.test", "A")] {
        let text = resolver.ask(name, kind).await;
        assert!(text.contains("ANSWER: 0, AUTHORITY: 4"), "{text}");
    }
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resolver_believes_neither_another_key_nor_changed_answers() {
    let keys = Keys::new(&[(100, None)]);
    let fixture = Fixture::with_hello(|s| keys.set(s)).await;
    let strange = Keys::new(&[(100, None)]);
    let resolver = Resolver::start(fixture.dns.address(), &[strange.ds(0)]).await;
    for (name, kind, _) in QUESTIONS {
        resolver.bogus(name, kind).await;
    }
    let changes: Vec<(&[u8], &[u8])> = vec![(&[192, 0, 2, 80], &[192, 0, 2, 66])];
    let relay = Relay::start(fixture.dns.address(), Some(changes)).await;
    let resolver = Resolver::start(relay.address, &[keys.ds(0)]).await;
    resolver.bogus("long.fn.test", "A").await;
    assert!(relay.changed() > 0);
    resolver
        .secure("long.fn.test", "AAAA", "2001:db8::80")
        .await;
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resolver_finds_every_answer_secure_while_keys_roll_over() {
    // Hours since the second key was created and since its DS record was seen, its stage then, and the keys that the parent may name.
    type Step = (u64, Option<u64>, &'static str, &'static [usize]);
    let steps: [Step; 5] = [
        (1, None, "published", &[0]),
        (3, None, "ready", &[0, 1]),
        (40, Some(30), "waiting", &[0, 1]),
        (60, Some(50), "active", &[0, 1]),
        (200, Some(100), "active", &[1]),
    ];
    let keys = Keys::new(&[(1000, None)]);
    let fixture = Fixture::with_hello(|s| keys.set(s)).await;
    let masters = keys.master().keys(false).expect("the master key");
    let mut file = keys.read();
    file.add(&masters, Timestamp(0)).expect("a key");
    for (created, seen, stage, parents) in steps {
        keys.write(file.clone(), &[(1000, None), (created, seen)]);
        wait::until(&format!("the second key to be {stage}"), async || {
            let (_, text) = fixture.admin("/dnssec").await;
            let state: Value = serde_json::from_str(&text).expect("JSON");
            let alone = state["keys"][0]["stage"] == "removed";
            if state["keys"][1]["stage"] == stage && alone != parents.contains(&0) {
                Ok(())
            } else {
                Err(text)
            }
        })
        .await;
        for parent in parents {
            let resolver = Resolver::start(fixture.dns.address(), &[keys.ds(*parent)]).await;
            for (name, kind, expected) in [
                ("hello.fn.test", "A", "\t127.0."),
                ("fn.test", "DNSKEY", "257 3 13"),
                ("any.wild.fn.test", "TXT", "from a wildcard"),
                ("hello.fn.test", "AAAA", "status: NOERROR"),
                ("nobody.fn.test", "A", "status: NOERROR"),
            ] {
                resolver.secure(name, kind, expected).await;
            }
        }
    }
    fixture.dns.stop().await;
}

/// The system's Python, which has the dnsviz package.
const PYTHON: &str = "/usr/bin/python3";

/// Runs `dnsviz probe`, whose random ports are restricted to ephemeral ones, so that none is the port of another test's server.
const PROBE: &str = "import random, sys\n\
    any_of = random.randint\n\
    random.randint = lambda low, high: any_of(32768 if low == 1024 else low, high)\n\
    from dnsviz.commands.probe import main\n\
    main(sys.argv)\n";

/// Runs `dnsviz grok`. Debian 12's own command fails because its pygraphviz no longer has the module `release`, in which dnsviz looks for
/// a version that it needs for drawing; nothing is drawn here, so a version is provided.
const GROK: &str = "import sys, types, pygraphviz\n\
    pygraphviz.release = sys.modules['pygraphviz.release'] = types.SimpleNamespace(version='1.7')\n\
    from dnsviz.commands.grok import main\n\
    main(sys.argv)\n";

async fn output(program: &str, arguments: &[&str]) -> String {
    let output = tokio::process::Command::new(program)
        .args(arguments)
        .output()
        .await
        .expect("this test needs the checker `dnsviz` (Debian package dnsviz)");
    let (out, err) = (output.stdout, output.stderr);
    let err = String::from_utf8_lossy(&err);
    assert!(output.status.success(), "{program} {arguments:?}: {err}");
    String::from_utf8_lossy(&out).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_of_the_zone_is_clean() {
    let keys = Keys::new(&[(100, None), (5, None)]);
    let fixture = Fixture::with_hello(|s| keys.set(s)).await;
    let dir = tempfile::tempdir().expect("folder");
    let (probe, anchor) = (dir.path().join("probe.json"), dir.path().join("anchor"));
    let (probe, anchor) = (probe.display().to_string(), anchor.display().to_string());
    let dnskeys = fixture
        .dig(&["fn.test", "DNSKEY", "+noall", "+answer"])
        .await;
    std::fs::write(&anchor, &dnskeys).expect("written");
    let server = format!(
        "fn.test+:ns1.fn.test={}:{}",
        fixture.dns.address().ip(),
        fixture.dns.address().port()
    );
    // The zone, an app, a name covered by a wildcard and one that does not exist; the probe also sends unusual EDNS queries.
    let names = [
        "fn.test",
        "hello.fn.test",
        "any.wild.fn.test",
        "nobody.fn.test",
    ];
    let asked = [
        "-c", PROBE, "-4", "-A", "-E", "-a", "fn.test", "-x", &server, "-o", &probe,
    ];
    output(PYTHON, &[&asked[..], &names].concat()).await;
    let grok = async |level: &str, anchor: &str| {
        let arguments = ["-c", GROK, "-l", level, "-t", anchor, "-r", &probe];
        output(PYTHON, &arguments).await
    };
    let found = grok("warning", &anchor).await;
    assert_eq!(found.trim(), "", "nothing to complain of");
    // Check that it really looked.
    let seen = grok("info", &anchor).await;
    for name in names {
        assert!(
            seen.contains(&format!("\"{name}./IN/A\"")),
            "{name}: {seen}"
        );
    }
    assert!(
        seen.contains("\"status\": \"SECURE\"") && seen.contains("hello.fn.test./IN/AAAA"),
        "{seen}"
    );
    // Keys that are not in the zone: each with changed first bytes.
    let strange = |line: &str| {
        let (before, key) = line.split_once(" 3 13 ").expect("a key");
        format!("{before} 3 13 AAAA{}\n", &key[4..])
    };
    let strange: String = dnskeys.lines().map(strange).collect();
    std::fs::write(&anchor, strange).expect("written");
    let found = grok("warning", &anchor).await;
    assert!(found.contains("NO_TRUST_ANCHOR_SIGNING"), "{found}");
    fixture.dns.stop().await;
}
