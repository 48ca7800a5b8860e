//! Spans of calls at a collector: one tree for each call, over all clusters that it reached; calls never wait for it.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use fdn_core::DurationMs;
use fdn_core::manifest::Manifest;
use fdn_core::message::{AppObserved, AppPhase, NodeStatus};
use fdn_edge_agent::Settings;
use fdn_instances::fake::FakeProgram;
use fdn_testkit::{components, wait};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::bursts::{container, engine, runtime};
use crate::support::Network;
use crate::support::workflows::{deploy, desired, settings, tell_addresses};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CLIENT: &str = "b7ad6b7169203331";

fn parent(trace: &str, flags: &str) -> String {
    format!("00-{trace}-{CLIENT}-{flags}")
}

/// A span as received.
#[derive(Clone, Debug)]
struct Span {
    /// The node that sent it.
    node: String,
    trace: String,
    id: String,
    parent: Option<String>,
    name: String,
    kind: u64,
    start: u64,
    end: u64,
    attributes: BTreeMap<String, String>,
}

fn attributes(of: &Value) -> BTreeMap<String, String> {
    let all = of["attributes"].as_array().expect("attributes").iter();
    let one = |attribute: &Value| {
        let value = &attribute["value"];
        let text = value["stringValue"].as_str().or(value["intValue"].as_str());
        let key = attribute["key"].as_str().expect("a key").to_owned();
        (key, text.expect("a value").to_owned())
    };
    all.map(one).collect()
}

impl Span {
    fn of(node: &str, span: &Value) -> Self {
        let text = |key: &str| span[key].as_str().unwrap_or_default().to_owned();
        let number = |key: &str| text(key).parse().expect("nanoseconds");
        Self {
            node: node.to_owned(),
            trace: text("traceId"),
            id: text("spanId"),
            parent: span["parentSpanId"].as_str().map(str::to_owned),
            name: text("name"),
            kind: span["kind"].as_u64().expect("a kind"),
            start: number("startTimeUnixNano"),
            end: number("endTimeUnixNano"),
            attributes: attributes(span),
        }
    }

    fn get(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", String::as_str)
    }
}

/// What a collector has received.
#[derive(Default)]
struct Seen {
    /// The status codes of the next responses; 200 after them.
    answers: VecDeque<u16>,
    /// The head of each request.
    heads: Vec<String>,
    /// The spans of requests that were answered with 200.
    spans: Vec<Span>,
}

/// A collector of spans.
struct Collector {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

impl Collector {
    async fn start(answers: &[u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Mutex::new(Seen {
            answers: answers.iter().copied().collect(),
            ..Seen::default()
        }));
        let shared = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self { address, seen }
    }

    fn url(&self) -> Option<String> {
        Some(format!("http://{}", self.address))
    }

    /// Waits for this many spans of a trace.
    async fn spans(&self, trace: &str, count: usize) -> Vec<Span> {
        wait::until("the spans of a trace", async || {
            let mut spans = self.seen.lock().expect("lock").spans.clone();
            spans.retain(|span| span.trace == trace);
            match spans.len() {
                all if all >= count => Ok(spans),
                _ => Err(format!("{spans:?}")),
            }
        })
        .await
    }
}

/// Answers the requests of one connection.
async fn serve(mut stream: TcpStream, seen: Arc<Mutex<Seen>>) {
    let mut read = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut read).await.unwrap_or(0) == 0 {
                return;
            }
        };
        let head = String::from_utf8_lossy(&read[..end]).to_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.expect("a length").parse().expect("a length");
        while read.len() < end + length {
            assert!(stream.read_buf(&mut read).await.expect("a body") > 0);
        }
        let body: Value = serde_json::from_slice(&read[end..end + length]).expect("json");
        read.drain(..end + length);
        let status = note(&mut seen.lock().expect("lock"), head, &body);
        let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\n{{}}");
        stream.write_all(answer.as_bytes()).await.expect("answered");
    }
}

