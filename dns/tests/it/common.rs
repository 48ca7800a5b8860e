//! A server with a fake controller, and the tools with which tests query it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use fdn_core::feed::{Frame, Report};
use fdn_core::message::{AppBindings, BindingsDesired, ClusterSpec, Message, NetworkDesired};
use fdn_core::{DurationMs, GeoPoint, Revision};
use fdn_dns::{Dns, Settings};
use fdn_link::{Body, Connection, ControllerLink, Feed, FeedEvent, LinkError};
use fdn_testkit::wait;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

/// Settings for a server on free loopback ports: expected events happen soon, and timeouts that must not occur on a busy machine are long.
pub(crate) fn settings(dir: &Path) -> Settings {
    let mut settings = Settings {
        data_dir: dir.to_owned(),
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        admin: SocketAddr::from(([127, 0, 0, 1], 0)),
        ..Settings::default()
    };
    settings.sync.save_after = DurationMs::from_millis(20);
    settings.demand.interval = DurationMs::from_millis(50);
    settings.tcp.idle = DurationMs::from_secs(120);
    settings.encrypted.idle = DurationMs::from_secs(120);
    settings.encrypted.handshake = DurationMs::from_secs(120);
    // The gateways do not exist unless a test is about health.
    settings.health.interval = DurationMs::from_secs(3600);
    settings.health.fall = 1000;
    settings
}

/// A fake controller: it sends what tests tell it to, and stores the reports.
pub(crate) struct FakeController {
    events: mpsc::Sender<FeedEvent>,
    connected: watch::Sender<bool>,
    again: Arc<Notify>,
    reports: Reports,
}

type Reports = Arc<Mutex<Vec<Message>>>;

/// Accepts every report.
struct ReportSink(Reports);

#[async_trait]
impl ControllerLink for ReportSink {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, LinkError> {
        assert_eq!(request.uri().path(), "/edge/v1/report");
        let report: Report = serde_json::from_slice(request.body()).expect("a report");
        self.0.lock().expect("not poisoned").extend(report.messages);
        let body = Empty::new().map_err(|never| match never {});
        let mut response = Response::new(Body::new(body));
        *response.status_mut() = StatusCode::NO_CONTENT;
        Ok(response)
    }
}

impl FakeController {
    /// Creates a connection, and the fake controller at its other end.
    pub(crate) fn new() -> (Connection, Self) {
        let (sender, events) = mpsc::channel(100);
        let (connected, up) = watch::channel(true);
        let (again, reports) = (Arc::new(Notify::new()), Reports::default());
        let connection = Connection {
            controllers: Arc::new(ReportSink(Arc::clone(&reports))),
            feed: Feed {
                events,
                connected: up,
                resync: Arc::clone(&again),
            },
        };
        let controller = Self {
            events: sender,
            connected,
            again,
            reports,
        };
        (connection, controller)
    }

    pub(crate) async fn send_event(&self, event: FeedEvent) {
        self.events.send(event).await.expect("the server listens");
    }

    /// Waits until the server requests a snapshot.
    pub(crate) async fn snapshot_requested(&self) {
        tokio::time::timeout(wait::PATIENCE, self.again.notified())
            .await
            .expect("asked in time");
    }

    /// The reports since the last call.
    pub(crate) fn reports(&self) -> Vec<Message> {
        std::mem::take(&mut *self.reports.lock().expect("not poisoned"))
    }

    /// Simulates the loss of all controllers.
    pub(crate) fn disconnect(&self) {
        self.connected.send_replace(false);
    }
}

/// The frame with the content of a message.
fn frame(message: Message) -> Frame {
    match message {
        Message::BindingsDesired(one) => Frame::Bindings(one),
        Message::BindingsChanged(one) => Frame::BindingsChanged(one),
        Message::NetworkDesired(one) => Frame::Network(one),
        Message::TxtDesired(one) => Frame::Txt(one),
        other => panic!("not for DNS servers: {other:?}"),
    }
}

/// A server, its controller and its data directory.
pub(crate) struct Fixture {
    pub(crate) dns: Dns,
    pub(crate) controller: FakeController,
    pub(crate) dir: tempfile::TempDir,
}

impl Fixture {
    pub(crate) async fn start(change: impl FnOnce(&mut Settings)) -> Self {
        let dir = tempfile::tempdir().expect("folder");
        let mut settings = settings(dir.path());
        change(&mut settings);
        Self::on(dir, settings).await
    }

    /// A server with an existing data directory, and a controller without data.
    pub(crate) async fn on(dir: tempfile::TempDir, settings: Settings) -> Self {
        let (connection, controller) = FakeController::new();
        let dns = Dns::start(settings, Some(connection))
            .await
            .expect("started");
        Self {
            dns,
            controller,
            dir,
        }
    }

    /// A server that knows the three regions and the app `hello` at revision 2, without bindings.
    pub(crate) async fn with_hello(change: impl FnOnce(&mut Settings)) -> Self {
        let fixture = Self::start(change).await;
        fixture.publish(Message::NetworkDesired(network(1))).await;
        fixture.publish(app("hello", 2, &[])).await;
        fixture
            .answers(
                "hello.fn.test",
                "198.51.100.0/24",
                &["127.0.2.1", "127.0.2.2"],
            )
            .await;
        fixture
    }

