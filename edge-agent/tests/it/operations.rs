//! What operators and the controller see: readiness, metrics, reports, and an orderly stop.

use fdn_core::fleet::FleetDesired;
use fdn_core::manifest::Manifest;
use fdn_core::message::{Message, RttReport};
use fdn_core::{ClusterId, DurationMs, GatewayWeight, MebiBytes};
use fdn_testkit::{components, wait};

use crate::support::Network;

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_desired_state_is_alive_but_not_ready() {
    let network = Network::start().await;
    network.controller.away(true);
    let agent = network.agent(network.settings("eu-west-1")).await;
    let get = |path: &str| {
        network
            .client
            .get(format!("http://{}{path}", agent.admin_address()))
            .send()
    };
    assert_eq!(get("/healthz").await.expect("an answer").status(), 200);
    let answer = get("/readyz").await.expect("an answer");
    assert_eq!(answer.status(), 503);
    assert!(answer.text().await.expect("text").contains("desired_state"));
    network.controller.away(false);
    wait::until("the node to be ready", async || {
        let answer = get("/readyz").await.map_err(|e| e.to_string())?;
        match answer.status().as_u16() {
            200 => Ok(()),
            status => Err(status.to_string()),
        }
    })
    .await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_tells_load_capacity_and_apps() {
    let network = Network::start().await;
    let mut settings = network.settings("eu-west-1");
    settings.reports.status_interval = DurationMs::from_millis(100);
    settings.capacity.memory = fdn_core::ByteSize::from_mib(1000);
    settings.admission.slots = 7;
    settings.speed = 2.0;
    settings.gateway.weight = GatewayWeight::new(250).expect("a weight");
    settings.apps.warm_call = false;
    let agent = network.agent(settings).await;
    network
        .deploy(
            "slow",
            1,
            &components::sleeping(60_000),
            Manifest {
                timeout: DurationMs::from_secs(120),
                ..Manifest::default()
            },
        )
        .await;
    network
        .deploy("hello", 1, &components::hello("hi"), Manifest::default())
        .await;
    network.until_text(&agent, "hello", "hi").await;
    let idle = network
        .until_status(|s| {
            s.apps
                .iter()
                .any(|a| a.app.as_str() == "hello" && a.invocations > 0)
        })
        .await;
    assert_eq!(
        (idle.slots, idle.gateway, idle.admin),
        (7, agent.gateway_address(), agent.admin_address())
    );
    assert_eq!(idle.weight.get(), 250);
    let call = tokio::spawn(network.get(&agent, "slow", "/").send());
    let busy = network.until_status(|s| s.busy == 1).await;
    assert_eq!(
        (busy.boot, busy.sequence > idle.sequence),
        (idle.boot, true)
    );
    assert_eq!(busy.free.memory_mib, MebiBytes(1000 - 64));
    // Without measurements, the manifest's 10 ms count, on a node twice as fast as the reference.
    assert!(
        (busy.queued_work.get() - 20.0).abs() < 1e-6,
        "{}",
        busy.queued_work
    );
    assert!(!busy.draining);
    call.abort();
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn round_trips_are_reported_by_prefix() {
    let network = Network::start().await;
    let mut settings = network.settings("eu-west-1");
    settings.reports.rtt_interval = DurationMs::from_millis(100);
    let agent = network.agent(settings).await;
    network
        .deploy("hello", 1, &components::hello("hi"), Manifest::default())
        .await;
    network.until_text(&agent, "hello", "hi").await;
    let report = report(&network, |report| !report.samples.is_empty()).await;
    assert_eq!(report.samples[0].0.to_string(), "127.0.0.0/24");
    assert!(report.samples[0].1.get() > 0.0 && report.samples[0].2 > 0);
    agent.stop().await;
}

/// Waits for the first round-trip report that satisfies `wanted`.
async fn report(network: &Network, wanted: impl Fn(&RttReport) -> bool) -> RttReport {
    let report = |message| match message {
        Message::RttReport(report) if wanted(&report) => Some(report),
        _ => None,
    };
    network.controller.until_reported(report).await
}

#[tokio::test(flavor = "multi_thread")]
async fn links_to_other_clusters_are_reported() {
    let network = Network::start().await;
    let other = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let other = other.expect("bound").local_addr().expect("address");
    let there = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let mut settings = network.settings("eu-west-1");
    settings.reports.link_interval = DurationMs::from_millis(100);
    let own = settings.cluster.clone();
    let agent = network.agent(settings).await;
    let cluster = |name: &str| -> ClusterId { name.parse().expect("cluster") };
    let fleet = FleetDesired {
        revision: network.next_revision(),
        stage_calls: [
            (own.clone(), vec![there.local_addr().expect("address")]),
            (
                cluster("us-east"),
                vec![there.local_addr().expect("address")],
            ),
            // Nothing listens there any more.
            (cluster("ap-south"), vec![other]),
        ]
        .into(),
        ..FleetDesired::default()
    };
    network.tell_fleet(fleet).await;
    let report = report(&network, |report| !report.links.is_empty()).await;
    assert_eq!(report.cluster, own);
    assert_eq!(report.links.len(), 1, "{:?}", report.links);
    assert_eq!(report.links[0].0, cluster("us-east"));
    assert!(report.links[0].1.get() > 0.0);
    let failed = "fdn_agent_link_measurements_total{node=\"eu-west-1\",result=\"failed\"}";
    assert!(network.metric(&agent, failed).await.unwrap_or_default() >= 1.0);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_lets_running_calls_end_and_tells_before() {
    let network = Network::start().await;
    let mut settings = network.settings("eu-west-1");
    settings.stop.grace = DurationMs::from_secs(60);
    let agent = network.agent(settings).await;
    network
        .deploy("slow", 1, &components::sleeping(5000), Manifest::default())
        .await;
    network.until_text(&agent, "slow", "awake").await;
    let call = tokio::spawn(network.get(&agent, "slow", "/").send());
    wait::until("the call to run", async || {
        match network.metric(&agent, "fdn_agent_calls_busy").await {
            Some(busy) if busy >= 1.0 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    // The held memory is reported, also on a node without containers.
    for (what, is_held) in [("memory_of_calls", true), ("memory_of_instances", false)] {
        let line = format!("fdn_agent_held{{node=\"eu-west-1\",what=\"{what}\"}}");
        let held = network.metric(&agent, &line).await.expect(what);
        assert_eq!(held >= 1.0, is_held, "{what}: {held}");
    }
    let address = agent.gateway_address();
    let readiness = agent.readiness().clone();
    agent.stop().await;
    let answer = call
        .await
        .expect("task")
        .expect("the running call is answered");
    assert_eq!(answer.text().await.expect("text"), "awake");
    assert!(!readiness.is_ready());
    assert!(
        network
            .client
            .get(format!("http://{address}/"))
            .send()
            .await
            .is_err(),
        "nobody listens any more"
    );
    network.until_status(|status| status.draining).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_name_only_deployed_apps() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    network
        .deploy("hello", 1, &components::hello("hi"), Manifest::default())
        .await;
    network.until_text(&agent, "hello", "hi").await;
    for n in 0..20 {
        network
            .get(&agent, &format!("scan-{n}"), "/")
            .send()
            .await
            .expect("an answer");
    }
    let url = format!("http://{}/metrics", agent.admin_address());
    let text = network
        .client
        .get(&url)
        .send()
        .await
        .expect("metrics")
        .text()
        .await
        .expect("text");
    assert!(text.contains(r#"outcome="ok"} 1"#) && !text.contains("scan-"));
    let other = r#"fdn_agent_requests_total{app="_other",node="eu-west-1",outcome="client"}"#;
    assert!(network.metric(&agent, other).await.expect("counted") >= 20.0);
    network.delete("hello").await;
    wait::until("the series to go", async || {
        let text = network
            .client
            .get(&url)
            .send()
            .await
            .map_err(|e| e.to_string())?
            .text()
            .await
            .map_err(|e| e.to_string())?;
        if text.contains(r#"app="hello""#) {
            Err("still there".to_owned())
        } else {
            Ok(())
        }
    })
    .await;
    agent.stop().await;
}

#[test]
fn the_binary_checks_its_configuration() {
    let run = |arguments: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_fdn-edge-agent"))
            .args(arguments)
            .output();
        output.expect("the binary runs")
    };
    let sample = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../deploy/config/edge-agent.toml"
    );
    assert_eq!(
        run(&["--config", sample, "--check-config"]).status.code(),
        Some(0)
    );
    let printed = run(&["--config", sample, "--print-config"]);
    assert!(String::from_utf8_lossy(&printed.stdout).contains("node = \"eu-west-1\""));
    let folder = tempfile::tempdir().expect("folder");
    let bad = folder.path().join("bad.toml");
    std::fs::write(&bad, "[gateway]\nlisten_on = \"x\"\n").expect("written");
    let refused = run(&["--config", bad.to_str().expect("path"), "--check-config"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("listen_on"));
    assert!(
        String::from_utf8_lossy(&run(&["--version"]).stdout).contains(env!("CARGO_PKG_VERSION"))
    );
}