fn note(seen: &mut Seen, head: String, body: &Value) -> u16 {
    seen.heads.push(head);
    let status = seen.answers.pop_front().unwrap_or(200);
    if status == 200 {
        for group in body["resourceSpans"].as_array().expect("resources") {
            let resource = attributes(&group["resource"]);
            assert_eq!(resource["service.name"], "fdn-edge-agent");
            let spans = group["scopeSpans"][0]["spans"].as_array().expect("spans");
            let node = &resource["service.instance.id"];
            seen.spans
                .extend(spans.iter().map(|span| Span::of(node, span)));
        }
    }
    status
}

/// The same settings with spans exported at once.
fn exporting(mut settings: Settings, collector: &Collector) -> Settings {
    settings.traces.otlp = collector.url();
    settings.traces.interval = DurationMs::from_millis(5);
    settings.traces.retry_first = DurationMs::from_millis(5);
    settings
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let mut all = spans.iter().filter(|span| span.name == name);
    let found = all
        .next()
        .unwrap_or_else(|| panic!("no {name} in {spans:?}"));
    assert!(all.next().is_none(), "{name} twice in {spans:?}");
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_one_tree_below_its_clients_span() {
    let network = Network::start().await;
    let collector = Collector::start(&[503, 429]).await;
    let mut settings = exporting(network.settings("n-1"), &collector);
    let headers = network.folder.path().join("headers");
    std::fs::write(&headers, "authorization: Bearer secret\n").expect("a file");
    settings.traces.headers_file = Some(headers);
    let agent = network.agent(settings).await;
    let revision = network
        .deploy("hello", 1, &components::hello("hi"), Manifest::default())
        .await;
    network.until_text(&agent, "hello", "hi").await;
    let call = async |app: &str, trace: &str, flags: &str| {
        let call = network
            .get(&agent, app, "/")
            .header("traceparent", parent(trace, flags));
        call.send().await.expect("an answer").status().as_u16()
    };
    let unwanted = "1af7651916cd43dd8448eb211c80319c";
    let refused = "2af7651916cd43dd8448eb211c80319c";
    assert_eq!(call("hello", unwanted, "00").await, 200);
    assert_eq!(call("hello", TRACE, "01").await, 200);
    assert_eq!(call("nobody", refused, "01").await, 404);
    let spans = collector.spans(TRACE, 3).await;
    let root = named(&spans, "GET hello");
    assert_eq!((root.kind, root.parent.as_deref()), (2, Some(CLIENT)));
    assert_eq!(root.get("fdn.app"), "hello");
    assert_eq!(root.get("fdn.version"), "v1");
    assert_eq!(root.get("fdn.outcome"), "ok");
    assert_eq!(root.get("fdn.revision"), revision.get().to_string());
    assert_eq!(root.get("http.response.status_code"), "200");
    let (queue, execute) = (named(&spans, "queue"), named(&spans, "execute"));
    for part in spans.iter().filter(|span| span.id != root.id) {
        assert_eq!(part.parent.as_deref(), Some(root.id.as_str()), "{part:?}");
        assert!(root.start <= part.start && part.start <= part.end && part.end <= root.end);
    }
    assert!(queue.end <= execute.start);
    let failed = collector.spans(refused, 1).await;
    assert_eq!(failed[0].get("fdn.error"), "FDN-3001", "{failed:?}");
    assert_eq!(failed[0].get("http.response.status_code"), "404");
    // All spans are sent in order: earlier ones would be there.
    {
        let seen = collector.seen.lock().expect("lock");
        assert!(seen.spans.iter().all(|span| span.trace != unwanted));
        assert!(seen.heads.len() > 2, "what was not taken was sent again");
        for head in &seen.heads {
            assert!(head.starts_with("post /v1/traces http/1.1"), "{head}");
            assert!(head.contains("authorization: bearer secret"), "{head}");
            assert!(head.contains("content-type: application/json"), "{head}");
        }
    }
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_over_two_clusters_is_one_tree() {
    let network = Network::start().await;
    let collector = Collector::start(&[]).await;
    let one = exporting(settings(&network, "n-1", "eu-west"), &collector);
    let eu = network.agent(one).await;
    let other = exporting(settings(&network, "n-2", "us-east"), &collector);
    let us = network.agent(other).await;
    let address = us.stage_address().expect("it takes stage calls");
    tell_addresses(&network, &[address], Vec::new()).await;
    let text = "
stages:
  - { name: near, function: echo }
  - { name: far, function: echo, needs: [near] }
";
    let functions = [("echo", components::echo(), false)];
    let wanted = desired(&network, "pair", text, &functions, &[("far", "us-east")]);
    let revision = wanted.revision.get().to_string();
    let ready = |status: &NodeStatus| {
        let mut apps = status.apps.iter();
        let is = |app: &AppObserved| app.app.as_str() == "pair" && app.phase == AppPhase::Ready;
        status.node.as_str() == "n-1" && apps.any(is)
    };
    deploy(&network, "n-2", wanted).await;
    network.until_status(ready).await;
    let answer = network.post(&eu, "pair", "/").body("x").send().await;
    assert_eq!(answer.expect("an answer").status(), 200);
    // The node where a trace begins decides, and passes the decision on.
    let trace = wait::until("a run", async || {
        let seen = collector.seen.lock().expect("lock");
        let run = seen.spans.iter().find(|span| span.name == "POST pair");
        run.map(|run| run.trace.clone()).ok_or("no run")
    })
    .await;
    let spans = wait::until("the stage in the other cluster", async || {
        let spans = collector.spans(&trace, 1).await;
        let all = ["stage near", "stage far", "POST pair/near", "POST pair/far"];
        let has = |name: &&str| spans.iter().any(|span| span.name == *name);
        if all.iter().all(has) {
            Ok(spans)
        } else {
            Err(format!("{spans:?}"))
        }
    })
    .await;
    let root = named(&spans, "POST pair");
    assert_eq!(
        (root.node.as_str(), root.parent.as_ref(), root.kind),
        ("n-1", None, 2)
    );
    assert_eq!(
        (root.get("fdn.outcome"), root.get("fdn.revision")),
        ("answered", &*revision)
    );
    for (stage, cluster, node) in [("near", "eu-west", "n-1"), ("far", "us-east", "n-2")] {
        let attempt = named(&spans, &format!("stage {stage}"));
        assert_eq!(attempt.parent.as_ref(), Some(&root.id));
        assert_eq!((attempt.node.as_str(), attempt.kind), ("n-1", 3));
        assert_eq!(attempt.get("fdn.to.cluster"), cluster);
        assert_eq!(attempt.get("fdn.outcome"), "done");
        let served = named(&spans, &format!("POST pair/{stage}"));
        assert_eq!(served.parent.as_ref(), Some(&attempt.id));
        assert_eq!((served.node.as_str(), served.kind), (node, 2));
        assert_eq!(served.get("fdn.stage"), stage);
        let parts = spans
            .iter()
            .filter(|span| span.parent.as_ref() == Some(&served.id));
        let names: Vec<&str> = parts.map(|part| part.name.as_str()).collect();
        assert!(
            names.contains(&"queue") && names.contains(&"execute"),
            "{names:?}"
        );
    }
    eu.stop().await;
    us.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_handed_on_is_one_tree() {
    let network = Network::start().await;
    let collector = Collector::start(&[]).await;
    let none = exporting(settings(&network, "n-1", "eu-west"), &collector);
    let none = network.agent(none).await;
    let program =
        FakeProgram::new(|_, request| async move { http::Response::new(request.into_body()) });
    let far = exporting(settings(&network, "n-2", "us-east"), &collector);
    let far = network
        .agent_with(far, runtime(&engine("app", program), "n-2"))
        .await;
    let address = far.stage_address().expect("it takes calls");
    tell_addresses(&network, &[address], Vec::new()).await;
    network.deploy("image", 1, b"app", container()).await;
    let mut calls = 0_u32;
    let trace = wait::until("the call to be handed on", async || {
        calls += 1;
        let trace = format!("{calls:032x}");
        let call = network.post(&none, "image", "/").body("x");
        let call = call.header("traceparent", parent(&trace, "01")).send();
        let answer = call.await.map_err(|error| error.to_string())?;
        match answer.headers().contains_key("x-fdn-served-by") {
            true => Ok(trace),
            false => Err(answer.status().to_string()),
        }
    })
    .await;
    let spans = wait::until("the spans of both", async || {
        let mut spans = collector.spans(&trace, 2).await;
        spans.retain(|span| span.name == "POST image");
        if spans.len() == 2 {
            Ok(spans)
        } else {
            Err(format!("{spans:?}"))
        }
    })
    .await;
    let of = |node: &str| {
        let found = spans.iter().find(|span| span.node == node);
        found.unwrap_or_else(|| panic!("no {node} in {spans:?}"))
    };
    let (first, served) = (of("n-1"), of("n-2"));
    assert_eq!(first.parent.as_deref(), Some(CLIENT));
    assert_eq!(first.get("fdn.outcome"), "handed_on");
    assert_eq!(first.get("fdn.served_by"), "us-east/n-2");
    assert_eq!(served.parent.as_ref(), Some(&first.id));
    assert_eq!(
        (served.get("fdn.outcome"), served.get("fdn.via")),
        ("ok", "n-1")
    );
    none.stop().await;
    far.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_collector_sends_nothing_and_an_agent_that_stops_sends_the_rest() {
    let network = Network::start().await;
    let collector = Collector::start(&[]).await;
    let mut slow = exporting(network.settings("n-1"), &collector);
    // Nothing is sent before the agent stops.
    slow.traces.interval = DurationMs::from_secs(3600);
    let on = network.agent(slow).await;
    let off = network.agent(network.settings("n-2")).await;
    network
        .deploy("hello", 1, &components::hello("hi"), Manifest::default())
        .await;
    for agent in [&on, &off] {
        network.until_text(agent, "hello", "hi").await;
        let call = network.get(agent, "hello", "/");
        let call = call.header("traceparent", parent(TRACE, "01")).send();
        assert_eq!(call.await.expect("an answer").status(), 200);
    }
    assert!(collector.seen.lock().expect("lock").heads.is_empty());
    off.stop().await;
    on.stop().await;
    let seen = collector.seen.lock().expect("lock");
    assert!(seen.spans.iter().any(|span| span.trace == TRACE));
    assert!(seen.spans.iter().all(|span| span.node == "n-1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_hangs_costs_no_call_anything() {
    let network = Network::start().await;
    // Its kernel accepts connections, but nothing reads from them.
    let hangs = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let mut settings = network.settings("n-1");
    let address = hangs.local_addr().expect("an address");
    settings.traces.otlp = Some(format!("http://{address}"));
    settings.traces.sample = 0.0;
    settings.traces.queue = 4;
    settings.traces.batch = 1;
    settings.traces.timeout = DurationMs::from_secs(3600);
    let agent = network.agent(settings).await;
    network
        .deploy("hello", 1, &components::hello("hi"), Manifest::default())
        .await;
    network.until_text(&agent, "hello", "hi").await;
    let metric = async |name: &str| {
        let line = format!("fdn_agent_trace_{name}{{node=\"n-1\"}}");
        network.metric(&agent, &line).await.expect("it is shown")
    };
    assert_eq!(metric("calls_waiting").await, 0.0, "none is exported");
    for _ in 0..20 {
        let call = network.get(&agent, "hello", "/");
        let call = call.header("traceparent", parent(TRACE, "01")).send();
        assert_eq!(call.await.expect("an answer").status(), 200);
    }
    // One is being sent, four wait.
    wait::until("the rest to be dropped", async || {
        let (waiting, dropped) = (
            metric("calls_waiting").await,
            metric("calls_dropped_total").await,
        );
        if dropped >= 15.0 && (3.0..=4.0).contains(&waiting) {
            Ok(())
        } else {
            Err(format!("{waiting} wait, {dropped} dropped"))
        }
    })
    .await;
    agent.stop().await;
    drop(hangs);
}
