//! A fake controller, captured output, and values to print.

use std::convert::Infallible;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use clap::Parser as _;
use futures::StreamExt as _;
use fdn_cli::args::Cli;
use fdn_cli::console::Console;
use fdn_cli::environment::Environment;
use fdn_cli::exit::Exit;
use fdn_core::{ErrorCode, Problem};
use http::{Method, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::net::TcpListener;

/// A request that the fake controller got.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Vec<u8>,
}

/// What it answers.
pub(crate) enum Reply {
    Full(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// Lines, after which the connection stays open for ever, ends well, or breaks off.
    Lines(Vec<String>, End),
}

/// How a stream ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Well,
    Cut,
}

impl Reply {
    pub(crate) fn json(value: &impl Serialize) -> Self {
        let body = serde_json::to_vec(value).expect("a value of the API");
        Self::Full(200, vec![("content-type", "application/json".into())], body)
    }

    pub(crate) fn problem(code: ErrorCode, detail: &str) -> Self {
        let problem = Problem::new(code, detail).with_request_id("req-1");
        let body = serde_json::to_vec(&problem).expect("a problem");
        Self::Full(code.http_status(), vec![("content-type", Problem::MEDIA_TYPE.into())], body)
    }
}

type Handler = dyn Fn(&Recorded, usize) -> Reply + Send + Sync;

/// An HTTP server with answers made up by a function.
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<Recorded>>>,
}

impl Fake {
    /// Serves on a free port of 127.0.0.1; the function also gets how many requests came before.
    pub(crate) async fn start(handler: impl Fn(&Recorded, usize) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_on("127.0.0.1:0", handler).await
    }

    pub(crate) async fn start_on(
        address: &str,
        handler: impl Fn(&Recorded, usize) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free port");
        let address = listener.local_addr().expect("address");
        let requests: Arc<Mutex<Vec<Recorded>>> = Arc::default();
        let (handler, log): (Arc<Handler>, _) = (Arc::new(handler), Arc::clone(&requests));
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                let (handler, log) = (Arc::clone(&handler), Arc::clone(&log));
                tokio::spawn(async move {
                    let service = service_fn(move |request| answer(request, Arc::clone(&handler), Arc::clone(&log)));
                    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
                });
            }
        });
        Self { address, requests }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Recorded> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn answer(
    request: Request<Incoming>,
    handler: Arc<Handler>,
    log: Arc<Mutex<Vec<Recorded>>>,
) -> Result<Response<BoxBody<Bytes, std::io::Error>>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|b| b.to_bytes().to_vec()).unwrap_or_default();
    let recorded = Recorded {
        method: parts.method,
        path: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
        authorization: parts.headers.get("authorization").and_then(|v| v.to_str().ok()).map(str::to_owned),
        headers: parts.headers,
        body,
    };
    let before = {
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.push(recorded.clone());
        log.len() - 1
    };
    let reply = handler(&recorded, before);
    Ok(match reply {
        Reply::Full(status, headers, body) => {
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            response.body(Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed()).expect("a response")
        }
        Reply::Lines(lines, end) => {
            let frames = futures::stream::iter(lines).map(|line| Ok(Frame::data(Bytes::from(line + "\n"))));
            // The server sends what it has when the body makes it wait; only then the connection is cut.
            let cut = futures::stream::once(async {
                tokio::task::yield_now().await;
                Err(std::io::Error::other("cut"))
            });
            let cut = cut.take(usize::from(end == End::Cut));
            Response::new(BoxBody::new(StreamBody::new(frames.chain(cut))))
        }
    })
}

/// A stream that keeps what is written.
#[derive(Clone, Default)]
pub(crate) struct Captured(Arc<Mutex<Vec<u8>>>);

impl Captured {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A home of its own for one test.
pub(crate) struct Home {
    pub(crate) folder: tempfile::TempDir,
    vars: Vec<(&'static str, String)>,
}

/// How a command ended and what it wrote.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) exit: Exit,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let vars = vec![("HOME", folder.path().display().to_string())];
        Self { folder, vars }
    }

