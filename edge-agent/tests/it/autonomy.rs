//! A node works without its controller, and what runs well is left alone when the controller comes back.
//!
//! The function counts its calls in memory: after a restart, an instance begins at 1 again.

use fdn_core::Revision;
use fdn_core::billing::Meter;
use fdn_core::manifest::Manifest;
use fdn_core::message::AppDesired;
use fdn_edge_agent::Agent;
use fdn_testkit::{components, wait};

use crate::support::Network;

/// One instance, kept for many calls.
fn kept() -> Manifest {
    Manifest {
        reuse: 1_000_000,
        ..Manifest::default()
    }
}

/// Checks that the next call reaches the instance that answered the previous one.
async fn counts_on(network: &Network, agent: &Agent, last: &mut u32, why: &str) {
    let text = network.text(agent, "counter").await;
    *last += 1;
    assert_eq!(text, last.to_string(), "{why}");
}

/// Waits until the agent has received two more snapshots.
async fn two_snapshots(network: &Network) {
    let before = network.controller.snapshots();
    network.controller.end_feeds();
    wait::until("two snapshots", async || {
        match network.controller.snapshots() - before {
            n if n >= 2 => Ok(()),
            n => {
                network.controller.end_feeds();
                Err(n)
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_reconnection_what_runs_well_is_never_restarted() {
    let network = Network::start().await;
    let settings = network.settings("eu-west-1");
    let agent = network.agent(settings.clone()).await;
    let component = components::counter();
    network.deploy("counter", 1, &component, kept()).await;
    network.text(&agent, "counter").await;
    agent.stop().await;

    // The node restarts without a controller.
    network.controller.away(true);
    let agent = network.agent(settings).await;
    // The first call is held until the function is loaded; the agent may have made a warm call before it.
    let mut last = network
        .text(&agent, "counter")
        .await
        .parse()
        .expect("a number");
    for _ in 0..3 {
        counts_on(&network, &agent, &mut last, "served from disk").await;
    }
    assert_eq!(
        network.metric(&agent, "fdn_agent_controller_up").await,
        Some(0.0)
    );

    // The controller is back and repeats what it said before.
    network.controller.away(false);
    two_snapshots(&network).await;
    counts_on(&network, &agent, &mut last, "the controller is back").await;

    // The feed sends old and known state, out of order and twice.
    let known = network.controller.desired("counter").expect("deployed");
    let stale = AppDesired {
        revision: Revision(known.revision.get() - 1),
        spec: None,
        ..known.clone()
    };
    for desired in [&stale, &known, &stale, &known] {
        network.tell(desired.clone()).await;
    }
    // New state follows, whose effect shows that everything before it was processed.
    let marker = network.desired(
        "marker",
        1,
        &components::hello("seen"),
        Manifest::default(),
        true,
    );
    network.controller.store(&components::hello("seen"));
    network.controller.set(marker.clone());
    network.tell(marker).await;
    network.until_text(&agent, "marker", "seen").await;
    counts_on(&network, &agent, &mut last, "stale orders are recognised").await;

    // A newer revision of the same version: the placement has changed, the instance has not.
    let mut moved = network.desired("counter", 1, &component, kept(), true);
    if let Some(spec) = &mut moved.spec {
        spec.primary.insert("us-east".parse().expect("cluster"));
    }
    network.controller.set(moved.clone());
    network.tell(moved).await;
    two_snapshots(&network).await;
    counts_on(
        &network,
        &agent,
        &mut last,
        "the same version under a newer revision",
    )
    .await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_made_while_the_controller_was_away_are_billed_when_it_is_back() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    network
        .deploy("counter", 1, &components::counter(), kept())
        .await;
    network.text(&agent, "counter").await;
    agent.stop().await;
    network.controller.away(true);
    let counted = || network.controller.counted().get(Meter::Invocations);
    let before = counted();
    // Across a restart, without a controller to report to.
    let mut calls = 0;
    for _ in 0..2 {
        let agent = network.agent(network.settings("eu-west-1")).await;
        for _ in 0..5 {
            network.text(&agent, "counter").await;
            calls += 1;
        }
        agent.stop().await;
    }
    assert_eq!(counted(), before);
    network.controller.away(false);
    let agent = network.agent(network.settings("eu-west-1")).await;
    wait::until("the calls before to be counted", async || {
        let billed = counted();
        // The billed calls also include those that waited for the app, and the agent's own warm calls.
        if billed >= before + calls {
            Ok(())
        } else {
            Err(billed)
        }
    })
    .await;
    agent.stop().await;
}
