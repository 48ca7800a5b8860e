//! Calls that the receiving node cannot serve: answered by another node of its cluster, then by another cluster, at most once if they are not
//! idempotent, and refused as before if no node can.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fdn_core::fleet::FleetDesired;
use fdn_core::message::{AppPhase, NodeStatus};
use fdn_core::serving::NodeRuntime;
use fdn_core::usage::CallList;
use fdn_core::{ByteSize, ClusterId, DurationMs, ErrorCode, Revision};
use fdn_edge_agent::{Agent, Settings};
use fdn_instances::fake::FakeProgram;
use fdn_instances::full_body;
use fdn_testkit::wait;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::bursts::{container, engine, runtime};
use crate::support::{Network, problem, workflows};

/// Settings of a node of `cluster` that forwards calls with its certificate.
fn settings(network: &Network, node: &str, cluster: &str) -> Settings {
    let mut settings = workflows::settings(network, node, cluster);
    settings.workflows.plaintext = false;
    settings
}

/// Answers with the node's name and the request's body.
fn program(node: &'static str) -> FakeProgram {
    FakeProgram::new(move |_, request| async move {
        let mut response = http::Response::new(request.into_body());
        let name = http::HeaderValue::from_static(node);
        response.headers_mut().insert("x-answered-by", name);
        response
    })
}

/// Answers with the request's field `x-large`.
pub(crate) fn mirror() -> FakeProgram {
    FakeProgram::new(|_, request| async move {
        let mut response = http::Response::new(full_body("mirrored"));
        if let Some(value) = request.headers().get("x-large") {
            response.headers_mut().insert("x-large", value.clone());
        }
        response
    })
}

/// In eu-west a node without containers and one with them, and one in us-east.
struct Three {
    network: Network,
    none: Agent,
    near: Agent,
    far: Agent,
}

impl Three {
    async fn start(near: FakeProgram, far: FakeProgram) -> Self {
        let network = Network::start().await;
        let mut first = settings(&network, "n-1", "eu-west");
        first.forward.body = ByteSize::from_bytes(1 << 16);
        first.forward.calls = 1;
        // A node that was not ready at first may be tried again at once.
        first.forward.avoid = DurationMs::from_millis(1);
        let none = network.agent(first).await;
        let near = network
            .agent_with(
                settings(&network, "n-2", "eu-west"),
                runtime(&engine("app", near), "n-2"),
            )
            .await;
        let far = network
            .agent_with(
                settings(&network, "n-3", "us-east"),
                runtime(&engine("app", far), "n-3"),
            )
            .await;
        let three = Self {
            network,
            none,
            near,
            far,
        };
        let all =
            [&three.none, &three.near].map(|agent| agent.stage_address().expect("an address"));
        let far = three.far.stage_address().expect("an address");
        three.tell(&all, &[far]).await;
        three
    }

    /// Announces the clusters' addresses for calls.
    async fn tell(&self, eu: &[SocketAddr], us: &[SocketAddr]) {
        let cluster = |name: &str| -> ClusterId { name.parse().expect("cluster") };
        let calls =
            [("eu-west", eu), ("us-east", us)].map(|(name, all)| (cluster(name), all.to_vec()));
        let fleet = FleetDesired {
            revision: self.network.next_revision(),
            stage_calls: BTreeMap::from(calls),
            ..FleetDesired::default()
        };
        self.network.tell_fleet(fleet).await;
    }

    /// Deploys an image, and waits until the nodes with containers have it and the other one has failed.
    async fn deploy(&self, app: &str) -> Revision {
        let revision = self.network.deploy(app, 1, b"app", container()).await;
        let is = |status: &NodeStatus, node: &str, phase: fn(&AppPhase) -> bool| {
            let mut apps = status.apps.iter();
            status.node.as_str() == node && apps.any(|a| a.revision == revision && phase(&a.phase))
        };
        let ready = |phase: &AppPhase| *phase == AppPhase::Ready;
        for node in ["n-2", "n-3"] {
            self.network
                .until_status(|status| is(status, node, ready))
                .await;
        }
        let failed = |phase: &AppPhase| matches!(phase, AppPhase::Failed { .. });
        self.network
            .until_status(|status| is(status, "n-1", failed))
            .await;
        revision
    }

    async fn sent(&self, to: &str, outcome: &str) -> Option<f64> {
        let line = format!(
            "fdn_agent_forwarded_calls_total{{node=\"n-1\",outcome=\"{outcome}\",to=\"{to}\",why=\"unready\"}}"
        );
        self.network.metric(&self.none, &line).await
    }