    /// The value of a metric without labels.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let (_, text) = self.admin("/metrics").await;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.and_then(|value| value.parse().ok())
            .unwrap_or_else(|| panic!("no {name} in\n{text}"))
    }

    pub(crate) async fn publish(&self, message: Message) {
        self.controller
            .send_event(FeedEvent::Change(frame(message)))
            .await;
    }

    pub(crate) async fn dig(&self, arguments: &[&str]) -> String {
        dig(self.dns.address(), arguments).await
    }

    /// Waits until clients of `subnet` get exactly these addresses.
    pub(crate) async fn answers(&self, name: &str, subnet: &str, expected: &[&str]) {
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        wait::until(
            &format!("{name} for {subnet} to be {expected:?}"),
            async || {
                let got = self.addresses(name, subnet).await;
                if got == expected {
                    Ok(())
                } else {
                    Err(format!("it is {got:?}"))
                }
            },
        )
        .await;
    }

    pub(crate) async fn addresses(&self, name: &str, subnet: &str) -> Vec<String> {
        let out = self
            .dig(&[name, "A", "+short", &format!("+subnet={subnet}")])
            .await;
        let mut lines: Vec<String> = out.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    }

    pub(crate) async fn admin(&self, path: &str) -> (u16, String) {
        get(self.dns.admin_address(), path).await
    }
}

/// Runs `dig` against a server.
pub(crate) async fn dig(server: SocketAddr, arguments: &[&str]) -> String {
    let mut command = tokio::process::Command::new("dig");
    if server.ip() == IpAddr::V4(Ipv4Addr::LOCALHOST) {
        // `dig` shares ports: from the server's own address it might get the server's port, and receive its own query.
        command.args(["-b", "127.0.0.2"]);
    }
    let output = command
        .arg(format!("@{}", server.ip()))
        .args([
            "-p",
            &server.port().to_string(),
            "+tries=2",
            "+time=30",
            "+norecurse",
        ])
        .args(arguments)
        .output()
        .await
        .expect("these tests need the client `dig` (Debian package bind9-dnsutils)");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "dig {arguments:?} failed: {text}");
    text
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let client =
        fdn_service::http_client::build(std::time::Duration::from_secs(60)).expect("client");
    let response = client
        .get(format!("http://{address}{path}"))
        .send()
        .await
        .expect("an answer");
    (
        response.status().as_u16(),
        response.text().await.expect("text"),
    )
}

pub(crate) fn cluster(name: &str, lat: f64, lon: f64, gateways: &[SocketAddr]) -> ClusterSpec {
    ClusterSpec {
        cluster: name.parse().expect("cluster"),
        region: name.parse().expect("region"),
        location: GeoPoint::new(lat, lon).expect("point"),
        gateways: gateways.to_vec(),
        health: gateways.to_vec(),
        weights: vec![],
    }
}

fn pair(third: u8) -> [SocketAddr; 2] {
    [1, 2].map(|last| SocketAddr::from((IpAddr::from([127, 0, third, last]), 8080)))
}

/// Three regions with two gateways each, and one of the three documentation prefixes near each.
pub(crate) fn network(revision: u64) -> NetworkDesired {
    let point = |lat, lon| GeoPoint::new(lat, lon).expect("point");
    NetworkDesired {
        revision: Revision(revision),
        clusters: vec![
            cluster("eu-west", 53.35, -6.26, &pair(1)),
            cluster("us-east", 39.04, -77.49, &pair(2)),
            cluster("ap-south", 19.08, 72.88, &pair(3)),
        ],
        locations: vec![
            ("192.0.2.0/24".parse().expect("prefix"), point(48.86, 2.35)),
            (
                "198.51.100.0/24".parse().expect("prefix"),
                point(40.71, -74.0),
            ),
            (
                "203.0.113.0/24".parse().expect("prefix"),
                point(1.35, 103.8),
            ),
        ],
        measured: vec![],
    }
}

pub(crate) fn bindings(name: &str, revision: u64, bindings: &[(&str, &str)]) -> BindingsDesired {
    let bindings = bindings
        .iter()
        .map(|(p, c)| (p.parse().expect("prefix"), c.parse().expect("cluster")))
        .collect();
    let state = AppBindings {
        holders: fdn_core::message::Holders::EVERYWHERE,
        host: format!("{name}.fn.test").parse().expect("host"),
        ttl_s: 20,
        bindings,
    };
    BindingsDesired {
        app: name.parse().expect("app"),
        revision: Revision(revision),
        state: Some(state),
    }
}

pub(crate) fn app(name: &str, revision: u64, bound: &[(&str, &str)]) -> Message {
    Message::BindingsDesired(bindings(name, revision, bound))
}

/// A tiny HTTP server: `answer` computes the response from a request's head, then the connection is closed.
pub(crate) struct Http {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Http {
    pub(crate) async fn start(
        address: SocketAddr,
        answer: impl Fn(&str) -> (u16, String) + Send + Sync + 'static,
    ) -> Self {
        let answer = move |head: &str| {
            let (status, body) = answer(head);
            (status, String::new(), body)
        };
        Self::with_header(address, answer).await
    }

    /// The same with an additional header line, or none.
    pub(crate) async fn with_header(
        address: SocketAddr,
        answer: impl Fn(&str) -> (u16, String, String) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free address");
        let address = listener.local_addr().expect("address");
        let task = tokio::spawn(async move {
            // A failed connection comes from a peer that only wanted to connect.
            while let Ok((mut stream, _)) = listener.accept().await {
                let (mut head, mut buffer) = (Vec::new(), [0; 1024]);
                while !head.windows(4).any(|w| w == b"\r\n\r\n") {
                    match stream.read(&mut buffer).await {
                        Ok(n) if n > 0 => head.extend_from_slice(&buffer[..n]),
                        _ => break,
                    }
                }
                let (status, header, body) = answer(&String::from_utf8_lossy(&head));
                let text = format!(
                    "HTTP/1.1 {status} x\r\n{header}content-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                drop(stream.write_all(text.as_bytes()).await);
            }
        });
        Self { address, task }
    }

    /// Stops listening; returns when the address is free again.
    pub(crate) async fn stop(self) {
        self.task.abort();
        drop(self.task.await);
    }
}
