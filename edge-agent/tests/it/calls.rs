//! Hosts, headers, protocols and admission.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use fdn_core::manifest::Manifest;
use fdn_core::message::AppPhase;
use fdn_core::{ClusterId, DurationMs, ErrorCode};
use fdn_testkit::{components, wait};
use reqwest::Version;

use crate::support::{Network, http2_client, problem};

#[tokio::test(flavor = "multi_thread")]
async fn the_host_decides() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    network
        .deploy("hello", 1, &components::hello("hi"), Manifest::default())
        .await;
    network.until_text(&agent, "hello", "hi").await;
    let url = format!("http://{}/", agent.gateway_address());
    for host in [
        "hello.fn.test",
        "HELLO.FN.TEST",
        "hello.fn.test.",
        "hello.fn.test:8080",
    ] {
        let answer = network
            .client
            .get(&url)
            .header("host", host)
            .send()
            .await
            .expect("an answer");
        assert_eq!(answer.status(), 200, "{host}");
    }
    for host in ["other.fn.test", "fn.test", "127.0.0.1"] {
        let answer = network
            .client
            .get(&url)
            .header("host", host)
            .send()
            .await
            .expect("an answer");
        assert_eq!(problem(answer).await.code, ErrorCode::UnknownHost, "{host}");
    }
    agent.stop().await;
}

