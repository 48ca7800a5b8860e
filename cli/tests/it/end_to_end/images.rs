//! Container images on a network in one process: run by the machine's Docker engine.

use fdn_testkit::{docker, wait};
use serde_json::Value;

use super::{Network, STOP};

/// The label of containers of the network's only node.
const OURS: &str = "net.fdn.node=eu-west-1";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_is_deployed_called_and_ends_with_the_network() {
    let socket = docker::socket().await;
    let mut network = Network::new();
    network.flags.retain(|flag| flag != "--no-docker");
    let one = ["--nodes=1", "--region=eu-west=53.35,-6.26"];
    network.flags.extend(one.map(str::to_owned));
    network.docker = Some(format!("unix://{}", socket.display()));
    let mut process = network.up().await;
    let says = format!("the Docker engine at {}", socket.display());
    assert!(process.log().contains(&says), "{}", process.log());

    let archive = docker::saved_image("up").display().to_string();
    let settings = "runtime = \"docker\"\nmemory = \"32MiB\"\ncpu_milli = 100\n";
    let manifest = network.home.file("fdn.toml", settings);
    let deploy = ["deploy", "saved", &archive, "--manifest", &manifest];
    let out = network.ok(&[&deploy[..], &["--timeout", "120s"]].concat());
    assert!(out.contains("ready on 1 node"), "{out}");
    assert_eq!(network.ok(&["invoke", "saved"]), "hello");
    let running = docker::containers(&socket, OURS).await;
    assert_eq!(running.expect("the engine answers").len(), 1);
    wait::until("the node to tell what its instance holds", async || {
        let text = network.ok(&["node", "describe", "eu-west-1", "-o", "json"]);
        let node: Value = serde_json::from_str(&text).expect("JSON");
        let memory = |what: &str| node["info"][what]["memory_mib"].as_u64();
        match (memory("capacity"), memory("free")) {
            (Some(all), Some(free)) if all == free + 32 => Ok(()),
            other => Err(format!("{other:?}: {text}")),
        }
    })
    .await;

    let stopped = process.stop(STOP).expect("SIGTERM ends it");
    assert!(stopped.success(), "{stopped}:\n{}", process.log());
    let left = docker::containers(&socket, OURS).await;
    assert_eq!(left.expect("the engine answers"), [""; 0], "none is left");
}
