//! Calls that would wait at the node that receives them: served where they finish sooner, in its cluster or another one, or here if that is
//! nowhere.

use std::collections::BTreeMap;

use fdn_core::device::Percent;
use fdn_core::fleet::FleetDesired;
use fdn_core::manifest::Manifest;
use fdn_core::message::NodeStatus;
use fdn_core::{ClusterId, DurationMs};
use fdn_edge_agent::{Agent, Settings};
use fdn_testkit::{components, wait};

use crate::support::Network;
use crate::support::workflows::settings;

/// A node with room for one call.
fn narrow(network: &Network, node: &str, cluster: &str) -> Settings {
    let mut settings = settings(network, node, cluster);
    settings.admission.slots = 1;
    settings.admission.app_share = Percent::WHOLE;
    settings.admission.wait = DurationMs::from_secs(120);
    let delay = DurationMs::from_millis(5);
    settings.workflows.emulate_delay = [(cluster_id("us-east"), delay)].into();
    settings
}

fn cluster_id(name: &str) -> ClusterId {
    name.parse().expect("cluster")
}

/// Deploys two functions and waits until all these nodes have both. One takes as long as its path says and is expected to take a minute; the
/// other is expected to take a second and takes next to no time.
async fn deploy(network: &Network, nodes: &[&str]) {
    let expected = |seconds| Manifest {
        expected: DurationMs::from_secs(seconds),
        timeout: DurationMs::from_secs(120),
        ..Manifest::default()
    };
    let long = components::waiting();
    let first = network.deploy("long", 1, &long, expected(60)).await;
    let hello = components::hello("hello");
    let second = network.deploy("hello", 1, &hello, expected(1)).await;
    let has = |status: &NodeStatus, revision| {
        let mut apps = status.apps.iter();
        apps.any(|app| app.revision == revision && app.serves == Some(true))
    };
    for node in nodes {
        network
            .until_status(|status| {
                status.node.as_str() == *node && has(status, first) && has(status, second)
            })
            .await;
    }
}

/// Announces the clusters' addresses for calls.
async fn tell(network: &Network, of: &[(&str, &[&Agent])]) {
    let at = |agent: &&Agent| agent.stage_address().expect("an address");
    let calls = of.iter().map(|(cluster, agents)| {
        let all = agents.iter().map(at).collect();
        (cluster_id(cluster), all)
    });
    let fleet = FleetDesired {
        revision: network.next_revision(),
        stage_calls: calls.collect::<BTreeMap<_, _>>(),
        ..FleetDesired::default()
    };
    network.tell_fleet(fleet).await;
}

/// Keeps a node busy with a call that takes a quarter of a minute.
async fn busy(network: &Network, agent: &Agent, node: &str) {
    tokio::spawn(network.get(agent, "long", "/15000").send());
    network
        .until_status(|status| status.node.as_str() == node && status.busy == 1)
        .await;
}

/// The number of calls that a node forwarded because they would have waited.
async fn sent(network: &Network, agent: &Agent, to: &str, outcome: &str) -> Option<f64> {
    let line = format!(
        "fdn_agent_forwarded_calls_total{{node=\"n-1\",outcome=\"{outcome}\",to=\"{to}\",why=\"busy\"}}"
    );
    network.metric(agent, &line).await
}

fn served_by(answer: &reqwest::Response) -> Option<&str> {
    let by = answer.headers().get("x-fdn-served-by")?;
    by.to_str().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_would_wait_is_served_beside_or_in_the_next_cluster() {
    let network = Network::start().await;
    let first = network.agent(narrow(&network, "n-1", "eu-west")).await;
    let beside = network.agent(narrow(&network, "n-2", "eu-west")).await;
    let far = network.agent(narrow(&network, "n-3", "us-east")).await;
    deploy(&network, &["n-1", "n-2", "n-3"]).await;
    tell(
        &network,
        &[("eu-west", &[&first, &beside]), ("us-east", &[&far])],
    )
    .await;
    busy(&network, &first, "n-1").await;
    let answer = network.post(&first, "hello", "/").body("2").send().await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status(), 200);
    assert_eq!(served_by(&answer), Some("eu-west/n-2"));
    assert_eq!(sent(&network, &first, "node", "answered").await, Some(1.0));

    busy(&network, &beside, "n-2").await;
    let answer = network.post(&first, "hello", "/").body("3").send().await;
    assert_eq!(
        served_by(&answer.expect("an answer")),
        Some("us-east/n-3"),
        "ten milliseconds away"
    );
    assert_eq!(
        sent(&network, &first, "cluster", "answered").await,
        Some(1.0)
    );
    network
        .until_status(|status| status.node.as_str() == "n-1" && status.busy == 0)
        .await;
    let free = network.post(&first, "hello", "/").body("4").send().await;
    assert_eq!(served_by(&free.expect("an answer")), None, "it has room");
    for agent in [first, beside, far] {
        agent.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_it_is_over_sooner_nowhere_it_waits_where_it_came() {
    let network = Network::start().await;
    let first = network.agent(narrow(&network, "n-1", "eu-west")).await;
    let beside = network.agent(narrow(&network, "n-2", "eu-west")).await;
    let mut alone = narrow(&network, "n-4", "eu-west");
    alone.forward.gain = Percent::WHOLE;
    let alone = network.agent(alone).await;
    deploy(&network, &["n-1", "n-2", "n-4"]).await;
    tell(&network, &[("eu-west", &[&first, &beside])]).await;
    busy(&network, &first, "n-1").await;
    busy(&network, &beside, "n-2").await;
    // The other node of the cluster answers that it would take as long there.
    let call = tokio::spawn(network.get(&first, "hello", "/").send());
    wait::until(
        "the other node to say that it is busy",
        async || match sent(&network, &first, "node", "busy").await {
            Some(1.0) => Ok(()),
            count => Err(format!("{count:?}")),
        },
    )
    .await;
    let answer = call.await.expect("no panic").expect("an answer");
    assert_eq!((answer.status().as_u16(), served_by(&answer)), (200, None));

    // A required gain of 100 % disables forwarding: this node tries no other one, although the first one is free now.
    busy(&network, &alone, "n-4").await;
    let call = tokio::spawn(network.get(&alone, "hello", "/").send());
    network
        .until_status(|status| status.node.as_str() == "n-4" && status.waiting == 1)
        .await;
    let answer = call.await.expect("no panic").expect("an answer");
    assert_eq!((answer.status().as_u16(), served_by(&answer)), (200, None));
    for agent in [first, beside, alone] {
        agent.stop().await;
    }
}
