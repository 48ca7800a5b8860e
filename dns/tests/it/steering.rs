//! A cluster dies under load with all controllers away; and clusters are overloaded.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fdn_core::message::{Message, NetworkDesired};
use fdn_core::{DurationMs, Revision};
use fdn_dns::Settings;
use fdn_testkit::wait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::{JoinHandle, JoinSet};

use crate::common::{Fixture, app, cluster, network, settings};

const CLIENT: &str = "192.0.2.0/24";

/// A gateway that counts its checks, reports a load, and can be told to fail or to be silent.
struct Gateway {
    address: SocketAddr,
    checks: Arc<AtomicU64>,
    fine: Arc<AtomicBool>,
    silent: Arc<AtomicBool>,
    load: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Gateway {
    async fn start(address: [u8; 4]) -> Self {
        Self::at(SocketAddr::from((address, 0))).await
    }

    async fn at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free address");
        let address = listener.local_addr().expect("address");
        let (checks, fine) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(true)));
        let (load, silent) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let seen = (Arc::clone(&checks), Arc::clone(&fine), Arc::clone(&load));
        let says_nothing = Arc::clone(&silent);
        let task = tokio::spawn(async move {
            // The connections end with this task.
            let mut connections = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                let (seen, says_nothing) = (seen.clone(), Arc::clone(&says_nothing));
                connections.spawn(async move {
                    let mut buffer = [0; 1024];
                    // Connections are kept open, as gateways do.
                    while let Ok(n) = stream.read(&mut buffer).await {
                        if n == 0 {
                            break;
                        }
                        if says_nothing.load(Ordering::SeqCst) {
                            continue;
                        }
                        // The state is read before the check is counted: a counted check saw that state or a later one.
                        let status = if seen.1.load(Ordering::SeqCst) {
                            200
                        } else {
                            503
                        };
                        let load = seen.2.load(Ordering::SeqCst);
                        seen.0.fetch_add(1, Ordering::SeqCst);
                        let text = format!(
                            "HTTP/1.1 {status} x\r\nx-fdn-load: {load}\r\ncontent-length: 0\r\n\r\n"
                        );
                        drop(stream.write_all(text.as_bytes()).await);
                    }
                });
            }
        });
        Self {
            address,
            checks,
            fine,
            silent,
            load,
            task,
        }
    }

    /// Closes its port and all connections; returns when that is done.
    async fn stop(self) {
        self.task.abort();
        drop(self.task.await);
    }
}

fn often(settings: &mut Settings) {
    settings.health.interval = DurationMs::from_millis(30);
    settings.health.timeout = DurationMs::from_secs(60);
    settings.health.fall = 3;
    settings.health.rise = 3;
    settings.shed.enabled = false;
}

fn desired(eu: SocketAddr, us: SocketAddr) -> Message {
    Message::NetworkDesired(NetworkDesired {
        clusters: vec![
            cluster("eu-west", 53.35, -6.26, &[eu]),
            cluster("us-east", 39.04, -77.49, &[us]),
        ],
        revision: Revision(1),
        ..network(1)
    })
}

/// An A query for `hello` from 192.0.2.0/24.
fn query(id: u16) -> Vec<u8> {
    let mut message = id.to_be_bytes().to_vec();
    message.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
    message.extend(b"\x05hello\x02fn\x04test\0\0\x01\0\x01");
    message.extend([
        0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 11, 0, 8, 0, 7, 0, 1, 24, 0, 192, 0, 2,
    ]);
    message
}

/// The clusters that answers named, as the third byte of their addresses, by the number of checks that had been made when the query
/// was sent.
struct Load {
    socket: UdpSocket,
    next: u16,
}

impl Load {
    async fn new(server: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.2:0").await.expect("socket");
        socket.connect(server).await.expect("connected");
        Self { socket, next: 0 }
    }

    async fn ask(&mut self) -> u8 {
        self.next = self.next.wrapping_add(1);
        let query = query(self.next);
        self.socket.send(&query).await.expect("sent");
        let mut buffer = [0; 512];
        let len = self.socket.recv(&mut buffer).await.expect("an answer");
        assert_eq!(&buffer[..2], &query[..2], "an answer to another query");
        assert_eq!(buffer[7], 1, "one address");
        // The address is followed by the OPT record with the client subnet, 22 bytes.
        buffer[len - 22 - 2]
    }
}

