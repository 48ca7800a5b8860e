//! A cluster dies under load with everybody away, and clusters with too much load.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fdn_core::message::{Message, NetworkDesired};
use fdn_core::{DurationMs, Revision};
use fdn_dns::{Dns, Settings};
use fdn_testkit::wait;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

use crate::common::{Fixture, app, cluster, network, settings};

const CLIENT: &str = "192.0.2.0/24";

/// A gateway that counts its checks, tells a load, and can be told to fail.
struct Gateway {
    address: SocketAddr,
    checks: Arc<AtomicU64>,
    fine: Arc<AtomicBool>,
    load: Arc<AtomicU64>,
}

impl Gateway {
    async fn start(address: [u8; 4]) -> Self {
        let listener = TcpListener::bind(SocketAddr::from((address, 0)))
            .await
            .expect("a free address");
        let address = listener.local_addr().expect("address");
        let (checks, fine) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(true)));
        let load = Arc::new(AtomicU64::new(0));
        let seen = (Arc::clone(&checks), Arc::clone(&fine), Arc::clone(&load));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let seen = seen.clone();
                tokio::spawn(async move {
                    let mut buffer = [0; 1024];
                    // Connections are kept, as gateways keep them.
                    while let Ok(n) = stream.read(&mut buffer).await {
                        if n == 0 {
                            break;
                        }
                        // The state is read before the check is counted: a check that was counted saw it or a later one.
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
            load,
        }
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

/// The clusters that answers named, as the third octet of their addresses, by the number of checks that had been made when the query
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
        // Behind the address stand the OPT record and the client subnet, 22 octets.
        buffer[len - 22 - 2]
    }
}

/// The server's own word on a gateway.
async fn up(fixture: &Fixture, gateway: SocketAddr) -> bool {
    let (_, metrics) = fixture.admin("/metrics").await;
    metrics.contains(&format!("gateway=\"{gateway}\"}} 1"))
}

/// The clock of this test are the checks that the dying gateway sees, so that it says the same however slow the machine is: the
/// server makes one every 30 ms, and the dead cluster must be out of the answers when the third that failed has been dealt with.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_dies_under_load_with_everybody_away_is_named_no_more() {
    let (eu, us) = (
        Gateway::start([127, 0, 1, 1]).await,
        Gateway::start([127, 0, 2, 1]).await,
    );
    // The state comes from a first life; in the second there is neither a broker that knows anything nor a controller.
    let first = Fixture::start(often).await;
    first.publish(desired(eu.address, us.address)).await;
    first.publish(app("hello", 2, &[(CLIENT, "eu-west")])).await;
    first.answers("hello.fn.test", CLIENT, &["127.0.1.1"]).await;
    let Fixture { dns, broker, dir } = first;
    dns.stop().await;
    drop(broker);
    let mut again = settings(dir.path());
    often(&mut again);
    again.network.controller = "http://127.0.0.1:9".parse().ok();
    let broker = Arc::new(fdn_bus::MemoryBroker::default());
    let dns = Dns::start(again, Arc::clone(&broker) as _)
        .await
        .expect("started");
    let fixture = Fixture { dns, broker, dir };
    let mut load = Load::new(fixture.dns.address()).await;

    eu.fine.store(false, Ordering::SeqCst);
    // From now on every check that is counted fails; one may be under way.
    let dead_since = eu.checks.load(Ordering::SeqCst);
    let mut named = BTreeMap::new();
    loop {
        let checks = eu.checks.load(Ordering::SeqCst) - dead_since;
        let answer = load.ask().await;
        *named.entry((answer, checks)).or_insert(0) += 1;
        // Six failures on: long enough to see what it does, whatever the pace.
        if checks >= 6 {
            break;
        }
    }
    assert!(
        named.keys().any(|(answer, _)| *answer == 2),
        "nobody was sent to the living: {named:?}"
    );
    // The third failure takes it out. It is dealt with before the server begins the fourth check, and one check may have been under
    // way when the cluster died: a query sent after five had been counted finds it gone.
    let late: Vec<_> = named
        .iter()
        .filter(|((answer, checks), _)| *answer == 1 && *checks >= 5)
        .collect();
    assert!(late.is_empty(), "the dead cluster was named: {named:?}");
    assert!(!up(&fixture, eu.address).await && up(&fixture, us.address).await);

    // It comes back, and the answers turn once.
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
    // With both above their capacity everybody stays at home.
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
