//! What operators say of a node: it comes by message and by snapshot, counts at once, and is kept.

use std::collections::BTreeSet;

use fdn_core::Revision;
use fdn_core::fleet::FleetDesired;
use fdn_core::manifest::Manifest;
use fdn_edge_agent::Agent;
use fdn_testkit::{components, wait};

use crate::support::Network;

fn cordoned(revision: Revision, nodes: &[&str]) -> FleetDesired {
    let nodes = nodes.iter().map(|node| node.parse().expect("node"));
    FleetDesired {
        revision,
        cordoned: nodes.collect::<BTreeSet<_>>(),
        ..FleetDesired::default()
    }
}

async fn tell(network: &Network, fleet: FleetDesired) {
    network.tell_fleet(fleet).await;
}

async fn ready(network: &Network, agent: &Agent, expected: u16) {
    wait::until("the node's readiness", async || {
        let url = format!("http://{}/readyz", agent.admin_address());
        let answer = network
            .client
            .get(url)
            .send()
            .await
            .map_err(|e| e.to_string())?;
        match answer.status().as_u16() {
            status if status == expected => Ok(()),
            status => Err(format!(
                "{status}: {}",
                answer.text().await.unwrap_or_default()
            )),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cordoned_node_says_so_serves_on_and_remembers() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("n-1")).await;
    network
        .deploy("hello", 1, &components::hello("hi"), Manifest::default())
        .await;
    network.until_text(&agent, "hello", "hi").await;
    ready(&network, &agent, 200).await;
    let newer = network.next_revision();
    tell(&network, cordoned(newer, &["n-1", "n-2"])).await;
    let status = network.until_status(|status| status.draining).await;
    assert_eq!((status.busy, status.waiting), (0, 0));
    ready(&network, &agent, 503).await;
    assert_eq!(
        network.metric(&agent, "fdn_agent_takes_work").await,
        Some(0.0)
    );
    assert_eq!(
        network.text(&agent, "hello").await,
        "hi",
        "who still comes is served"
    );
    // An older one changes nothing; the app told after it shows that it was read.
    tell(&network, cordoned(Revision(newer.get() - 1), &[])).await;
    network
        .deploy("other", 1, &components::hello("x"), Manifest::default())
        .await;
    ready(&network, &agent, 503).await;
    agent.stop().await;

    // Alone, it still knows.
    network.controller.kill().await;
    let agent = network.agent(network.settings("n-1")).await;
    network.until_text(&agent, "hello", "hi").await;
    ready(&network, &agent, 503).await;
    network.until_status(|status| status.draining).await;
    tell(&network, cordoned(network.next_revision(), &["n-2"])).await;
    ready(&network, &agent, 200).await;
    network.until_status(|status| !status.draining).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_missed_comes_with_the_snapshot() {
    let network = Network::start().await;
    network
        .controller
        .set_fleet(cordoned(Revision(7), &["n-1"]));
    let agent = network.agent(network.settings("n-1")).await;
    network.until_status(|status| status.draining).await;
    agent.stop().await;
}