    /// With a token for the controller at `url`.
    pub(crate) fn logged_in(url: &str) -> Self {
        let mut home = Self::new();
        let token = home.file("token", "secret-token\n");
        home.vars.push(("FDN_CONTROLLER", url.to_owned()));
        home.vars.push(("FDN_TOKEN_FILE", token));
        home
    }

    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("folder");
        std::fs::write(&path, content).expect("file");
        path.display().to_string()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    pub(crate) fn env(&self) -> Environment {
        Environment::of(self.vars.iter().map(|(k, v)| (*k, v.clone())))
    }

    /// Runs a command in this process.
    pub(crate) async fn fdn(&self, args: &[&str]) -> Ran {
        let cli = Cli::try_parse_from(std::iter::once(&"fdn").chain(args)).expect("valid arguments");
        let (out, err) = (Captured::default(), Captured::default());
        let mut console = Console::new(Box::new(out.clone()), Box::new(err.clone()));
        let exit = fdn_cli::main_with(&cli, &self.env(), &mut console).await;
        Ran { exit, out: out.text(), err: err.text() }
    }
}

/// Values of the API.
pub(crate) mod sample {
    use fdn_core::api::*;
    use fdn_core::latency::{LatencyEstimate, LatencySource};
    use fdn_core::manifest::{Manifest, ManifestBounds};
    use fdn_core::message::{AppObserved, AppPhase};
    use fdn_core::workflow::Workflow;
    use fdn_core::*;

    /// The present, for ages.
    pub(crate) const NOW: Timestamp = Timestamp(1_795_000_000_000);

    pub(crate) fn ago(seconds: u64) -> Timestamp {
        Timestamp(NOW.0 - seconds * 1000)
    }