/// A server that knows `hello` and these gateways only from its disk: after its restart there is no
/// controller.
async fn orphan(gateways: [SocketAddr; 2], change: impl Fn(&mut Settings)) -> Fixture {
    let first = Fixture::start(&change).await;
    first.publish(desired(gateways[0], gateways[1])).await;
    first.publish(app("hello", 2, &[(CLIENT, "eu-west")])).await;
    first.answers("hello.fn.test", CLIENT, &["127.0.1.1"]).await;
    let Fixture { dns, dir, .. } = first;
    dns.stop().await;
    let mut again = settings(dir.path());
    change(&mut again);
    let fixture = Fixture::on(dir, again).await;
    fixture.controller.disconnect();
    fixture
}

/// The server's own metric about a gateway.
async fn up(fixture: &Fixture, gateway: SocketAddr) -> bool {
    let (_, metrics) = fixture.admin("/metrics").await;
    metrics.contains(&format!("gateway=\"{gateway}\"}} 1"))
}

/// The clock of this test is the number of checks that the dying gateway sees, so that the result does not depend on the speed of the
/// machine: the server makes a check every 30 ms, and the dead cluster must have left the answers when the third failed one has been handled.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_dies_under_load_with_everybody_away_is_named_no_more() {
    let (eu, us) = (
        Gateway::start([127, 0, 1, 1]).await,
        Gateway::start([127, 0, 2, 1]).await,
    );
    let fixture = orphan([eu.address, us.address], often).await;
    let mut load = Load::new(fixture.dns.address()).await;

    eu.fine.store(false, Ordering::SeqCst);
    // From now on every counted check fails; one may be in progress.
    let dead_since = eu.checks.load(Ordering::SeqCst);
    let mut named = BTreeMap::new();
    loop {
        let checks = eu.checks.load(Ordering::SeqCst) - dead_since;
        let answer = load.ask().await;
        *named.entry((answer, checks)).or_insert(0) += 1;
        // Six failures later: long enough to see the effect, whatever the pace.
        if checks >= 6 {
            break;
        }
    }
    assert!(
        named.keys().any(|(answer, _)| *answer == 2),
        "nobody was sent to the living: {named:?}"
    );
    // The third failure removes it. That is handled before the server begins the fourth check, and one check may have been in
    // progress when the cluster died: a query that is sent after five counted checks must not name it.
    let late: Vec<_> = named
        .iter()
        .filter(|((answer, checks), _)| *answer == 1 && *checks >= 5)
        .collect();
    assert!(late.is_empty(), "the dead cluster was named: {named:?}");
    assert!(!up(&fixture, eu.address).await && up(&fixture, us.address).await);

    // It returns, and the answers change exactly once.
    let before = eu.checks.load(Ordering::SeqCst);
    eu.fine.store(true, Ordering::SeqCst);
    let (mut turns, mut last) = (0, 2);
    while eu.checks.load(Ordering::SeqCst) < before + 8 {
        let answer = load.ask().await;
        turns += usize::from(answer != last);
        last = answer;
    }
    assert_eq!((turns, last), (1, 1), "it flaps");
    fixture.dns.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_with_too_much_load_gives_clients_away_and_takes_them_back() {
    let (eu, us) = (
        Gateway::start([127, 0, 1, 1]).await,
        Gateway::start([127, 0, 2, 1]).await,
    );
    let fixture = Fixture::start(|settings| {
        often(settings);
        settings.shed.enabled = true;
        settings.shed.speed = 1.0;
        settings.shed.most = 1.0;
    })
    .await;
    fixture.publish(desired(eu.address, us.address)).await;
    fixture
        .publish(app("hello", 2, &[(CLIENT, "eu-west")]))
        .await;
    fixture
        .answers("hello.fn.test", CLIENT, &["127.0.1.1"])
        .await;
    eu.load.store(3, Ordering::SeqCst);
    fixture
        .answers("hello.fn.test", CLIENT, &["127.0.2.1"])
        .await;
    let (_, told) = fixture
        .admin("/lookup?name=hello.fn.test&client=192.0.2.0/24")
        .await;
    assert!(told.contains("\"reason\":\"shed\""), "{told}");
    // If both are above their capacity, all clients stay.
    us.load.store(3, Ordering::SeqCst);
    fixture
        .answers("hello.fn.test", CLIENT, &["127.0.1.1"])
        .await;
    us.load.store(0, Ordering::SeqCst);
    fixture
        .answers("hello.fn.test", CLIENT, &["127.0.2.1"])
        .await;
    eu.load.store(0, Ordering::SeqCst);
    fixture
        .answers("hello.fn.test", CLIENT, &["127.0.1.1"])
        .await;
    wait::until("the metric to be 0", async || {
        let (_, metrics) = fixture.admin("/metrics").await;
        if metrics.contains("fdn_dns_shed_ratio{cluster=\"eu-west\"} 0\n") {
            Ok(())
        } else {
            Err(metrics)
        }
    })
    .await;
    fixture.dns.stop().await;
}

