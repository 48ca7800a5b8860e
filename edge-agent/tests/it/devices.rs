//! GPU devices of an agent: in its status and metrics, and bound to instances on the node and in the cluster.

use std::sync::Arc;

use fdn_core::device::{DeviceKind, GpuRequest};
use fdn_core::manifest::Manifest;
use fdn_core::message::{AppPhase, NodeStatus};
use fdn_core::{ByteSize, ErrorCode, MebiBytes};
use fdn_devices::Discovery;
use fdn_edge_agent::{Agent, Settings};
use fdn_instances::fake::{FakeEngine, FakeProgram};
use fdn_instances::full_body;

use crate::bursts::{container, deployed, runtime};
use crate::support::Network;
use crate::support::peers::{address, is_whole, settings, until_status};

const GIB: u64 = 1 << 10;

/// Gives a node this many simulated devices of 24 GiB.
fn with_devices(settings: &mut Settings, count: u32) {
    settings.devices.simulated.count = count;
    settings.devices.simulated.memory = ByteSize::from_mib(24 * GIB);
    settings.devices.simulated.model = "NVIDIA L4".to_owned();
}

/// A container that needs this much memory of one device.
fn with_gpu(gib: u64) -> Manifest {
    Manifest {
        gpu: Some(GpuRequest::of_memory(ByteSize::from_mib(gib * GIB))),
        ..container()
    }
}

/// Answers with its devices and memory.
fn says_its_devices() -> FakeProgram {
    FakeProgram::new(|context, _| async move {
        let environment = context.environment();
        let of = |name: &str| environment.get(name).cloned().unwrap_or_default();
        let text = format!("{} {}", of("FDN_GPU_DEVICES"), of("FDN_GPU_MEMORY_MIB"));
        http::Response::new(full_body(text))
    })
}

/// The apps that hold slices, by device.
fn holders(status: &NodeStatus) -> Vec<Vec<String>> {
    let of_device = |device: &fdn_core::device::DeviceStatus| {
        let apps = device.slices.iter().map(|slice| slice.app.to_string());
        apps.collect()
    };
    status.devices.iter().map(of_device).collect()
}

/// A cluster of two nodes, the second with a device.
async fn two_nodes(network: &Network, engine: &Arc<FakeEngine>) -> [Agent; 2] {
    two_nodes_with(network, engine, |_| {}).await
}

/// The same, with changed settings of the second.
async fn two_nodes_with(
    network: &Network,
    engine: &Arc<FakeEngine>,
    change: impl FnOnce(&mut Settings),
) -> [Agent; 2] {
    let first = settings(network, "n-1", 8, None);
    let first = network.agent_with(first, runtime(engine, "n-1")).await;
    let mut second = settings(network, "n-2", 8, Some(address(&first)));
    with_devices(&mut second, 1);
    change(&mut second);
    let second = network.agent_with(second, runtime(engine, "n-2")).await;
    for agent in [&first, &second] {
        until_status(agent, |status| is_whole(status, 2)).await;
    }
    [first, second]
}