    pub(crate) fn parse<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
        text.parse().expect(text)
    }

    pub(crate) fn version(n: u32) -> VersionNumber {
        n.try_into().expect("a version")
    }

    pub(crate) fn network() -> NetworkInfo {
        NetworkInfo {
            version: env!("CARGO_PKG_VERSION").into(),
            zone: parse("fn.test"),
            dns: None,
            gateway_port: 8080,
            upload_limit: 64 << 20,
        }
    }

    pub(crate) fn summary(name: &str) -> AppSummary {
        AppSummary {
            app: parse(name),
            host: parse(&format!("{name}.fn.test")),
            version: version(2),
            digest: Digest::of(name.as_bytes()),
            revision: Revision(7),
            deployed_at: ago(7800),
            nodes_ready: 2,
            nodes_total: 3,
        }
    }

    pub(crate) fn clusters() -> Vec<ClusterInfo> {
        let cluster = |name: &str, n: u8, lat, lon, alive| ClusterInfo {
            cluster: parse(name),
            region: parse(name),
            location: GeoPoint::new(lat, lon).expect("a position"),
            nodes_alive: alive,
            nodes_total: 2,
            speed: 1.0,
            capacity: Resources::new(MilliCpu(4000), MebiBytes(8192)),
            free: Resources::new(MilliCpu(3900), MebiBytes(8128)),
            slots: 512,
            busy: 3,
            gateways: vec![parse(&format!("127.0.{n}.1:8080")), parse(&format!("127.0.{n}.2:8080"))],
        };
        vec![cluster("eu-west", 1, 53.35, -6.26, 2), cluster("us-east", 2, 39.04, -77.49, 1)]
    }

    fn observed(phase: AppPhase, revision: u64) -> AppObserved {
        AppObserved {
            app: parse("hello"),
            revision: Revision(revision),
            phase,
            invocations: 42,
            errors: 1,
            execution_mean: Millis::new(1.5),
        }
    }

    pub(crate) fn nodes() -> Vec<NodeInfo> {
        let node = |name: &str, k: u8, alive, seen, apps| NodeInfo {
            node: parse(name),
            cluster: parse("eu-west"),
            gateway: parse(&format!("127.0.1.{k}:8080")),
            admin: parse(&format!("127.0.1.{k}:8081")),
            version: "0.1.0".into(),
            alive,
            seen_at: ago(seen),
            capacity: Resources::new(MilliCpu(2000), MebiBytes(4096)),
            free: Resources::new(MilliCpu(1900), MebiBytes(4032)),
            slots: 256,
            busy: 1,
            apps,
        };
        vec![
            node("eu-west-1", 1, true, 1, vec![observed(AppPhase::Ready, 7)]),
            node("eu-west-2", 2, false, 61, vec![observed(AppPhase::Compiling, 7)]),
        ]
    }

    pub(crate) fn detail(name: &str) -> AppDetail {
        let manifest = "memory = \"32MiB\"\nsecrets = [\"KEY\"]\nallowed_hosts = [\"api.example.com\"]\n[env]\nGREETING = \"hi\"\n";
        let manifest = Manifest::from_toml(manifest, &ManifestBounds::default()).expect("a manifest");
        let entry = |n: u32, seconds, size, manifest| VersionInfo {
            version: version(n),
            digest: Digest::of(&n.to_be_bytes()),
            size,
            created_at: ago(seconds),
            manifest,
        };
        let progress = |node: &str, observed| NodeProgress { node: parse(node), cluster: parse("eu-west"), observed };
        let failed = AppPhase::Failed { reason: "the disk is full".into() };
        AppDetail {
            summary: summary(name),
            workflow: Workflow::single(parse(name), version(2)),
            versions: vec![entry(2, 7800, 86_118, manifest), entry(1, 90_000, 12_000_000, Manifest::default())],
            bindings: vec![BindingInfo {
                prefix: parse("203.0.113.0/24"),
                cluster: parse("ap-south"),
                revision: Revision(6),
            }],
            nodes: vec![
                progress("eu-west-1", Some(observed(AppPhase::Ready, 7))),
                progress("eu-west-2", Some(observed(failed, 6))),
                progress("us-east-1", None),
            ],
        }
    }

    /// All nodes ready at a revision.
    pub(crate) fn ready(name: &str, revision: u64) -> AppDetail {
        let mut detail = detail(name);
        detail.summary.revision = Revision(revision);
        detail.summary.nodes_ready = 3;
        for node in &mut detail.nodes {
            node.observed = Some(observed(AppPhase::Ready, revision));
        }
        detail
    }

    pub(crate) fn deployed(name: &str) -> DeployResponse {
        let step = |step: &str, result: &str, ms| ValidationStep {
            step: step.into(),
            result: result.into(),
            took: Millis::new(ms),
        };
        DeployResponse {
            app: parse(name),
            version: version(3),
            digest: Digest::of(b"x"),
            size: 86_118,
            host: parse(&format!("{name}.fn.test")),
            revision: Revision(9),
            unchanged: false,
            validation: vec![
                step("size", "84.0 KiB of 64 MiB", 0.01),
                step("format", "a component", 1.2),
                step("probe", "status 200", 3.25),
            ],
        }
    }

    pub(crate) fn explanation() -> Explanation {
        let candidate = |name: &str, rtt: f64, work: f64, excluded: Option<&str>, verdict: &str| {
            let d = rtt / 2.0;
            // Of a cluster that cannot be chosen the controller knows the distance alone.
            let known = |ms: f64| if excluded.is_some() { Millis::INFINITY } else { Millis::new(ms) };
            Candidate {
                cluster: parse(name),
                latency: LatencyEstimate { rtt: Millis::new(rtt), source: LatencySource::Located },
                distance: Millis::new(d),
                available: known(0.0),
                start: known(d),
                work: known(work),
                finish: known(d + work),
                total: known(rtt + work),
                excluded: excluded.map(Into::into),
                verdict: verdict.into(),
            }
        };
        Explanation {
            app: parse("hello"),
            client: parse("203.0.113.7"),
            chosen: Some(parse("ap-south")),
            reason: "it finishes first".into(),
            bound: Some(BindingInfo { prefix: parse("203.0.113.0/24"), cluster: parse("ap-south"), revision: Revision(6) }),
            candidates: vec![
                candidate("ap-south", 60.0, 10.0, None, "chosen"),
                candidate("eu-west", 165.5, 10.0, None, "105.50 ms later"),
                candidate("us-east", 230.0, 10.0, Some("no node lives"), ""),
            ],
        }
    }
}