/// The response to these bytes, until the server closes.
fn raw(agent: &fdn_edge_agent::Agent, request: &str) -> String {
    let mut stream = TcpStream::connect(agent.gateway_address()).expect("connect");
    stream
        .set_read_timeout(Some(wait::PATIENCE))
        .expect("timeout");
    stream.write_all(request.as_bytes()).expect("write");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("read");
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_as_they_stand_on_the_wire() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    network
        .deploy("path", 1, &components::path(), Manifest::default())
        .await;
    network.until_text(&agent, "path", "/").await;
    // The host in the target takes precedence over the header (RFC 9112, section 3.2.2).
    let answer = raw(
        &agent,
        "GET http://path.fn.test/a?b=c HTTP/1.1\r\nHost: other.fn.test\r\nConnection: close\r\n\r\n",
    );
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\n/a?b=c"),
        "{answer}"
    );
    let answer = raw(&agent, "GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 400 "), "no host: {answer}");
    let answer = raw(
        &agent,
        "HEAD /abc HTTP/1.1\r\nHost: path.fn.test\r\nConnection: close\r\n\r\n",
    );
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\n"),
        "no body: {answer}"
    );
    assert!(
        answer.contains("content-length: 4\r\n"),
        "the length of what GET gives: {answer}"
    );
    let answer = raw(&agent, "GET /old HTTP/1.0\r\nHost: path.fn.test\r\n\r\n");
    assert!(
        answer.contains(" 200 OK\r\n") && answer.ends_with("/old"),
        "{answer}"
    );
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_without_tls() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    network
        .deploy(
            "hello",
            1,
            &components::hello("over two"),
            Manifest::default(),
        )
        .await;
    network
        .deploy("echo", 1, &components::echo(), Manifest::default())
        .await;
    network.until_text(&agent, "hello", "over two").await;
    let client = http2_client(&agent, &["hello", "echo", "nobody"]);
    let port = agent.gateway_address().port();
    let get = |host: &str| client.get(format!("http://{host}:{port}/"));
    let answer = get("hello.fn.test").send().await.expect("an answer");
    assert_eq!(
        (answer.version(), answer.status().as_u16()),
        (Version::HTTP_2, 200)
    );
    assert_eq!(answer.headers()["x-fdn-node"], "eu-west-1");
    assert_eq!(answer.text().await.expect("text"), "over two");
    let calls = (0..20).map(|_| get("hello.fn.test").send());
    for answer in futures::future::join_all(calls).await {
        assert_eq!(answer.expect("an answer").status(), 200);
    }
    let large = vec![b'z'; 1 << 20];
    let answer = client
        .post(format!("http://echo.fn.test:{port}/"))
        .body(large.clone())
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.bytes().await.expect("body"), large);
    let answer = get("nobody.fn.test").send().await.expect("an answer");
    assert_eq!(problem(answer).await.code, ErrorCode::UnknownHost);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_is_told_the_revision_and_calls_off_the_plan_are_counted() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    let first = network
        .deploy("hello", 1, &components::hello("hi"), Manifest::default())
        .await;
    network.until_text(&agent, "hello", "hi").await;
    let text = |answer: &reqwest::Response, name: &str| {
        let value = answer.headers().get(name);
        value.map(|value| value.to_str().expect("text").to_owned())
    };
    let ask = async || {
        let asking = network.get(&agent, "hello", "/");
        let asking = asking.header("x-fdn-explain", "1").send();
        let answer = asking.await.expect("an answer");
        assert_eq!(answer.status(), 200);
        (
            text(&answer, "x-fdn-revision"),
            text(&answer, "x-fdn-plan"),
            answer,
        )
    };
    let (revision, plan, answer) = ask().await;
    assert_eq!(revision, Some(first.to_string()));
    assert_eq!(plan.as_deref(), Some("used"));
    assert_eq!(answer.headers()["x-fdn-cluster"], "eu-west");
    assert_eq!(answer.headers()["x-fdn-version"], "v1");
    let unasked = network.get(&agent, "hello", "/").send().await;
    let unasked = unasked.expect("an answer");
    assert_eq!(text(&unasked, "x-fdn-revision"), None);
    let counted = async |plan: &str| {
        let line = format!("fdn_agent_calls_off_plan_total{{node=\"eu-west-1\",plan=\"{plan}\"}}");
        network.metric(&agent, &line).await.unwrap_or_default()
    };
    assert_eq!(counted("leaving").await, 0.0);

    // The plans move away from this cluster, and later the app is loaded ahead in other clusters only.
    let cluster = |name: &str| -> ClusterId { name.parse().expect("cluster") };
    let (here, there) = (cluster("eu-west"), cluster("us-east"));
    let mut desired = network.controller.desired("hello").expect("deployed");
    for (word, leaves) in [("leaving", true), ("unused", false)] {
        desired.revision = network.next_revision();
        let spec = desired.spec.as_mut().expect("there");
        spec.primary = [there.clone()].into();
        spec.leaving.clear();
        if leaves {
            spec.primary.insert(here.clone());
            spec.leaving.insert(here.clone());
        }
        network.demand(desired.clone()).await;
        wait::until("the gateway to know the plan", async || {
            let (revision, plan, _) = ask().await;
            let as_told = revision == Some(desired.revision.to_string());
            if as_told && plan.as_deref() == Some(word) {
                Ok(())
            } else {
                Err(format!("{revision:?} {plan:?}"))
            }
        })
        .await;
        assert!(counted(word).await >= 1.0, "{word}");
    }
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sane_request_id_is_kept_and_another_replaced() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    network
        .deploy("hello", 1, &components::hello("hi"), Manifest::default())
        .await;
    network.until_text(&agent, "hello", "hi").await;
    let with = |id: &str| {
        network
            .get(&agent, "hello", "/")
            .header("x-request-id", id.to_owned())
            .send()
    };
    let answer = with("mine-1").await.expect("an answer");
    assert_eq!(answer.headers()["x-request-id"], "mine-1");
    let answer = with("not sane").await.expect("an answer");
    assert_eq!(answer.headers()["x-request-id"].len(), 32);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_beyond_slots_and_waiting_room_are_refused_and_the_others_served() {
    let network = Arc::new(Network::start().await);
    let mut settings = network.settings("eu-west-1");
    settings.admission.slots = 1;
    settings.admission.waiting = 1;
    settings.admission.wait = DurationMs::from_secs(60);
    let agent = network.agent(settings).await;
    network
        .deploy("slow", 1, &components::sleeping(3000), Manifest::default())
        .await;
    network.until_text(&agent, "slow", "awake").await;
    let calls = (0..3).map(|_| network.get(&agent, "slow", "/").send());
    let answers: Vec<_> = futures::future::join_all(calls)
        .await
        .into_iter()
        .map(|a| a.expect("an answer"))
        .collect();
    let (served, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|a| a.status() == 200);
    assert_eq!((served.len(), refused.len()), (2, 1));
    for answer in refused {
        assert_eq!(answer.headers()["retry-after"], "1");
        assert_eq!(problem(answer).await.code, ErrorCode::Overloaded);
    }
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_time_is_over_in_the_queue_is_no_fault_of_its_function() {
    let network = Network::start().await;
    let mut settings = network.settings("eu-west-1");
    settings.apps.warm_call = false;
    settings.admission.slots = 1;
    settings.admission.wait = DurationMs::from_secs(30);
    let agent = network.agent(settings).await;
    let hasty = Manifest {
        timeout: DurationMs::from_millis(300),
        ..Manifest::default()
    };
    network
        .deploy("hasty", 1, &components::hello("hi"), hasty)
        .await;
    network.until_text(&agent, "hasty", "hi").await;
    let slow = components::sleeping(60_000);
    let patient = Manifest {
        timeout: DurationMs::from_secs(120),
        ..Manifest::default()
    };
    let deployed = network.deploy("slow", 1, &slow, patient);
    let revision = deployed.await;
    network
        .until_phase("slow", revision, |phase| *phase == AppPhase::Ready)
        .await;
    let running = tokio::spawn(network.get(&agent, "slow", "/").send());
    let busy = "fdn_agent_calls_busy";
    wait::until("the slot to be taken", async || {
        match network.metric(&agent, busy).await {
            Some(1.0) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    let answer = network.get(&agent, "hasty", "/").send().await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.headers()["retry-after"], "1");
    assert_eq!(problem(answer).await.code, ErrorCode::Overloaded);
    assert!(!running.is_finished(), "the slot was taken all the time");
    running.abort();
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reused_instance_counts_on_and_a_fresh_one_begins_anew() {
    let network = Network::start().await;
    let mut settings = network.settings("eu-west-1");
    settings.apps.warm_call = false;
    let agent = network.agent(settings).await;
    network
        .deploy("fresh", 1, &components::counter(), Manifest::default())
        .await;
    let reuse = Manifest {
        reuse: 100,
        ..Manifest::default()
    };
    network
        .deploy("reused", 1, &components::counter(), reuse)
        .await;
    for n in 1..=5 {
        assert_eq!(network.text(&agent, "fresh").await, "1");
        assert_eq!(network.text(&agent, "reused").await, n.to_string());
    }
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_hold_their_memory_and_wait_while_the_node_has_no_more() {
    let network = Network::start().await;
    let mut settings = network.settings("eu-west-1");
    settings.capacity.memory = fdn_core::ByteSize::from_mib(100);
    settings.admission.wait = DurationMs::from_secs(60);
    let agent = network.agent(settings).await;
    let sixty = |reuse| Manifest {
        memory: fdn_core::ByteSize::from_mib(60),
        reuse,
        ..Manifest::default()
    };
    network
        .deploy("slow", 1, &components::sleeping(100), sixty(1))
        .await;
    network
        .deploy("kept", 1, &components::counter(), sixty(100))
        .await;
    network.until_text(&agent, "slow", "awake").await;
    // An idle sandbox is kept, and holds its memory until it is needed elsewhere.
    network.text(&agent, "kept").await;
    let free = network
        .until_status(|status| status.free.memory_mib.get() == 40)
        .await;
    assert_eq!(free.capacity.memory_mib.get(), 100);
    let calls = (0..4).map(|_| network.get(&agent, "slow", "/").send());
    for answer in futures::future::join_all(calls).await {
        assert_eq!(
            answer.expect("an answer").status(),
            200,
            "one after another"
        );
    }
    assert_eq!(network.text(&agent, "kept").await, "1", "it made room");
    let large = Manifest {
        memory: fdn_core::ByteSize::from_mib(101),
        ..Manifest::default()
    };
    network
        .deploy("large", 1, &components::hello("never"), large)
        .await;
    let answer = network.get(&agent, "large", "/").send().await;
    assert_eq!(
        problem(answer.expect("an answer")).await.code,
        ErrorCode::Overloaded
    );
    agent.stop().await;
}
