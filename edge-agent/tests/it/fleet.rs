//! Operators' decisions about a node: they arrive by message and by snapshot, take effect at once, and are kept.

use std::collections::BTreeSet;

use fdn_core::enrol::Machine;
use fdn_core::fleet::{FleetDesired, Revoked};
use fdn_core::manifest::Manifest;
use fdn_core::{Revision, Timestamp};
use fdn_edge_agent::Agent;
use fdn_service::pki::Facts;
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
    // An older decision changes nothing; the app sent after it shows that it was handled.
    tell(&network, cordoned(Revision(newer.get() - 1), &[])).await;
    network
        .deploy("other", 1, &components::hello("x"), Manifest::default())
        .await;
    ready(&network, &agent, 503).await;
    agent.stop().await;

    // Without a controller, the node still knows.
    network.controller.away(true);
    let agent = network.agent(network.settings("n-1")).await;
    network.until_text(&agent, "hello", "hi").await;
    ready(&network, &agent, 503).await;
    // Decisions made meanwhile arrive with the snapshot.
    let meanwhile = cordoned(network.next_revision(), &["n-2"]);
    network.controller.set_fleet(meanwhile);
    network.controller.away(false);
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

#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_kept_is_asked_for_again() {
    let network = Network::start().await;
    let settings = network.settings("n-1");
    let agent = network.agent(settings.clone()).await;
    network
        .deploy("hello", 1, &components::hello("hi"), Manifest::default())
        .await;
    network.until_text(&agent, "hello", "hi").await;
    // The file cannot be written at this moment.
    let blocked = settings.data.join("state/fleet.json.new");
    std::fs::create_dir(&blocked).expect("a folder");
    let fleet = cordoned(network.next_revision(), &["n-1"]);
    network.controller.set_fleet(fleet.clone());
    let before = network.controller.snapshots();
    tell(&network, fleet).await;
    wait::until("a snapshot to be asked for", async || {
        match network.controller.snapshots() > before {
            true => Ok(()),
            false => Err("none"),
        }
    })
    .await;
    std::fs::remove_dir(&blocked).expect("removed");
    network.until_status(|status| status.draining).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_node_forgets_its_apps_and_the_key_of_their_secrets() {
    let network = Network::start().await;
    let mut settings = network.settings("n-1");
    let files = network
        .controller
        .identity(&settings.data, &settings.node, &settings.cluster);
    settings.tls.ca = Some(files.ca);
    settings.tls.certificate = Some(files.certificate.clone());
    settings.tls.key = Some(files.key);
    let state = settings.data.join("state");
    let agent = network.agent(settings.clone()).await;
    network
        .deploy("hello", 1, &components::hello("hi"), Manifest::default())
        .await;
    network.until_text(&agent, "hello", "hi").await;
    assert!(state.join("seal.key").exists());
    let certificate = std::fs::read_to_string(&files.certificate).expect("a certificate");
    let facts = Facts::<Machine>::of_pem(&certificate).expect("a certificate");
    let removed = FleetDesired {
        revision: network.next_revision(),
        revoked: vec![Revoked {
            serial: facts.serial,
            node: settings.node,
            expires_at: Timestamp(u64::MAX >> 1),
        }],
        ..FleetDesired::default()
    };
    tell(&network, removed).await;
    ready(&network, &agent, 503).await;
    wait::until("the key to be gone", async || {
        match state.join("seal.key").exists() {
            true => Err("there"),
            false => Ok(()),
        }
    })
    .await;
    let answer = network.get(&agent, "hello", "/").send().await;
    assert_eq!(answer.expect("an answer").status(), 404);
    let kept = std::fs::read_to_string(state.join("apps.json")).expect("a file");
    assert!(!kept.contains("hello"), "{kept}");
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_the_authorities_of_the_api_goes_on_by_its_connection() {
    let network = Network::start().await;
    network
        .deploy("hello", 1, &components::hello("hi"), Manifest::default())
        .await;
    for (node, text) in [("n-1", None), ("n-2", Some(""))] {
        let mut settings = network.settings(node);
        let files = network
            .controller
            .identity(&settings.data, &settings.node, &settings.cluster);
        settings.tls.ca = Some(files.ca);
        settings.tls.certificate = Some(files.certificate);
        settings.tls.key = Some(files.key);
        let kept = settings.data.join("api-ca.pem");
        if let Some(text) = text {
            std::fs::write(&kept, text).expect("written");
        }
        settings.controller.ca_file = Some(kept);
        let agent = network.agent(settings).await;
        network.until_text(&agent, "hello", "hi").await;
        ready(&network, &agent, 200).await;
        agent.stop().await;
    }
}