#[tokio::test(flavor = "multi_thread")]
async fn simulated_devices_are_in_the_status_and_the_metrics() {
    let network = Network::start().await;
    let mut settings = network.settings("eu-west-1");
    with_devices(&mut settings, 2);
    let agent = network.agent(settings).await;
    let status = network
        .until_status(|status| !status.devices.is_empty())
        .await;
    assert_eq!(status.devices.len(), 2);
    assert_eq!(status.devices[0].kind, DeviceKind::Simulated);
    assert_eq!(status.capacity.gpu_memory_mib, MebiBytes(48 << 10));
    assert_eq!(status.free.gpu_memory_mib, MebiBytes(48 << 10));
    assert_eq!(status.devices[0].memory_mib, MebiBytes(24 << 10));
    assert!(status.devices[0].slices.is_empty());
    let line =
        "fdn_agent_device_memory_bytes{device=\"SIM-0\",model=\"NVIDIA L4\",node=\"eu-west-1\"}";
    let memory = network.metric(&agent, line).await.expect("shown");
    assert!((memory - f64::from(24 << 10) * f64::from(1 << 20)).abs() < 1.0);
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_tells_of_the_devices_that_the_driver_knows_and_of_none_without_a_driver() {
    let known = match fdn_devices::discovery::NvmlDiscovery::open() {
        Ok(nvml) => nvml.devices().expect("the driver answers"),
        Err(_) => Vec::new(),
    };
    let network = Network::start().await;
    let mut settings = network.settings("eu-west-1");
    settings.devices.enabled = true;
    let agent = network.agent(settings).await;
    let status = network
        .until_status(|status| status.devices.len() == known.len())
        .await;
    let memory: u64 = known.iter().map(|device| device.memory.get()).sum();
    assert_eq!(status.capacity.gpu_memory_mib, MebiBytes(memory));
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_to_look_for_no_devices_tells_of_none() {
    let network = Network::start().await;
    let mut settings = network.settings("eu-west-1");
    settings.devices.enabled = false;
    let agent = network.agent(settings).await;
    let status = network.until_status(|_| true).await;
    assert!(status.devices.is_empty());
    assert_eq!(status.capacity.gpu_memory_mib, MebiBytes(0));
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_share_a_device_by_slices_and_keep_them_over_a_restart_of_the_agent() {
    let network = Network::start().await;
    let mut settings = network.settings("eu-west-1");
    with_devices(&mut settings, 1);
    let engine = FakeEngine::new();
    for image in ["one", "two"] {
        engine.add_image(image, says_its_devices());
    }
    let agent = network
        .agent_with(settings.clone(), runtime(&engine, "eu-west-1"))
        .await;
    deployed(&network, "one", "one", with_gpu(12)).await;
    deployed(&network, "two", "two", with_gpu(8)).await;
    assert_eq!(network.text(&agent, "one").await, "SIM-0 12288");
    assert_eq!(network.text(&agent, "two").await, "SIM-0 8192");
    let both = |status: &NodeStatus| holders(status) == [["one", "two"]];
    let status = network.until_status(both).await;
    assert_eq!(status.free.gpu_memory_mib, MebiBytes(4 * GIB));
    let slices = status.devices[0].slices.iter();
    let slices: Vec<u64> = slices.map(|slice| slice.memory_mib.get()).collect();
    assert_eq!(slices, [12 * GIB, 8 * GIB]);
    let starts = engine.starts();
    agent.stop().await;

    let agent = network
        .agent_with(settings, runtime(&engine, "eu-west-1"))
        .await;
    assert_eq!(network.text(&agent, "one").await, "SIM-0 12288");
    assert_eq!(engine.starts(), starts, "what ran serves on");
    network.until_status(both).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_that_needs_a_device_runs_on_the_node_that_has_one() {
    let network = Network::start().await;
    let engine = FakeEngine::new();
    engine.add_image("net", says_its_devices());
    let [first, second] = two_nodes(&network, &engine).await;
    crate::peers::deployed(&network, "net", with_gpu(16), 2).await;
    assert_eq!(network.text(&first, "net").await, "SIM-0 16384");
    let alive = engine.alive();
    assert!(
        !alive.is_empty() && alive.iter().all(|(owner, _)| owner.node.as_str() == "n-2"),
        "{alive:?}"
    );
    first.stop().await;
    second.stop().await;
}

/// The deploying user is told what is missing, no call waits for a device that no node has, and a node that joins with one changes both.
#[tokio::test(flavor = "multi_thread")]
async fn a_function_whose_device_no_node_has_is_refused_until_one_joins_that_has_it() {
    let network = Network::start().await;
    let engine = FakeEngine::new();
    engine.add_image("net", says_its_devices());
    let first = settings(&network, "n-1", 8, None);
    let first = network.agent_with(first, runtime(&engine, "n-1")).await;
    let revision = network.deploy("net", 1, b"net", with_gpu(8)).await;
    let says_why = |phase: &AppPhase| {
        let AppPhase::Failed { reason } = phase else {
            return false;
        };
        reason.contains("[gpu]") && reason.contains("there is no device")
    };
    network.until_phase("net", revision, says_why).await;
    let refused = network.get(&first, "net", "/").send().await;
    let refused = refused.expect("an answer");
    let code = refused.headers().get(fdn_core::api::header::ERROR);
    assert_eq!(
        (refused.status().as_u16(), code.expect("a code").as_bytes()),
        (503, ErrorCode::NotReady.as_str().as_bytes())
    );
    assert_eq!(engine.starts(), 0, "nothing was tried for it");
    let mut second = settings(&network, "n-2", 8, Some(address(&first)));
    with_devices(&mut second, 1);
    let second = network.agent_with(second, runtime(&engine, "n-2")).await;
    // Each node that is called has an instance of its own there.
    let served = "SIM-0 8192";
    network.until_text(&second, "net", served).await;
    network.until_text(&first, "net", served).await;
    first.stop().await;
    second.stop().await;
}

/// Two functions that each need the whole device, called alternately: neither waits for the other one's idle instance.
async fn each_gives_way_to_the_other(network: &Network, engine: &FakeEngine, agent: &Agent) {
    for turn in 0..3 {
        for app in ["one", "two"] {
            let answer = network.text(agent, app).await;
            assert_eq!(answer, "SIM-0 16384", "{app}, turn {turn}");
        }
    }
    // An instance that is started in expectation of more calls may add a turn of its own.
    assert!(engine.starts() >= 6, "{}", engine.starts());
    let alive = engine.alive();
    assert_eq!(alive.len(), 1, "{alive:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_instance_gives_way_where_its_slices_are_needed() {
    let network = Network::start().await;
    let mut settings = network.settings("eu-west-1");
    with_devices(&mut settings, 1);
    let engine = FakeEngine::new();
    for image in ["one", "two"] {
        engine.add_image(image, says_its_devices());
    }
    let agent = network
        .agent_with(settings, runtime(&engine, "eu-west-1"))
        .await;
    deployed(&network, "one", "one", with_gpu(16)).await;
    deployed(&network, "two", "two", with_gpu(16)).await;
    each_gives_way_to_the_other(&network, &engine, &agent).await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_instance_gives_way_where_its_slices_are_needed_also_on_another_node() {
    let network = Network::start().await;
    let engine = FakeEngine::new();
    for image in ["one", "two"] {
        engine.add_image(image, says_its_devices());
    }
    let [first, second] = two_nodes(&network, &engine).await;
    for app in ["one", "two"] {
        crate::peers::deployed(&network, app, with_gpu(16), 2).await;
    }
    each_gives_way_to_the_other(&network, &engine, &first).await;
    // The first node's instance of `two` is idle there; the call at the second node need not wait until it expires.
    assert_eq!(network.text(&second, "one").await, "SIM-0 16384");
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cluster_gives_away_no_memory_of_a_device_that_has_failed() {
    let network = Network::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let faults = folder.path().join("failed");
    let engine = FakeEngine::new();
    engine.add_image("net", says_its_devices());
    let [first, second] = two_nodes_with(&network, &engine, |settings| {
        settings.devices.simulated.count = 2;
        settings.devices.simulated.faults = Some(faults.clone());
    })
    .await;
    crate::peers::deployed(&network, "net", with_gpu(16), 2).await;
    let said = network.text(&first, "net").await;
    let (holder, other) = match said.as_str() {
        "SIM-0 16384" => ("SIM-0", "SIM-1"),
        "SIM-1 16384" => ("SIM-1", "SIM-0"),
        other => panic!("{other}"),
    };
    let gpu = |gib: u64| {
        move |status: &fdn_cluster::ClusterStatus| {
            status.used.gpu_memory_mib == MebiBytes(gib * GIB)
        }
    };
    // All memory of the device that nobody uses is withheld.
    std::fs::write(&faults, format!("{other}\n")).expect("written");
    until_status(&second, gpu(16 + 24)).await;
    // Then that of the other one too; its instance ends, and only the failed memory stays held.
    std::fs::write(&faults, format!("{other}\n{holder}\n")).expect("written");
    network
        .until_status(|status| {
            status.devices.len() == 2
                && status
                    .devices
                    .iter()
                    .all(|d| !d.state.is_in_service() && d.slices.is_empty())
        })
        .await;
    until_status(&second, gpu(48)).await;
    // Once repaired, it serves again.
    std::fs::write(&faults, format!("{other}\n")).expect("written");
    until_status(&second, |status| {
        status.used.gpu_memory_mib < MebiBytes(48 * GIB)
    })
    .await;
    assert_eq!(network.text(&first, "net").await, format!("{holder} 16384"));
    first.stop().await;
    second.stop().await;
}