/// With the default health settings, in real time.
mod soak {
    #![allow(
        clippy::print_stderr,
        reason = "figures that a reader of the test wants to see"
    )]

    use std::time::{Duration, Instant};

    use fdn_dns::settings::{HealthSettings, ShedSettings};

    use super::*;

    /// The tolerated delay beyond the promised time for the last answer that names a dead gateway.
    const LATE: Duration = Duration::from_millis(100);
    /// How long answers are observed when they should not change any more.
    const WATCHED: Duration = Duration::from_secs(5);

    /// The way a gateway dies.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Death {
        /// It answers 503.
        Sick,
        /// Its port is closed.
        Closed,
        /// Connections are accepted, but there is no answer.
        Silent,
    }

    fn shipped(settings: &mut Settings) {
        settings.health = HealthSettings::default();
        settings.shed = ShedSettings::default();
    }

    /// The answers since a point in time: when the last one named each cluster, and how often the answer changed.
    struct Seen {
        last: [Option<Duration>; 3],
        turns: usize,
        queries: u64,
    }

    /// Queries until the answers differ from `before`, and for some time after that.
    async fn ask(load: &mut Load, began: Instant, mut before: u8) -> Seen {
        let mut seen = Seen {
            last: [None; 3],
            turns: 0,
            queries: 0,
        };
        let mut until = began + Duration::from_secs(60);
        while Instant::now() < until {
            let answer = load.ask().await;
            seen.last[usize::from(answer)] = Some(began.elapsed());
            seen.queries += 1;
            if answer != before {
                if seen.turns == 0 {
                    until = Instant::now() + WATCHED;
                }
                seen.turns += 1;
                before = answer;
            }
        }
        seen
    }

    /// One death and the return from it. Returns how long after the death the last answer named the gateway.
    async fn dies(how: Death) -> Duration {
        let (eu, us) = (
            Gateway::start([127, 0, 1, 1]).await,
            Gateway::start([127, 0, 2, 1]).await,
        );
        let fixture = orphan([eu.address, us.address], shipped).await;
        let mut load = Load::new(fixture.dns.address()).await;
        // The server considers it healthy, and checks are being made.
        let before = eu.checks.load(Ordering::SeqCst);
        while eu.checks.load(Ordering::SeqCst) < before + 2 {
            assert_eq!(load.ask().await, 1);
        }
        let address = eu.address;
        let died = Instant::now();
        let eu = match how {
            Death::Sick => {
                eu.fine.store(false, Ordering::SeqCst);
                Some(eu)
            }
            Death::Silent => {
                eu.silent.store(true, Ordering::SeqCst);
                Some(eu)
            }
            Death::Closed => {
                eu.stop().await;
                None
            }
        };
        let seen = ask(&mut load, died, 1).await;
        assert_eq!(seen.turns, 1, "{how:?}: the answers flap");
        let named = seen.last[1].expect("it was named until it was noticed");
        assert!(!up(&fixture, address).await && up(&fixture, us.address).await);
        let back = Instant::now();
        let eu = match eu {
            None => Gateway::at(address).await,
            Some(eu) => {
                eu.fine.store(true, Ordering::SeqCst);
                eu.silent.store(false, Ordering::SeqCst);
                eu
            }
        };
        let again = ask(&mut load, back, 2).await;
        assert_eq!(again.turns, 1, "{how:?}: the answers flap on the return");
        let returned = again.last[2].expect("the other was named until then");
        eprintln!(
            "{how:?}: named for {} ms after its death, named again {} ms after its return; {} answers",
            named.as_millis(),
            returned.as_millis(),
            seen.queries + again.queries
        );
        fixture.dns.stop().await;
        eu.stop().await;
        us.stop().await;
        named
    }

    /// The promised time is `CheckSchedule::leaves_within`, or less if a check fails immediately.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_cluster_that_dies_in_any_way_is_named_no_longer_than_promised() {
        let health = HealthSettings::default();
        let schedule = health.schedule();
        let promised = schedule.leaves_within() + LATE;
        let at_once = (schedule.interval * health.fall).min(schedule.leaves_within()) + LATE;
        for how in [Death::Sick, Death::Closed, Death::Silent] {
            let bound = if how == Death::Silent {
                promised
            } else {
                at_once
            };
            let named = dies(how).await;
            assert!(named <= bound, "{how:?}: {named:?} instead of {bound:?}");
        }
    }
}
