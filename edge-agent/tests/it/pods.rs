//! A node whose functions are pods of a simulated Kubernetes cluster, set up as an operator does: by its settings alone.

use std::collections::BTreeSet;

use fdn_core::DurationMs;
use fdn_core::manifest::Manifest;
use fdn_edge_agent::settings::{KubernetesSettings, Settings};
use fdn_testkit::kubernetes::{Cluster, Resource};
use fdn_testkit::wait;

use crate::bursts::{burst, container};
use crate::support::Network;

const NAMESPACE: &str = "fdn-functions";
const REPOSITORY: &str = "registry.test/fdn";

fn settings(network: &Network, cluster: &Cluster) -> Settings {
    let kubeconfig = network.folder.path().join("kubeconfig");
    cluster.write_kubeconfig(&kubeconfig).expect("a file");
    let mut settings = network.settings("eu-west-1");
    settings.kubernetes = KubernetesSettings {
        enabled: true,
        kubeconfig: Some(kubeconfig),
        repository: Some(REPOSITORY.to_owned()),
        network_policies: true,
        health_timeout: settings.kubernetes.health_timeout,
        engine_timeout: DurationMs::from_secs(50),
        ..KubernetesSettings::default()
    };
    settings
}

fn running(cluster: &Cluster) -> BTreeSet<String> {
    let pods = cluster.objects(Resource::Pods, NAMESPACE).into_iter();
    let running = pods.filter(|pod| pod["status"]["phase"] == "Running");
    running
        .map(|pod| pod["metadata"]["uid"].as_str().expect("a uid").to_owned())
        .collect()
}

/// An uploaded archive whose image was copied to the repository.
async fn deploy(network: &Network) {
    let archive = fdn_testkit::docker::oci_image("pods");
    let bytes = std::fs::read(archive).expect("the archive was written");
    let manifest = Manifest {
        health_path: "/hello".to_owned(),
        ..container()
    };
    let revision = network.deploy("thumbs", 1, &bytes, manifest).await;
    let ready = |phase: &fdn_core::message::AppPhase| *phase == fdn_core::message::AppPhase::Ready;
    network.until_phase("thumbs", revision, ready).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bursts_from_zero_after_a_kill_and_after_a_restart_of_the_agent() {
    Box::pin(bursts_of(8)).await;
}

async fn bursts_of(size: usize) {
    let _turn = fdn_testkit::exclusive::lock().await;
    let cluster = Cluster::start().await.expect("a port");
    let kubelet = cluster.node("eu-west-1");
    kubelet.add_repository(REPOSITORY);
    let network = Network::start().await;
    let agent = network.agent(settings(&network, &cluster)).await;
    deploy(&network).await;
    for round in ["from zero", "after kill -9 of every instance"] {
        if round != "from zero" {
            assert!(kubelet.kill_all() > 0);
        }
        let (served, others) = burst(&network, &agent, "thumbs", size).await;
        assert!(others.is_empty(), "{round}: {others:?}");
        assert_eq!(served, size);
    }
    // The killed pods are deleted.
    wait::until("only pods that run", async || {
        let all = cluster.objects(Resource::Pods, NAMESPACE).len();
        let running = running(&cluster).len();
        if all == running && running > 0 {
            Ok(())
        } else {
            Err(format!("{running} of {all} run"))
        }
    })
    .await;
    // The API server is away: calls still reach running pods.
    cluster.disconnect();
    for _ in 0..10 {
        assert_eq!(network.text(&agent, "thumbs").await, "hello");
    }
    cluster.reconnect();
    let before = running(&cluster);
    agent.stop().await;
    let agent = network.agent(settings(&network, &cluster)).await;
    network.until_text(&agent, "thumbs", "hello").await;
    let after = running(&cluster);
    assert!(!after.is_disjoint(&before), "{before:?}, then {after:?}");
    agent.stop().await;
}

mod soak {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn bursts_of_fifty_from_zero_after_a_kill_and_after_a_restart_of_the_agent() {
        Box::pin(bursts_of(50)).await;
    }
}