    /// The records of a call on the other node of the cluster.
    async fn recorded(&self, app: &str, request: &str) -> CallList {
        let target = format!("/calls/{app}?limit=10&request={request}");
        let asking = self.network.ask(&self.near, &target);
        let answer = asking.send().await.expect("an answer");
        answer.json().await.expect("a list")
    }

    async fn stop(self) {
        self.none.stop().await;
        self.near.stop().await;
        self.far.stop().await;
    }
}

fn header(answer: &reqwest::Response, name: &str) -> String {
    let value = answer.headers().get(name);
    value.map_or(String::new(), |value| {
        value.to_str().expect("text").to_owned()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_serve_hands_on_to_its_cluster_and_then_to_the_next() {
    let three = Three::start(program("n-2"), program("n-3")).await;
    let revision = three.deploy("shop").await;
    let network = &three.network;
    let answer = network
        .post(&three.none, "shop", "/a?b=c")
        .header("x-fdn-explain", "1")
        .header("x-request-id", "handed-on")
        .body("hello")
        .send()
        .await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status(), 200);
    assert_eq!(header(&answer, "x-answered-by"), "n-2");
    assert_eq!(header(&answer, "x-fdn-served-by"), "eu-west/n-2");
    assert_eq!(header(&answer, "x-fdn-node"), "n-1");
    assert_eq!(header(&answer, "x-fdn-revision"), revision.to_string());
    assert_eq!(header(&answer, "x-fdn-plan"), "used");
    assert_eq!(answer.text().await.expect("text"), "hello");
    let recorded = three.recorded("shop", "handed-on").await;
    let [recorded] = recorded.calls.as_slice() else {
        panic!("{recorded:?}")
    };
    assert_eq!(recorded.node.as_str(), "n-2");
    assert_eq!(recorded.routed.revision, Some(revision));
    let via = recorded.routed.via.as_ref();
    assert_eq!(via.map(|node| node.as_str()), Some("n-1"));
    assert_eq!(three.sent("node", "answered").await, Some(1.0));
    let served = "fdn_agent_forwarded_calls_served_total{node=\"n-2\",outcome=\"answered\"}";
    assert_eq!(network.metric(&three.near, served).await, Some(1.0));
    // The call is counted once: where it was served.
    let calls = |status: &NodeStatus| status.apps.iter().map(|a| a.invocations).sum::<u64>();
    let counted = network
        .until_status(|s| s.node.as_str() == "n-2" && calls(s) == 1)
        .await;
    assert_eq!(counted.apps[0].serves, Some(true));
    let own = network.until_status(|s| s.node.as_str() == "n-1").await;
    assert_eq!((calls(&own), own.apps[0].serves), (0, Some(false)));
    assert_eq!(own.runtimes, Some([NodeRuntime::Wasm].into()));
    let all = [NodeRuntime::Wasm, NodeRuntime::Docker].into();
    assert_eq!(counted.runtimes, Some(all));
    // A response to HEAD has no body, and a body larger than the buffer is not forwarded but refused at once.
    let url = format!("http://{}/", three.none.gateway_address());
    let head = network.client.head(url).header("host", "shop.fn.test");
    let head = head.send().await.expect("an answer");
    assert_eq!(
        (
            head.status().as_u16(),
            header(&head, "x-answered-by").as_str()
        ),
        (200, "n-2")
    );
    let large = network
        .post(&three.none, "shop", "/")
        .body(vec![b'x'; (1 << 16) + 1]);
    let large = large.send().await.expect("an answer");
    assert_eq!(problem(large).await.code, ErrorCode::NotReady);

    // Without that node, the next cluster of the plan is used.
    let far = three.far.stage_address().expect("an address");
    let own = three.none.stage_address().expect("an address");
    three.tell(&[own], &[far]).await;
    wait::until("us-east to answer", async || {
        let answer = network.get(&three.none, "shop", "/").send().await;
        let by = header(
            &answer.map_err(|error| error.to_string())?,
            "x-fdn-served-by",
        );
        if by == "us-east/n-3" { Ok(()) } else { Err(by) }
    })
    .await;
    assert!(three.sent("cluster", "answered").await >= Some(1.0));
    three.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_heads_are_handed_on_and_come_back() {
    let three = Three::start(mirror(), mirror()).await;
    three.deploy("shop").await;
    let large = "x".repeat(100 << 10);
    let call = three.network.get(&three.none, "shop", "/");
    let answer = call.header("x-large", &large).send().await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status(), 200);
    assert_eq!(header(&answer, "x-fdn-served-by"), "eu-west/n-2");
    assert!(header(&answer, "x-large") == large, "the whole field");
    three.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_can_serve_the_call_is_refused_and_goes_in_no_circle() {
    let network = Network::start().await;
    let one = network.agent(settings(&network, "n-1", "eu-west")).await;
    let other = network.agent(settings(&network, "n-2", "us-east")).await;
    let address = |agent: &Agent| agent.stage_address().expect("an address");
    let calls = [("eu-west", address(&one)), ("us-east", address(&other))]
        .map(|(name, at)| (name.parse().expect("cluster"), vec![at]));
    let fleet = FleetDesired {
        revision: network.next_revision(),
        stage_calls: BTreeMap::from(calls),
        ..FleetDesired::default()
    };
    network.tell_fleet(fleet).await;
    let revision = network.deploy("shop", 1, b"app", container()).await;
    let failed = |phase: &AppPhase| matches!(phase, AppPhase::Failed { .. });
    network.until_phase("shop", revision, failed).await;
    let asked = |agent: &'static str, to: &'static str| {
        format!(
            "fdn_agent_forwarded_calls_total{{node=\"{agent}\",outcome=\"not_started\",to=\"{to}\",why=\"unready\"}}"
        )
    };
    wait::until("the other one to be asked", async || {
        let answer = network
            .get(&one, "shop", "/")
            .send()
            .await
            .map_err(|e| e.to_string())?;
        assert_eq!(problem(answer).await.code, ErrorCode::NotReady);
        match network.metric(&one, &asked("n-1", "cluster")).await {
            Some(1.0) => Ok(()),
            found => Err(format!("{found:?}")),
        }
    })
    .await;
    // It was asked once, did not forward back, and is not tried again for a while.
    assert_eq!(network.metric(&other, &asked("n-2", "cluster")).await, None);
    let answer = network
        .get(&one, "shop", "/")
        .send()
        .await
        .expect("an answer");
    assert_eq!(problem(answer).await.code, ErrorCode::NotReady);
    assert_eq!(network.metric(&one, &asked("n-1", "node")).await, None);
    one.stop().await;
    other.stop().await;
}

/// Relays connections until it is cut.
async fn relay(to: SocketAddr, cut: CancellationToken) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                () = cut.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            let (Ok((mut from, _)), cut) = (accepted, cut.clone()) else {
                return;
            };
            tokio::spawn(async move {
                let Ok(mut to) = TcpStream::connect(to).await else {
                    return;
                };
                let both = tokio::io::copy_bidirectional(&mut from, &mut to);
                tokio::select! { _ = both => {}, () = cut.cancelled() => {} }
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_may_have_run_goes_to_another_only_where_that_is_safe() {
    for (method, status) in [(http::Method::POST, 502), (http::Method::GET, 200)] {
        let (begun, calls) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
        let (seen, count) = (Arc::clone(&begun), Arc::clone(&calls));
        let hanging = FakeProgram::new(move |_, _| {
            seen.notify_one();
            async { std::future::pending().await }
        });
        let counting = FakeProgram::new(move |_, _| {
            count.fetch_add(1, Ordering::Relaxed);
            async { http::Response::new(full_body("far")) }
        });
        let three = Three::start(hanging, counting).await;
        let cut = CancellationToken::new();
        let near = three.near.stage_address().expect("an address");
        let far = three.far.stage_address().expect("an address");
        let through = relay(near, cut.clone()).await;
        three.tell(&[through], &[far]).await;
        three.deploy("shop").await;
        let url = format!("http://{}/", three.none.gateway_address());
        let call = three.network.client.request(method.clone(), url);
        let call = tokio::spawn(call.header("host", "shop.fn.test").send());
        begun.notified().await;
        // The maximum of forwarded calls is reached: no other node is tried for one more.
        let more = three.network.get(&three.none, "shop", "/").send().await;
        let more = problem(more.expect("an answer")).await;
        assert_eq!(more.code, ErrorCode::NotReady);
        assert_eq!(three.sent("none", "full").await, Some(1.0));
        cut.cancel();
        let answer = call.await.expect("no panic").expect("an answer");
        assert_eq!(answer.status().as_u16(), status, "{method}");
        let safe = method == http::Method::GET;
        assert_eq!(calls.load(Ordering::Relaxed), usize::from(safe));
        if !safe {
            assert_eq!(problem(answer).await.code, ErrorCode::InstanceLost);
        }
        assert_eq!(three.sent("node", "lost").await, Some(1.0));
        // Its call hangs for ever.
        drop(three);
    }
}
