//! Without a controller, what is deployed is still served, also after a restart.

use std::path::PathBuf;

use fdn_core::manifest::Manifest;
use fdn_edge_agent::Agent;
use fdn_instances::fake::FakeProgram;
use fdn_testkit::{components, wait};

use crate::bursts::{burst, container, deployed, engine, runtime};
use crate::support::Network;

fn compiled(network: &Network) -> PathBuf {
    let folder = network.folder.path().join("eu-west-1/cache/compiled");
    let files = std::fs::read_dir(folder).expect("folder");
    let mut paths = files.map(|entry| entry.expect("entry").path());
    paths
        .find(|path| path.extension().is_some_and(|e| e == "cwasm"))
        .expect("a compiled file")
}

/// An agent on the same data directory.
async fn restarted(network: &Network) -> Agent {
    network.agent(network.settings("eu-west-1")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_without_controller_serves_from_disk() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    network
        .deploy(
            "hello",
            1,
            &components::hello("still here"),
            Manifest::default(),
        )
        .await;
    network
        .deploy_where(
            "lazy",
            1,
            &components::hello("also here"),
            Manifest::default(),
            false,
        )
        .await;
    network.until_text(&agent, "hello", "still here").await;
    network.until_text(&agent, "lazy", "also here").await;
    network.controller.kill().await;
    assert_eq!(network.text(&agent, "hello").await, "still here");
    agent.stop().await;
    let before = std::fs::metadata(compiled(&network))
        .expect("file")
        .modified()
        .expect("time");
    let agent = restarted(&network).await;
    // The very first call is answered: it is held until the app is loaded.
    assert_eq!(network.text(&agent, "hello").await, "still here");
    assert_eq!(network.text(&agent, "lazy").await, "also here");
    wait::until("readiness", async || {
        if agent.readiness().is_ready() {
            Ok(())
        } else {
            Err(format!("{:?}", agent.readiness().conditions()))
        }
    })
    .await;
    assert_eq!(
        std::fs::metadata(compiled(&network))
            .expect("file")
            .modified()
            .expect("time"),
        before
    );
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reboot_without_controller_starts_containers_from_images_on_disk() {
    let network = Network::start().await;
    let before = engine("image", FakeProgram::text("still here"));
    let settings = network.settings("eu-west-1");
    let agent = network
        .agent_with(settings.clone(), runtime(&before, "eu-west-1"))
        .await;
    deployed(&network, "app", "image", container()).await;
    assert_eq!(network.text(&agent, "app").await, "still here");
    network.controller.kill().await;
    agent.stop().await;
    assert_eq!(before.crash_all(), 1, "no container outlives a reboot");

    let after = engine("image", FakeProgram::text("still here"));
    let agent = network
        .agent_with(settings, runtime(&after, "eu-west-1"))
        .await;
    let (good, others) = burst(&network, &agent, "app", 20).await;
    assert_eq!((good, others), (20, Vec::new()));
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compiled_file_that_was_changed_is_made_anew() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    network
        .deploy("hello", 1, &components::hello("anew"), Manifest::default())
        .await;
    network.until_text(&agent, "hello", "anew").await;
    agent.stop().await;
    let path = compiled(&network);
    let mut bytes = std::fs::read(&path).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xFF;
    std::fs::write(&path, bytes).expect("written");
    network.controller.kill().await;
    let agent = restarted(&network).await;
    assert_eq!(
        network.text(&agent, "hello").await,
        "anew",
        "from the component, without the controller"
    );
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_that_was_changed_is_fetched_again() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    network
        .deploy(
            "hello",
            1,
            &components::hello("fetched"),
            Manifest::default(),
        )
        .await;
    network.until_text(&agent, "hello", "fetched").await;
    agent.stop().await;
    std::fs::remove_file(compiled(&network)).expect("removed");
    let folder = network.folder.path().join("eu-west-1/cache/components");
    for entry in std::fs::read_dir(folder).expect("folder") {
        std::fs::write(entry.expect("entry").path(), b"rubbish").expect("written");
    }
    let (before, _) = network.controller.artifact_requests();
    let agent = restarted(&network).await;
    network.until_text(&agent, "hello", "fetched").await;
    assert_eq!(network.controller.artifact_requests().0, before + 1);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn state_that_cannot_be_read_is_set_aside_and_comes_again() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    network
        .deploy("hello", 1, &components::hello("again"), Manifest::default())
        .await;
    network.until_text(&agent, "hello", "again").await;
    agent.stop().await;
    std::fs::write(
        network.folder.path().join("eu-west-1/state/apps.json"),
        b"{",
    )
    .expect("written");
    let agent = restarted(&network).await;
    network.until_text(&agent, "hello", "again").await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_version_is_served_after_a_restart_until_the_new_one_can_be_had() {
    let network = Network::start().await;
    let agent = network.agent(network.settings("eu-west-1")).await;
    network
        .deploy("hello", 1, &components::hello("old"), Manifest::default())
        .await;
    network.until_text(&agent, "hello", "old").await;
    network.controller.stall(true);
    let revision = network
        .deploy("hello", 2, &components::hello("new"), Manifest::default())
        .await;
    network
        .until_phase("hello", revision, |phase| {
            *phase == fdn_core::message::AppPhase::Fetching
        })
        .await;
    agent.stop().await;
    let agent = restarted(&network).await;
    network.until_text(&agent, "hello", "old").await;
    network.controller.stall(false);
    network.until_text(&agent, "hello", "new").await;
    agent.stop().await;
}
